// SPDX-License-Identifier: MIT
// The index of features against a slow second look at all activations; and that neither slices nor
// threads nor stops change a byte of it.
#include "features/build_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "features/feature_testing.h"
#include "model/head_weights.h"
#include "support/temporary_folder.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kContext = 11;

// Windows of 11 tokens, three to a group, and a shorter one at the end.
BuildIndexOptions SmallOptions() { return {.context = kContext, .batch_tokens = 3 * kContext}; }

// Every activation of the text, [layer][position][feature], position 0 of windows zeroed.
std::vector<std::vector<std::vector<float>>> AllActivations(const Model& model,
                                                            const Transcoder& transcoder,
                                                            const std::vector<std::int32_t>& ids) {
  const std::int64_t F = transcoder.config.features;
  const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
  std::vector<std::vector<std::vector<float>>> all(
      static_cast<std::size_t>(transcoder.config.layers),
      std::vector<std::vector<float>>(static_cast<std::size_t>(inputs),
                                      std::vector<float>(static_cast<std::size_t>(F))));
  for (std::int64_t start = 0; start < inputs; start += kContext) {
    const std::int64_t T = std::min(kContext, inputs - start);
    const std::vector<std::int32_t> window(ids.begin() + start, ids.begin() + start + T);
    RunOptions options;
    for (std::int64_t l = 0; l < transcoder.config.layers; ++l) {
      options.taps.push_back({transcoder.config.reads, l});
    }
    const ModelRun run = RunModel(model, window, 1, options);
    for (std::int64_t l = 0; l < transcoder.config.layers; ++l) {
      const SparseRows active =
          Encode(transcoder, l, T, run.taps.at({transcoder.config.reads, l}).values.data());
      for (std::int64_t t = 1; t < T; ++t) {
        for (std::int64_t e = active.begin[t]; e < active.begin[t + 1]; ++e) {
          all[static_cast<std::size_t>(l)][static_cast<std::size_t>(start + t)]
             [static_cast<std::size_t>(active.column[e])] = active.value[e];
        }
      }
    }
  }
  return all;
}

struct Case {
  Model model;
  Transcoder transcoder;
  std::vector<std::int32_t> ids;
};

Case MakeCase(const ModelConfig& config, const RandomTranscoderShape& shape = {}) {
  Case c{
      .model = LivelyModel(config), .transcoder = {}, .ids = UnevenText(config.vocabulary, 600, 3)};
  c.transcoder = RandomTranscoder(c.model, shape);
  return c;
}

std::string BytesOf(const fs::path& folder) { return ReadFile(folder / kIndexFileName); }

// Counts, mean, maximum and bins are those of all activations; the strongest examples are the
// strongest windows, and every activation that an example shows is the true one.
void ExpectTrue(const Case& c, const FeatureIndex& index) {
  const auto all = AllActivations(c.model, c.transcoder, c.ids);
  EXPECT_EQ(index.info().tokens, 599 - (599 + kContext - 1) / kContext);
  std::int64_t firing = 0, examples = 0;
  for (std::int64_t l = 0; l < index.info().layers; ++l) {
    for (std::int64_t f = 0; f < index.info().features; ++f) {
      SCOPED_TRACE(ToText(FeatureId{l, f}));
      const FeatureFacts facts = index.Read({l, f});
      std::vector<std::pair<float, std::int64_t>> fires;
      std::map<std::int64_t, float> peaks;  // of windows
      for (std::size_t p = 0; p < all[0].size(); ++p) {
        const float value = all[static_cast<std::size_t>(l)][p][static_cast<std::size_t>(f)];
        if (value == 0.0f) continue;
        fires.emplace_back(value, p);
        float& peak =
            peaks.try_emplace(static_cast<std::int64_t>(p) / kContext, value).first->second;
        peak = std::max(peak, value);
      }
      ASSERT_EQ(facts.fired, static_cast<std::int64_t>(fires.size()));
      EXPECT_EQ(facts.label.kind == LabelKind::kNone, fires.empty());
      if (fires.empty()) {
        EXPECT_TRUE(facts.examples.empty());
        continue;
      }
      ++firing;
      double sum = 0.0;
      float largest = fires[0].first;
      std::array<std::uint32_t, kHistogramBins> bins = {};
      for (const auto& [value, p] : fires) {
        sum += value;
        largest = std::max(largest, value);
        ++bins[static_cast<std::size_t>(std::max(value, 0.0f) / facts.bin_width)];
      }
      EXPECT_NEAR(facts.mean, sum / static_cast<double>(fires.size()), 1e-5 * std::abs(largest));
      EXPECT_NEAR(facts.largest, largest, 1e-5 * std::abs(largest));
      std::uint32_t counted = 0;
      for (std::size_t bin = 0; bin < bins.size(); ++bin) {
        EXPECT_NEAR(facts.histogram[bin], bins[bin], 1);  // a value at an edge
        counted += facts.histogram[bin];
      }
      EXPECT_EQ(counted, fires.size());
      EXPECT_GE(facts.bin_width * kHistogramBins, largest);
      if (largest > 0.0f) {
        EXPECT_LE(facts.bin_width * kHistogramBins, 2.01f * largest);
      }

      std::vector<float> strongest;
      for (const auto& [window, peak] : peaks) strongest.push_back(peak);
      std::sort(strongest.begin(), strongest.end(), std::greater<>());
      std::size_t tops = 0;
      ASSERT_FALSE(facts.examples.empty());
      for (const FeatureExample& example : facts.examples) {
        ++examples;
        ASSERT_EQ(example.tokens.size(), example.activations.size());
        const float value = example.activations[static_cast<std::size_t>(example.peak)];
        if (example.group == ExampleGroup::kTop) {
          // Windows of equal text count once, so an example may be weaker than its rank.
          EXPECT_LE(value, strongest[tops] + 1e-5f * std::abs(largest));
          if (tops == 0) {
            EXPECT_NEAR(value, largest, 1e-5 * std::abs(largest));
          }
          ++tops;
        }
        // The example is somewhere in the text, with just these activations.
        bool found = false;
        for (std::size_t p = 0; p + example.tokens.size() <= all[0].size() && !found; ++p) {
          found = std::equal(example.tokens.begin(), example.tokens.end(),
                             c.ids.begin() + static_cast<std::int64_t>(p));
          for (std::size_t i = 0; i < example.tokens.size() && found; ++i) {
            const float there =
                all[static_cast<std::size_t>(l)][p + i][static_cast<std::size_t>(f)];
            found = std::abs(there - example.activations[i]) <= 1e-5f * std::abs(largest);
          }
        }
        EXPECT_TRUE(found);
      }
      EXPECT_GE(tops, std::min<std::size_t>(strongest.size(), 1));
    }
  }
  EXPECT_GT(firing, index.info().layers * index.info().features / 2);
  EXPECT_GT(examples, 4 * firing);
}

TEST(BuildIndex, IsWhatASecondLookFinds) {
  std::vector<Case> cases;
  cases.push_back(MakeCase(OddConfig()));
  cases.push_back(MakeCase(
      GatedConfig(), {.kind = TranscoderKind::kPerLayer, .activation = FeatureActivation::kRelu}));
  cases.push_back(MakeCase(FamilyConfig("llama", false), {.activation = FeatureActivation::kTopK}));
  cases.push_back(MakeCase(FamilyConfig("olmo2", false)));
  for (const Case& c : cases) {
    SCOPED_TRACE(NameOf(c.model.config));
    const TemporaryFolder folder;
    const BuiltIndex built =
        BuildIndex(c.model, c.transcoder, c.ids, SmallOptions(), folder.path());
    EXPECT_TRUE(built.finished);
    EXPECT_EQ(built.slices, 1);
    const FeatureIndex index(folder.path());
    EXPECT_EQ(static_cast<std::uintmax_t>(built.bytes), fs::file_size(folder / kIndexFileName));
    index.CheckBelongsTo(c.transcoder);
    ExpectTrue(c, index);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);  // nothing left over
  }
}

// A share that a label states is that of the odd groups' places, counted one by one.
TEST(BuildIndex, LabelsStateTrueShares) {
  const Case c = MakeCase(OddConfig());
  const TemporaryFolder folder;
  BuildIndex(c.model, c.transcoder, c.ids, SmallOptions(), folder.path());
  const FeatureIndex index(folder.path());
  const auto all = AllActivations(c.model, c.transcoder, c.ids);
  std::int64_t reliable = 0, longer = 0;
  for (std::int64_t l = 0; l < index.info().layers; ++l) {
    for (std::int64_t f = 0; f < index.info().features; ++f) {
      const FeatureLabel label = index.Label({l, f});
      for (const LabelPattern& pattern : label.patterns) {
        std::int64_t seen = 0, fired = 0;
        for (std::size_t p = 0; p < all[0].size(); ++p) {
          const auto position = static_cast<std::int64_t>(p);
          const std::int64_t window = position / kContext, start = window * kContext;
          if (window / 3 % 2 == 0 || position == start) continue;
          if (position - start + 1 < pattern.pattern.length) continue;
          bool ends = true;
          for (int d = 0; d < pattern.pattern.length; ++d) {
            ends = ends && c.ids[p - static_cast<std::size_t>(d)] == pattern.pattern.FromEnd(d);
          }
          if (!ends) continue;
          ++seen;
          if (all[static_cast<std::size_t>(l)][p][static_cast<std::size_t>(f)] != 0.0f) ++fired;
        }
        EXPECT_EQ(pattern.seen, seen);
        EXPECT_EQ(pattern.fired, fired);
        if (label.kind == LabelKind::kFires) {
          EXPECT_GE(5 * fired, 4 * seen);
        }
        longer += pattern.pattern.length > 1 ? 1 : 0;
      }
      reliable += label.kind == LabelKind::kFires ? 1 : 0;
    }
  }
  EXPECT_GT(reliable, 10);
  EXPECT_GT(longer, 0);
}

// From weights alone, against loops in double.
TEST(FeatureTokensTest, AreThoseOfALoop) {
  for (const ModelConfig& config :
       {OddConfig(), FamilyConfig("llama", false), FamilyConfig("olmo2", false)}) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const Transcoder transcoder = RandomTranscoder(model);
    const std::int64_t C = config.width, V = config.vocabulary;
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const std::vector<FeatureTokens> lists = TokensOfFeatures(model, transcoder, l, 2, 9);
      ASSERT_EQ(lists.size(), 9u);
      for (std::int64_t f = 2; f < 11; ++f) {
        std::vector<float> row(static_cast<std::size_t>(C));
        std::vector<double> written(static_cast<std::size_t>(C));
        for (std::int64_t t = l; t < config.layers; ++t) {
          DecoderRow(transcoder, l, f, t, row.data());
          for (std::size_t i = 0; i < row.size(); ++i) written[i] += row[i];
        }
        const Norm final_norm = FinalNormOf(model);
        double mean = 0.0;
        for (const double value : written) mean += value / static_cast<double>(C);
        for (std::size_t i = 0; i < written.size(); ++i) {
          if (final_norm.kind == NormKind::kLayer) written[i] -= mean;
          if (final_norm.weight != nullptr) written[i] *= final_norm.weight[i];
        }
        EncoderRow(transcoder, l, f, row.data());
        std::vector<double> logits, excited;
        double mean_logit = 0.0;
        for (std::int64_t v = 0; v < V; ++v) {
          const std::vector<float> column = OutputRow(model, static_cast<std::int32_t>(v));
          double logit = 0.0;
          for (std::size_t i = 0; i < column.size(); ++i) logit += written[i] * column[i];
          logits.push_back(logit);
          mean_logit += logit / static_cast<double>(V);
          std::vector<float> x(static_cast<std::size_t>(C)), normed(x.size());
          model.weights(Role::kTokenEmbedding).CopyTo(v * C, C, x.data());
          float ignored[2];
          if (transcoder.config.reads == Tap::kLn2Normalized) {
            NormForward(LayersOf(model, l).mlp_norm, 1, x.data(), normed.data(), ignored,
                        ignored + 1);
            x = normed;
          }
          double pre = transcoder.layers[static_cast<std::size_t>(l)].encoder.bias[f];
          for (std::size_t i = 0; i < x.size(); ++i) pre += double{x[i]} * row[i];
          excited.push_back(pre);
        }
        const FeatureTokens& list = lists[static_cast<std::size_t>(f - 2)];
        std::vector<double> sorted = logits;
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        std::vector<double> by_excitement = excited;
        std::sort(by_excitement.begin(), by_excitement.end(), std::greater<>());
        for (std::size_t k = 0; k < kListedTokens; ++k) {
          const auto at = [](const std::vector<double>& values, const TokenScore& score) {
            return values[static_cast<std::size_t>(score.token)];
          };
          EXPECT_NEAR(list.promoted[k].score, sorted[k] - mean_logit, 1e-4);
          EXPECT_NEAR(list.promoted[k].score, at(logits, list.promoted[k]) - mean_logit, 1e-4);
          EXPECT_NEAR(list.suppressed[k].score, sorted[sorted.size() - 1 - k] - mean_logit, 1e-4);
          EXPECT_NEAR(list.suppressed[k].score, at(logits, list.suppressed[k]) - mean_logit, 1e-4);
          EXPECT_NEAR(list.exciting[k].score, by_excitement[k], 1e-4);
          EXPECT_NEAR(list.exciting[k].score, at(excited, list.exciting[k]), 1e-4);
        }
      }
    }
  }
}

// The model is small enough for products on one thread: their bits are then the same for any
// number of threads, and so must everything else be.
TEST(BuildIndex, NeitherThreadsNorSlicesNorStopsChangeIt) {
  for (const FeatureActivation activation :
       {FeatureActivation::kJumpRelu, FeatureActivation::kTopK}) {
    const Case c = MakeCase(OddConfig(), {.activation = activation});
    std::string whole;
    for (const int threads : {1, 2, 5}) {
      const UseThreads use(threads);
      const TemporaryFolder folder;
      BuildIndex(c.model, c.transcoder, c.ids, SmallOptions(), folder.path());
      if (whole.empty()) whole = BytesOf(folder.path());
      EXPECT_EQ(BytesOf(folder.path()), whole) << threads;
    }
    for (const std::int64_t features : {30, 37, 61}) {  // of 74: inside layers and across
      BuildIndexOptions options = SmallOptions();
      options.memory = features * TallyBytes();
      const TemporaryFolder folder;
      const BuiltIndex built = BuildIndex(c.model, c.transcoder, c.ids, options, folder.path());
      EXPECT_EQ(built.slices, (74 + features - 1) / features);
      const FeatureIndex index(folder.path());
      ExpectTrue(c, index);
      EXPECT_EQ(BytesOf(folder.path()), whole) << features;
    }
    // Stopped after every second group, again and again.
    const TemporaryFolder folder;
    BuildIndexOptions options = SmallOptions();
    options.memory = 40 * TallyBytes();
    int asked = 0, runs = 0;
    options.should_stop = [&] { return ++asked % 3 == 0; };
    while (!BuildIndex(c.model, c.transcoder, c.ids, options, folder.path()).finished) {
      options.resume = true;
      ASSERT_LT(++runs, 100);
    }
    EXPECT_GT(runs, 5);
    EXPECT_EQ(BytesOf(folder.path()), whole);
  }
}

// Text that is not to be quoted counts as any other, but is not in the file.
TEST(BuildIndex, SomeTextIsNotQuoted) {
  Case c = MakeCase(OddConfig());
  const std::int32_t V = static_cast<std::int32_t>(c.model.config.vocabulary);
  // Tokens of the second part are none of the first: the first third of the vocabulary.
  constexpr std::size_t kQuoted = 300;
  for (std::size_t i = 0; i < c.ids.size(); ++i) {
    c.ids[i] = i < kQuoted ? c.ids[i] % (V / 3) : V / 3 + c.ids[i] % (V - V / 3);
  }
  BuildIndexOptions options = SmallOptions();
  const TemporaryFolder all, some;
  BuildIndex(c.model, c.transcoder, c.ids, options, all.path());
  options.quotable = kQuoted;
  BuildIndex(c.model, c.transcoder, c.ids, options, some.path());
  const FeatureIndex whole(all.path()), part(some.path());
  const SafetensorsFile file(some / kIndexFileName);
  for (const std::byte* id = file.Get("tokens").bytes.data();
       id < file.Get("tokens").bytes.data() + file.Get("tokens").bytes.size(); id += 2) {
    EXPECT_LT(std::to_integer<int>(id[0]) + 256 * std::to_integer<int>(id[1]), V / 3);
  }
  std::int64_t examples = 0, without = 0;
  for (std::int64_t i = 0; i < 74; ++i) {
    const FeatureFacts a = whole.Read({i / 37, i % 37}), b = part.Read({i / 37, i % 37});
    EXPECT_EQ(a.fired, b.fired);
    EXPECT_EQ(a.histogram, b.histogram);
    EXPECT_EQ(a.label.kind, b.label.kind);
    ASSERT_EQ(a.label.patterns.size(), b.label.patterns.size());
    for (std::size_t p = 0; p < a.label.patterns.size(); ++p) {
      EXPECT_EQ(a.label.patterns[p].pattern, b.label.patterns[p].pattern);
    }
    examples += static_cast<std::int64_t>(b.examples.size());
    without += b.fired > 0 && b.examples.size() < a.examples.size() ? 1 : 0;
  }
  EXPECT_GT(examples, 50);
  EXPECT_GT(without, 5);
}

TEST(BuildIndex, RefusesOtherRunsAndModels) {
  const Case c = MakeCase(OddConfig());
  const TemporaryFolder folder;
  BuildIndexOptions options = SmallOptions();
  const auto build = [&] {
    return BuildIndex(c.model, c.transcoder, c.ids, options, folder.path());
  };
  options.resume = true;
  EXPECT_THAT(build, ThrowsMessage<Error>(HasSubstr("leave out --resume")));
  options.resume = false;
  options.should_stop = [] { return true; };
  EXPECT_FALSE(build().finished);
  EXPECT_THAT(build, ThrowsMessage<Error>(HasSubstr("go on with --resume")));
  options.resume = true;
  options.should_stop = {};
  options.context = 9;
  EXPECT_THAT(build, ThrowsMessage<Error>(HasSubstr("other features, text or options")));
  options.context = kContext;
  EXPECT_TRUE(build().finished);
  EXPECT_THAT(build, ThrowsMessage<Error>(HasSubstr("holds an index already")));
  const TemporaryFolder other;
  const Model another = LivelyModel(OddConfig(), 2);
  EXPECT_THAT([&] { BuildIndex(another, c.transcoder, c.ids, SmallOptions(), other.path()); },
              ThrowsMessage<Error>(HasSubstr("fingerprint")));
  const FeatureIndex index(folder.path());
  EXPECT_THAT([&] { index.CheckBelongsTo(RandomTranscoder(c.model, {}, 6)); },
              ThrowsMessage<Error>(HasSubstr("fingerprint")));
  EXPECT_THAT([&] { index.CheckBelongsTo(RandomTranscoder(c.model, {.features = 38})); },
              ThrowsMessage<Error>(AllOf(HasSubstr("2 x 37"), HasSubstr("2 x 38"))));
}

// One window has no second half: features have no reliable label, but everything else.
TEST(BuildIndex, ShortTextsWork) {
  const Case c = MakeCase(OddConfig());
  const TemporaryFolder folder;
  const std::vector<std::int32_t> few(c.ids.begin(), c.ids.begin() + 8);
  BuildIndex(c.model, c.transcoder, few, {}, folder.path());
  const FeatureIndex index(folder.path());
  EXPECT_EQ(index.info().tokens, 6);
  std::int64_t mostly = 0;
  for (std::int64_t f = 0; f < 37; ++f) {
    const FeatureFacts facts = index.Read({0, f});
    EXPECT_NE(facts.label.kind, LabelKind::kFires);
    if (facts.fired > 0) {
      ++mostly;
      EXPECT_EQ(facts.label.kind, LabelKind::kMostly);
      EXPECT_EQ(facts.label.seen(), 0);
    }
  }
  EXPECT_GT(mostly, 5);
}

}  // namespace
}  // namespace clearhead
