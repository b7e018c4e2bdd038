// SPDX-License-Identifier: MIT
// capture and generate with features, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cli/program.h"
#include "cli/small_model.h"
#include "features/golden_features.h"
#include "features/toy_transcoders.h"
#include "features/transcoder_files.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

std::vector<std::int32_t> Whole(const std::filesystem::path& file, const std::string& tensor) {
  const SafetensorsFile opened(file);
  const TensorEntry& entry = opened.Get(tensor);
  EXPECT_EQ(entry.dtype, DType::kI32);
  std::vector<std::int32_t> values(static_cast<std::size_t>(entry.size()));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

std::vector<std::string> Tensors(const std::filesystem::path& file) {
  std::vector<std::string> names;
  const SafetensorsFile opened(file);
  for (const TensorEntry& entry : opened.tensors()) names.push_back(entry.name);
  return names;
}

class FeaturesCapture : public testing::TestWithParam<std::string> {
 protected:
  FeatureCase golden_ = ReadFeatureCase(GetParam());
  TemporaryFolder folder_;

  std::vector<std::string> Command(std::vector<std::string> more) const {
    std::vector<std::string> words = {"capture",    golden_.model.string(),
                                      "--ids",      IdList(golden_.prompts[0].ids),
                                      "--features", GoldenTranscoder(golden_.name).string(),
                                      "--out",      folder_ / "run"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::map<std::string, GoldenTensor> Read() const { return ReadGolden(folder_ / "run"); }
};
INSTANTIATE_TEST_SUITE_P(Cases, FeaturesCapture,
                         testing::Values("gated-clt-jumprelu", "dense-plt-skip"),
                         [](const auto& info) { return PlainName(info.param); });

TEST_P(FeaturesCapture, WritesWhatFires) {
  const GoldenPrompt& prompt = golden_.prompts[0];
  const Json json = SucceedJson(Command({"--taps", "features.*,blocks.1.hook_mlp_out"}));
  const std::vector<std::int32_t> active = Whole(folder_ / "run", "features.active");
  ASSERT_EQ(active.size() / 4, prompt.features.size() / 3);
  EXPECT_EQ(json["active_features"], active.size() / 4);
  for (std::size_t n = 0; n < active.size() / 4; ++n) {
    EXPECT_EQ(active[4 * n], 0);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(active[4 * n + 1 + i], prompt.features[3 * n + i]);
  }
  const auto run = Read();
  EXPECT_LE(MaxRelativeDifference(run.at("features.values").values, golden_.Values("p0.values")),
            1e-5);
  for (const char* what : {"pre", "reconstruction", "error"}) {
    std::vector<float> all;
    for (int l = 0; run.contains(fmt::format("features.{}.{}", l, what)); ++l) {
      const GoldenTensor& layer = run.at(fmt::format("features.{}.{}", l, what));
      EXPECT_EQ(layer.shape[0], 1);
      EXPECT_EQ(layer.shape[1], prompt.length);
      all.insert(all.end(), layer.values.begin(), layer.values.end());
    }
    EXPECT_LE(MaxRelativeDifference(all, golden_.Values(std::string("p0.") + what)), 1e-5) << what;
  }
  // One layer's error and its reconstruction make up the MLP's output.
  const auto& mlp_out = run.at("blocks.1.hook_mlp_out").values;
  for (std::size_t i = 0; i < mlp_out.size(); i += 7) {
    EXPECT_NEAR(
        mlp_out[i],
        run.at("features.1.reconstruction").values[i] + run.at("features.1.error").values[i], 1e-5);
  }
}

TEST_P(FeaturesCapture, TapsAreChosenByName) {
  Succeed(Command({}));
  EXPECT_THAT(Tensors(folder_ / "run"),
              testing::ElementsAre("ids", "logits", "features.active", "features.values"));
  Succeed(Command({"--taps", "features.1.error"}));
  EXPECT_THAT(Tensors(folder_ / "run"),
              testing::ElementsAre("ids", "logits", "features.active", "features.values",
                                   "features.1.error"));
  Succeed(Command({"--taps", "all", "--gradients"}));
  EXPECT_THAT(Tensors(folder_ / "run"),
              testing::IsSupersetOf({"features.0.pre", "grad.blocks.0.hook_mlp_out"}));
  ExpectFailure(Command({"--taps", "features.9.pre"}), 1, {"'features.9.pre'", "features.0.pre"});
}

TEST_P(FeaturesCapture, ChangesFeatures) {
  const Json& change = golden_.json["interventions"][1];
  const std::string feature =
      fmt::format("L{}F{}={}@{}", change["layer"].get<int>(), change["feature"].get<int>(),
                  change["value"].get<double>(), change["position"].get<int>());
  const std::pair<const char*, const char*> ways[] = {
      {"none", "free"}, {"attention", "frozen_attention"}, {"all", "direct"}};
  for (const auto& [freeze, name] : ways) {
    Succeed(Command({"--feature", feature, "--freeze", freeze}));
    EXPECT_LE(MaxRelativeDifference(Read().at("logits").values,
                                    golden_.Values(fmt::format("iv1.{}.logits", name))),
              1e-5)
        << name;
  }
  // The list shows the value that was set.
  const std::vector<std::int32_t> active = Whole(folder_ / "run", "features.active");
  bool found = false;
  for (std::size_t n = 0; n < active.size() / 4; ++n) {
    if (active[4 * n + 1] != change["layer"] || active[4 * n + 2] != change["position"] ||
        active[4 * n + 3] != change["feature"]) {
      continue;
    }
    found = true;
    EXPECT_NEAR(Read().at("features.values").values[n], change["value"].get<double>(), 1e-5);
  }
  EXPECT_TRUE(found);
}

TEST_P(FeaturesCapture, RefusesWhatItCannotDo) {
  ExpectFailure(Command({"--feature", "L0F1"}), 2, {"'L0F1'", "L3F512=4.0@5"});
  ExpectFailure(Command({"--feature", "L0F999=1"}), 1, {"L0F999"});
  ExpectFailure(Command({"--feature", "L0F1=1@99"}), 1, {"position 99"});
  ExpectFailure(Command({"--feature", "L0F1=1", "--gradients"}), 1, {"gradients"});
  ExpectFailure(Command({"--freeze", "norms"}), 2, {"norms"});
  const std::string ids = IdList(golden_.prompts[0].ids), model = golden_.model.string();
  ExpectFailure({"capture", model, "--ids", ids, "--out", folder_ / "x", "--feature", "L0F1=1"}, 2,
                {"--features"});
  ExpectFailure({"capture", model, "--ids", ids, "--out", folder_ / "x", "--freeze", "all"}, 2,
                {"--features"});
  ExpectFailure(
      {"capture", model, "--ids", ids, "--out", folder_ / "x", "--taps", "features.0.pre"}, 1,
      {"'features.0.pre'"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST(FeaturesCaptureBatch, SequencesComeFirst) {
  const FeatureCase golden = ReadFeatureCase("gated-clt-jumprelu");
  const TemporaryFolder folder;
  const std::vector<std::int32_t>& ids = golden.prompts[0].ids;
  WriteJsonFile(folder / "ids.json", Json::array({ids, ids}));
  Succeed({"capture", golden.model.string(), "--ids-file", folder / "ids.json", "--features",
           GoldenTranscoder(golden.name).string(), "--out", folder / "run"});
  const std::vector<std::int32_t> active = Whole(folder / "run", "features.active");
  const std::size_t half = golden.prompts[0].features.size() / 3;
  ASSERT_EQ(active.size(), 8 * half);
  for (std::size_t n = 0; n < half; ++n) {
    EXPECT_EQ(active[4 * n], 0);
    EXPECT_EQ(active[4 * (n + half)], 1);
    EXPECT_EQ(active[4 * n + 3], active[4 * (n + half) + 3]);
  }
}

// Token by token with cached keys and values is the whole text anew each time.
TEST(FeaturesGenerate, GoesOnWithTheText) {
  const TemporaryFolder folder;
  const Model model = MakeSmallModel(folder / "m", /*gated=*/true);
  SaveTranscoder(RandomTranscoder(model.config, TranscoderKind::kCrossLayer, 40, 3), folder / "f",
                 DType::kF32);
  const std::vector<std::string> changes = {"--feature", "L0F3=9@2-", "--feature", "L1F7>=6@1,6"};
  const std::vector<std::int32_t> prompt = {5, 260, 17, 80};
  std::vector<std::string> command = {"generate",   folder / "m", "--ids",     IdList(prompt),
                                      "--features", folder / "f", "--max-new", "6"};
  command.insert(command.end(), changes.begin(), changes.end());
  const auto ids = SucceedJson(command)["ids"].get<std::vector<std::int32_t>>();
  const auto plain =
      SucceedJson({"generate", folder / "m", "--ids", IdList(prompt), "--max-new", "6"})["ids"]
          .get<std::vector<std::int32_t>>();
  EXPECT_NE(ids, plain);
  ASSERT_EQ(ids.size(), 10u);
  for (std::size_t length = prompt.size(); length < ids.size(); ++length) {
    std::vector<std::string> capture = {
        "capture",    folder / "m", "--ids", IdList(std::span(ids).first(length)),
        "--features", folder / "f", "--out", folder / "run"};
    // Positions that the text has not reached yet are not named.
    capture.insert(capture.end(),
                   {"--feature", changes[1], "--feature", length > 6 ? changes[3] : "L1F7>=6@1"});
    Succeed(capture);
    const GoldenTensor logits = ReadGolden(folder / "run").at("logits");
    const auto V = logits.shape[2];
    const auto last = logits.values.end() - V;
    EXPECT_EQ(std::max_element(last, logits.values.end()) - last, ids[length]) << length;
  }
  ExpectFailure({"generate", folder / "m", "--ids", "1,2", "--features", folder / "f"}, 2,
                {"--feature"});
  ExpectFailure({"generate", folder / "m", "--ids", "1,2", "--feature", "L0F1=1"}, 2,
                {"--features"});
}

}  // namespace
}  // namespace clearhead
