// SPDX-License-Identifier: MIT
// A model with a transcoder beside it, against the golden values: what fires, errors,
// interventions.
#include "features/feature_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "features/golden_features.h"
#include "model/run.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kTolerance = 1e-5;  // of the largest expected magnitude

std::vector<float> Logits(const Model& model, const std::vector<std::int32_t>& ids, Hooks* hooks) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const Pass pass{.model = model, .batch = 1, .length = length, .hooks = hooks};
  Activations activations(model.config, 1, length, Keep::kNothing, 0);
  std::vector<float> logits(static_cast<std::size_t>(length * model.config.vocabulary));
  Forward(pass, ids.data(), activations, logits.data());
  return logits;
}

class FeatureRunTest : public testing::TestWithParam<std::string> {
 protected:
  FeatureCase golden_ = ReadFeatureCase(GetParam());
  Model model_ = LoadModel(golden_.model);
  Transcoder transcoder_ = LoadTranscoder(GoldenTranscoder(golden_.name));
  std::vector<bool> all_ = std::vector<bool>(static_cast<std::size_t>(model_.config.layers), true);

  // [L,T,*] of what a run kept.
  std::vector<float> Kept(const FeatureRun& run, Buffer<float> FeatureLayerValues::*member) const {
    std::vector<float> values;
    for (const FeatureLayerValues& layer : run.values()) {
      values.insert(values.end(), (layer.*member).begin(), (layer.*member).end());
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, FeatureRunTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

TEST_P(FeatureRunTest, KeepsWhatFiresAndWhatIsLeftOver) {
  const std::int64_t L = model_.config.layers, C = model_.config.width;
  for (const GoldenPrompt& prompt : golden_.prompts) {
    FeatureRun run(model_, transcoder_, {.keep_pre = true, .keep_outputs = true});
    const std::vector<float> logits = Logits(model_, prompt.ids, &run);
    const auto near = [&](const std::vector<float>& found, const char* name) {
      EXPECT_LE(MaxRelativeDifference(found, golden_.Values(prompt.prefix + name)), kTolerance)
          << name;
    };
    near(logits, "logits");
    near(Kept(run, &FeatureLayerValues::pre), "pre");
    near(Kept(run, &FeatureLayerValues::reconstruction), "reconstruction");
    near(Kept(run, &FeatureLayerValues::error), "error");
    std::vector<std::int32_t> features;
    std::vector<float> values, l0;
    for (std::int64_t l = 0; l < L; ++l) {
      const SparseRows& active = run.active()[static_cast<std::size_t>(l)];
      for (std::int64_t t = 0; t < prompt.length; ++t) {
        for (std::int64_t e = active.begin[t]; e < active.begin[t + 1]; ++e) {
          features.insert(features.end(), {static_cast<std::int32_t>(l),
                                           static_cast<std::int32_t>(t), active.column[e]});
          values.push_back(active.value[e]);
        }
      }
      l0.push_back(static_cast<float>(active.size()) / static_cast<float>(prompt.length));
    }
    EXPECT_EQ(features, prompt.features);
    near(values, "values");
    near(l0, "l0");

    // FVU of the errors that were kept, over all positions and without the first.
    for (const std::int64_t first : {0, 1}) {
      std::vector<float> fvu;
      for (std::int64_t l = 0; l < L; ++l) {
        const FeatureLayerValues& v = run.values()[static_cast<std::size_t>(l)];
        double left = 0, spread = 0;
        for (std::int64_t i = 0; i < C; ++i) {
          double mean = 0;
          const auto y = [&](std::int64_t t) {
            return double{v.reconstruction[t * C + i]} + v.error[t * C + i];
          };
          for (std::int64_t t = first; t < prompt.length; ++t) mean += y(t);
          mean /= static_cast<double>(prompt.length - first);
          for (std::int64_t t = first; t < prompt.length; ++t) {
            left += double{v.error[t * C + i]} * v.error[t * C + i];
            spread += (y(t) - mean) * (y(t) - mean);
          }
        }
        fvu.push_back(static_cast<float>(left / spread));
      }
      near(fvu, first == 0 ? "fvu" : "fvu_from1");
    }
  }
}

TEST_P(FeatureRunTest, InterventionsHaveTheirEffects) {
  const GoldenPrompt& prompt = golden_.prompts[0];
  std::vector<FrozenRun> frozen;
  for (const Freeze freeze : {Freeze::kNothing, Freeze::kAttention, Freeze::kAll}) {
    frozen.push_back(KeepForFreezing(model_, transcoder_, prompt.ids, 1, freeze, {}));
  }
  const Json& list = golden_.json["interventions"];
  ASSERT_GE(list.size(), 2u);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string prefix = fmt::format("iv{}.", i);
    const FeatureIntervention intervention = ParseFeatureIntervention(
        transcoder_.config,
        fmt::format("L{}F{}={}@{}", list[i]["layer"].get<int>(), list[i]["feature"].get<int>(),
                    list[i]["value"].get<double>(), list[i]["position"].get<int>()));
    for (std::size_t how = 0; how < 3; ++how) {
      FeatureRun run(model_, transcoder_,
                     {.interventions = {intervention}, .frozen = &frozen[how], .keep_pre = true});
      const std::vector<float> logits = Logits(model_, prompt.ids, &run);
      const char* names[] = {"free.logits", "frozen_attention.logits", "direct.logits"};
      EXPECT_LE(MaxRelativeDifference(logits, golden_.Values(prefix + names[how])), kTolerance)
          << prefix << names[how];
      if (how < 2) continue;
      EXPECT_LE(MaxRelativeDifference(Kept(run, &FeatureLayerValues::pre),
                                      golden_.Values(prefix + "direct.pre")),
                kTolerance);
    }
  }
}

// Frozen everywhere and nothing changed: the run as it was.
TEST_P(FeatureRunTest, FreezingAloneChangesNothing) {
  const GoldenPrompt& prompt = golden_.prompts[1];
  const std::vector<float> own = Logits(model_, prompt.ids, nullptr);
  for (const Freeze freeze : {Freeze::kAttention, Freeze::kAll}) {
    const FrozenRun frozen = KeepForFreezing(model_, transcoder_, prompt.ids, 1, freeze, {});
    FeatureRun run(model_, transcoder_, {.frozen = &frozen});
    EXPECT_LE(MaxRelativeDifference(Logits(model_, prompt.ids, &run), own), 1e-6);
  }
}

TEST_P(FeatureRunTest, ReplacedOutputsAreTheReconstructions) {
  const GoldenPrompt& prompt = golden_.prompts[0];
  const std::vector<float> own = Logits(model_, prompt.ids, nullptr);
  // With errors the model is itself.
  FeatureRun same(model_, transcoder_, {.replaced = all_, .keep_errors = true});
  EXPECT_LE(MaxRelativeDifference(Logits(model_, prompt.ids, &same), own), kTolerance);
  // Without, every MLP writes what its reconstruction is, given what was replaced before.
  std::vector<TapId> taps;
  for (std::int64_t l = 0; l < model_.config.layers; ++l) {
    taps.insert(taps.end(), {{Tap::kMlpOut, l}, {transcoder_.config.reads, l}});
  }
  for (const std::int64_t first : {0, 1, 3}) {
    Recorder recorder(taps, {}, {});
    FeatureRun run(model_, transcoder_, {.replaced = all_, .first_position = first}, &recorder);
    const std::vector<float> replaced = Logits(model_, prompt.ids, &run);
    EXPECT_GT(MaxAbsDifference(replaced, own), 0.1);
    std::vector<SparseRows> active;
    for (std::int64_t l = 0; l < model_.config.layers; ++l) {
      const Buffer<float>& x = recorder.values().at({transcoder_.config.reads, l}).values;
      const Buffer<float>& y = recorder.values().at({Tap::kMlpOut, l}).values;
      active.push_back(Encode(transcoder_, l, prompt.length, x.data()));
      std::vector<float> expected(static_cast<std::size_t>(y.size()));
      Reconstruct(transcoder_, l, prompt.length, active, x.data(), expected.data());
      const auto from = static_cast<std::size_t>(first * model_.config.width);
      EXPECT_LE(MaxAbsDifference(std::span(y.data(), expected.size()).subspan(from),
                                 std::span(expected).subspan(from)),
                0.0);
    }
    if (first == 0) continue;
    // Position 0 sees nothing but itself: its logits stay.
    const auto V = static_cast<std::size_t>(model_.config.vocabulary);
    EXPECT_LE(MaxAbsDifference(std::span(replaced).first(V), std::span(own).first(V)), 1e-5);
  }
}

// One layer replaced leaves the others' MLPs to compute.
TEST_P(FeatureRunTest, OneLayerCanBeReplaced) {
  const GoldenPrompt& prompt = golden_.prompts[0];
  const std::int64_t last = model_.config.layers - 1;
  std::vector<bool> one(all_.size(), false);
  one.back() = true;
  Recorder plain({{Tap::kResidMid, last}}, {}, {}), inner({{Tap::kResidMid, last}}, {}, {});
  FeatureRun run(model_, transcoder_, {.replaced = one, .keep_active = false}, &inner);
  Logits(model_, prompt.ids, &plain);
  Logits(model_, prompt.ids, &run);
  EXPECT_EQ(MaxAbsDifference(plain.values().at({Tap::kResidMid, last}).values.span(),
                             inner.values().at({Tap::kResidMid, last}).values.span()),
            0.0);
  EXPECT_FALSE(run.Wants({Tap::kMlpOut, 0}));
}

TEST(FeatureIntervention, Texts) {
  TranscoderConfig config;
  config.layers = 6;
  config.features = 600;
  const auto parse = [&](const char* text) { return ParseFeatureIntervention(config, text); };
  const FeatureIntervention set = parse("L3F512=4.5@5");
  EXPECT_EQ(set.feature, (FeatureId{3, 512}));
  EXPECT_EQ(set.change, FeatureChange::kSet);
  EXPECT_EQ(set.value, 4.5f);
  EXPECT_TRUE(set.AppliesAt(5));
  EXPECT_FALSE(set.AppliesAt(4) || set.AppliesAt(6));
  const FeatureIntervention off = parse("l0f0*0");
  EXPECT_EQ(off.change, FeatureChange::kScale);
  EXPECT_TRUE(off.AppliesAt(0) && off.AppliesAt(99999));
  const FeatureIntervention most = parse("L1F2<=-2e-1@3-");
  EXPECT_EQ(most.change, FeatureChange::kAtMost);
  EXPECT_TRUE(!most.AppliesAt(2) && most.AppliesAt(3) && most.AppliesAt(99999));
  const FeatureIntervention least = parse("L1F2>=1@2,4-6");
  EXPECT_EQ(least.change, FeatureChange::kAtLeast);
  EXPECT_TRUE(least.AppliesAt(2) && !least.AppliesAt(3) && least.AppliesAt(6));
  for (const char* wrong :
       {"", "L3F5", "L3F5=", "L3F5=x", "L3F5=1@", "L3F5=1@x", "L3F5=1@2-1", "L3F5=1@-2", "L3F5<1",
        "L3F5=1,2", "L3F5=inf", "L3F5=nan", "L3F5=1@2,", "L3F5=1@99999999999999999999"}) {
    EXPECT_THAT([&] { parse(wrong); }, ThrowsMessage<UsageError>(HasSubstr("L3F512=4.0@5")))
        << wrong;
  }
  EXPECT_THAT([&] { parse("L6F0=1"); }, ThrowsMessage<Error>(HasSubstr("L6F0")));
  EXPECT_THAT([&] { CheckFeatureIntervention(set, config, 5); },
              ThrowsMessage<Error>(AllOf(HasSubstr("position 5"), HasSubstr("0 to 4"))));
}

TEST(FeatureIntervention, AppliedInOrder) {
  // Two sequences of two positions; rows of feature -> value.
  const SparseRows start{{0, 2, 2, 3, 4}, {1, 4, 4, 0}, {1.0f, 2.0f, 3.0f, 5.0f}};
  TranscoderConfig config;
  config.layers = 2;
  config.features = 5;
  const auto apply = [&](std::vector<const char*> texts, std::int64_t first) {
    std::vector<FeatureIntervention> list;
    for (const char* text : texts) list.push_back(ParseFeatureIntervention(config, text));
    std::pair<SparseRows, SparseRows> result{start, {}};
    ApplyFeatureInterventions(list, 1, 2, first, result.first, result.second);
    return result;
  };
  {  // on, off and absent, in both sequences
    const auto [active, difference] = apply({"L1F4*0@0", "L1F0=7@0", "L0F1=9"}, 0);
    EXPECT_EQ(active.begin, (std::vector<std::int64_t>{0, 2, 2, 3, 4}));
    EXPECT_EQ(active.column, (std::vector<std::int32_t>{0, 1, 0, 0}));
    EXPECT_EQ(active.value, (std::vector<float>{7, 1, 7, 5}));
    EXPECT_EQ(difference.begin, (std::vector<std::int64_t>{0, 2, 2, 4, 4}));
    EXPECT_EQ(difference.column, (std::vector<std::int32_t>{0, 4, 0, 4}));
    EXPECT_EQ(difference.value, (std::vector<float>{7, -2, 7, -3}));
  }
  {  // one after the other; clamps
    const auto [active, difference] = apply({"L1F4*2", "L1F4<=5", "L1F3>=1@1"}, 0);
    EXPECT_EQ(active.column, (std::vector<std::int32_t>{1, 4, 3, 4, 0, 3}));
    EXPECT_EQ(active.value, (std::vector<float>{1, 4, 1, 5, 5, 1}));
    EXPECT_EQ(difference.value, (std::vector<float>{2, 1, 2, 1}));
  }
  {  // the text goes on
    const auto [active, difference] = apply({"L1F1=8@7"}, 7);
    EXPECT_EQ(active.value, (std::vector<float>{8, 2, 8, 3, 5}));
  }
}

}  // namespace
}  // namespace clearhead
