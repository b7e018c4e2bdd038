// SPDX-License-Identifier: MIT
// clearhead features eval, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/small_model.h"
#include "features/feature_eval.h"
#include "features/toy_transcoders.h"
#include "features/transcoder_files.h"
#include "model/fingerprint.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

class FeaturesEval : public testing::Test {
 protected:
  FeaturesEval() : model_(MakeSmallModel(folder_ / "m")) {
    WriteFile(folder_ / "text", SmallText());
    transcoder_ = RandomTranscoder(model_.config, TranscoderKind::kCrossLayer, 40, 3);
    transcoder_.config.model_hash = fmt::format("{:016x}", WeightsFingerprint(model_));
    transcoder_.config.first_position = 1;
    SaveTranscoder(transcoder_, folder_ / "clt", DType::kF32);
    SaveTranscoder(RandomTranscoder(model_.config, TranscoderKind::kPerLayer, 24, 4),
                   folder_ / "plt", DType::kBF16);
  }
  std::string at(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> Command(std::vector<std::string> names) const {
    names.insert(names.begin(), {"features", "eval"});
    names.insert(names.end(), {"--text", at("text"), "--context", "16", "--tokens", "100"});
    return names;
  }

  TemporaryFolder folder_;
  Model model_;
  Transcoder transcoder_;
};

TEST_F(FeaturesEval, PrintsWhatTheLibrarySays) {
  const std::vector<std::int32_t> tokens = Tokenizer::Load(folder_ / "m").Encode(SmallText());
  const FeatureEval expected = EvaluateFeatures(model_, LoadTranscoder(folder_ / "clt"), tokens,
                                                {.context = 16, .max_tokens = 100});
  const Json json = SucceedJson(Command({at("m"), at("clt")}));
  EXPECT_EQ(json["schema"], "clearhead.features_eval.1");
  ASSERT_EQ(json["sets"].size(), 1u);
  const Json& set = json["sets"][0];
  EXPECT_EQ(set["kind"], "clt");
  EXPECT_EQ(set["activation"], "jumprelu");
  EXPECT_EQ(set["features_per_layer"], 40);
  EXPECT_EQ(set["tokens"], 100);
  EXPECT_EQ(set["windows"], 7);
  EXPECT_EQ(set["positions"], 93);
  EXPECT_EQ(set["first_position"], 1);
  EXPECT_NEAR(set["loss"].get<double>(), expected.loss, 1e-5);
  EXPECT_NEAR(set["loss_replaced"].get<double>(), expected.loss_replaced, 1e-4);
  EXPECT_NEAR(set["loss_errors_kept"].get<double>(), set["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(set["loss_mean"].get<double>(), expected.loss_mean, 1e-4);
  ASSERT_EQ(set["layers"].size(), 2u);
  EXPECT_NEAR(set["layers"][1]["explained_variance"].get<double>(),
              expected.layers[1].explained_variance,
              1e-4 * std::abs(expected.layers[1].explained_variance));
  EXPECT_NEAR(set["layers"][1]["l0"].get<double>(), expected.layers[1].l0, 0.05);
  std::vector<std::string> all = Command({at("m"), at("clt")});
  all.emplace_back("--all-positions");
  const Json counted = SucceedJson(all);
  EXPECT_EQ(counted["sets"][0]["positions"], 100);
  EXPECT_EQ(counted["sets"][0]["first_position"], 0);
  // Files that leave none out, or more than one.
  EXPECT_EQ(SucceedJson(Command({at("m"), at("plt")}))["sets"][0]["positions"], 100);
  transcoder_.config.first_position = 3;
  SaveTranscoder(transcoder_, folder_ / "late", DType::kF32);
  const Json late = SucceedJson(Command({at("m"), at("late")}));
  EXPECT_EQ(late["sets"][0]["positions"], 100 - 7 * 3);
  EXPECT_EQ(late["sets"][0]["first_position"], 3);
  EXPECT_NE(late["sets"][0]["loss_replaced"], set["loss_replaced"]);
  EXPECT_THAT(Succeed(Command({at("m"), at("late")})).out,
              HasSubstr("the first 3 of a window are left as they are"));
}

TEST_F(FeaturesEval, PeopleSeeATableAndPairsSideBySide) {
  const std::string one = Succeed(Command({at("m"), at("clt")})).out;
  EXPECT_THAT(one, HasSubstr("cross-layer (clt), 2 layers of 40 features, jumprelu"));
  EXPECT_THAT(one, HasSubstr("loss when replaced"));
  EXPECT_THAT(one, HasSubstr("the first of a window is left as it is"));
  const std::string two = Succeed(Command({at("m"), at("clt"), at("m"), at("plt")})).out;
  EXPECT_THAT(two, HasSubstr("per-layer (plt), 2 layers of 24 features"));
  EXPECT_THAT(two, HasSubstr(at("m") + " : " + at("plt")));
  // The pairs of one command are those of two.
  const Json both = SucceedJson(Command({at("m"), at("clt"), at("m"), at("plt")}));
  ASSERT_EQ(both["sets"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? "clt" : "plt";
    Json alone = SucceedJson(Command({at("m"), at(name)}))["sets"][0], set = both["sets"][i];
    for (Json* json : {&alone, &set}) json->erase("seconds");
    EXPECT_EQ(set, alone);
    EXPECT_EQ(set["features"], at(name));
    // In the last lines of the table too, in this order.
    const std::string line = fmt::format("{} : {}", at("m"), at(name));
    const std::size_t place = two.find(line);
    ASSERT_NE(place, std::string::npos);
    EXPECT_THAT(two.substr(place, two.find('\n', place) - place),
                HasSubstr(fmt::format("{:.4f}", set["loss_replaced"].get<double>())));
  }
}

TEST_F(FeaturesEval, RefusesWhatDoesNotFit) {
  ExpectFailure(Command({at("m")}), 2, {"1 names"});
  ExpectFailure(Command({at("m"), at("clt"), at("m")}), 2, {"3 names"});
  ExpectFailure(Command({at("m"), at("absent")}), 1, {"absent"});
  ExpectFailure(Command({at("m"), at("m")}), 1, {"holds no features"});
  ExpectFailure({"features", "eval", at("m"), at("clt")}, 2, {"--text"});
  ExpectFailure({"features", "eval", at("m"), at("clt"), "--text", at("absent")}, 1, {"absent"});
  // Another model of the same shape.
  ModelConfig config = model_.config;
  std::filesystem::copy(folder_ / "m", folder_ / "other");
  SaveModel(LivelyModel(config, 99), folder_ / "other");
  ExpectFailure(Command({at("other"), at("clt")}), 1,
                {transcoder_.config.model_hash, "fingerprint"});
  Succeed(Command({at("other"), at("plt")}));  // does not say what it was made for
  config.layers = 1;
  SaveModel(LivelyModel(config, 99), folder_ / "other");
  ExpectFailure(Command({at("other"), at("plt")}), 1, {"2 layers of width 15", "has 1 of"});
}

}  // namespace
}  // namespace clearhead
