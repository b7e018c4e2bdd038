// SPDX-License-Identifier: MIT
// `clearhead features train` as a user meets it: a whole run, Ctrl-C and --resume, the plan,
// refusals.
#include "cli/interrupted_run.h"
#include "cli/program.h"
#include "cli/small_model.h"
#include "features/transcoder_files.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

struct Place {
  TemporaryFolder folder;
  fs::path model = folder / "model", text = folder / "text.txt";
  Place() {
    MakeSmallModel(model);
    WriteFile(text, SmallText());
  }
  std::vector<std::string> Arguments(const std::string& out,
                                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"features", "train",     model,  "--text",    text,
                                          "--width",  "40",        "--l0", "5",         "--batch",
                                          "200",      "--shuffle", "2",    "--context", "20",
                                          "--out",    folder / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

std::string Weights(const fs::path& folder) {
  std::string all;
  for (const std::string& name : FilesIn(folder)) {
    if (name.ends_with(".safetensors")) all += ReadFile(folder / name);
  }
  return all;
}

TEST(FeaturesTrainCommand, LeavesFeaturesThatFitTheirModel) {
  const Place place;
  const Json json = SucceedJson(place.Arguments(
      "out", {"--steps", "30", "--valid", place.text, "--eval-every", "10", "--lines"}));
  EXPECT_EQ(json["tokens"], 6000);
  EXPECT_EQ(json["unexplained"].size(), 2u);
  EXPECT_EQ(json["measured_on"], "validation");
  const fs::path out = place.folder / "out";
  EXPECT_EQ(FilesIn(out),
            (std::vector<std::string>{"W_dec_0.safetensors", "W_dec_1.safetensors",
                                      "W_enc_0.safetensors", "W_enc_1.safetensors", "config.yaml",
                                      "features.svg", "metrics.jsonl"}));
  const Transcoder features = LoadTranscoder(out);
  CheckFits(features, LoadModel(place.model));
  EXPECT_EQ(features.config.features, 40);
  EXPECT_EQ(features.config.model, "model");
  const std::vector<Json> lines = ReadMetrics(out / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 30u);
  EXPECT_TRUE(lines[9].contains("valid_unexplained"));
  EXPECT_EQ(lines[5]["l0"].size(), 2u);

  // Per layer, in 16 bits.
  SucceedJson(place.Arguments(
      "plt", {"--steps", "3", "--kind", "plt", "--activation", "topk", "--dtype", "bf16"}));
  const Transcoder plt = LoadTranscoder(place.folder / "plt");
  EXPECT_EQ(plt.config.kind, TranscoderKind::kPerLayer);
  EXPECT_EQ(plt.config.k, 5);
}

TEST(FeaturesTrainCommand, GoesOnAfterAnInterruptAsIfNothingHadHappened) {
  const Place place;
  Succeed(place.Arguments("whole", {"--steps", "120"}));
  const fs::path stopped = place.folder / "stopped";
  EXPECT_EQ(RunAndSignal(place.Arguments("stopped", {"--steps", "120"}), stopped, 5, SIGINT), 130);
  EXPECT_FALSE(fs::exists(stopped / "config.yaml"));
  ExpectFailure(place.Arguments("stopped", {"--steps", "120"}), 1, {"stopped", "--resume"});
  ExpectFailure(place.Arguments("stopped", {"--steps", "120", "--resume", "--lr", "0.5"}), 1,
                {"lr", "0.5"});
  Succeed(place.Arguments("stopped", {"--steps", "120", "--resume"}));
  EXPECT_EQ(Weights(stopped) == Weights(place.folder / "whole"), true);
  ExpectFailure(place.Arguments("stopped", {"--steps", "120"}), 1, {"holds features already"});
}

TEST(FeaturesTrainCommand, PlansBeforeItRuns) {
  const Place place;
  const Json plan = SucceedJson(place.Arguments("none", {"--steps", "7", "--dry-run"}));
  EXPECT_EQ(plan["tokens"], 1400);
  EXPECT_GT(plan["total_bytes"].get<std::int64_t>(), 0);
  EXPECT_FALSE(fs::exists(place.folder / "none"));
}

TEST(FeaturesTrainCommand, RefusesInOneLine) {
  const Place place;
  ExpectFailure(place.Arguments("a"), 2, {"--tokens", "--steps"});
  ExpectFailure(place.Arguments("a", {"--steps", "2", "--activation", "topk"}), 1, {"per-layer"});
  ExpectFailure(place.Arguments("a", {"--steps", "2", "--kind", "xlt"}), 2, {"--kind"});
  ExpectFailure({"features", "train", place.model, "--text", place.text, "--steps", "1",
                 "--context", "49", "--out", place.folder / "a"},
                1, {"49", "48"});
  ExpectFailure({"features", "train", place.model, "--text", place.folder / "no.txt", "--steps",
                 "1", "--out", place.folder / "a"},
                1, {"no.txt"});
}

}  // namespace
}  // namespace clearhead
