// SPDX-License-Identifier: MIT
// `clearhead train` as a user meets it: a whole run, Ctrl-C, kill -9, a full disk, bad input.
#include <sys/resource.h>

#include "cli/interrupted_run.h"
#include "cli/program.h"
#include "cli/small_model.h"
#include "support/conditions.h"
#include "support/margin.h"
#include "train/metrics_log.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> TrainArguments(const TemporaryFolder& folder, const std::string& out,
                                        const std::vector<std::string>& more = {}) {
  WriteFile(folder / "text.txt", SmallText());
  std::vector<std::string> arguments = {"train",
                                        "--text",
                                        folder / "text.txt",
                                        "--valid",
                                        folder / "text.txt",
                                        "--vocab",
                                        "290",
                                        "--layers",
                                        "2",
                                        "--heads",
                                        "2",
                                        "--width",
                                        "32",
                                        "--context",
                                        "24",
                                        "--batch",
                                        "4",
                                        "--threads",
                                        "1",
                                        "--out",
                                        folder / out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return UnderConditions(std::move(arguments));
}

std::string ModelBytes(const fs::path& folder) { return ReadFile(folder / "model.safetensors"); }

TEST(TrainCommand, TrainsAModelThatTheOtherCommandsTake) {
  const TemporaryFolder folder;
  const Json json = SucceedJson(
      TrainArguments(folder, "model", {"--steps", "240", "--eval-every", "40", "--lr", "0.01"}));
  EXPECT_EQ(json["steps"], 240);
  // From 5.7 on a text that repeats itself.
  ExpectAtMost("valid-loss", json["valid_loss"].get<double>(), {.limit = 2.5, .stated = 0.5});
  EXPECT_EQ(FilesIn(folder / "model"),
            (std::vector<std::string>{"config.json", "loss.svg", "merges.txt", "metrics.jsonl",
                                      "model.safetensors", "vocab.json"}));
  const auto lines = ReadMetrics(folder / "model/metrics.jsonl");
  ASSERT_EQ(lines.size(), 240u);
  EXPECT_TRUE(lines[39].contains("valid_loss"));
  EXPECT_FALSE(lines[40].contains("valid_loss"));
  ExpectAtLeast("loss-fallen", lines[0]["loss"].get<double>() - lines[239]["loss"].get<double>(),
                {.limit = 2.0, .stated = 0.5});
  const Json eval =
      SucceedJson({"eval", folder / "model", "--text", folder / "text.txt", "--context", "24"});
  EXPECT_NEAR(eval["loss"].get<double>(), json["valid_loss"].get<double>(), 1e-6);
  // It has learned the text's only way on.
  EXPECT_EQ(
      Succeed({"generate", folder / "model", "--prompt", "The cat sat on", "--max-new", "1"}).out,
      "The cat sat on the\n");
}

TEST(TrainCommand, GoesOnFromAnotherModel) {
  const TemporaryFolder folder;
  const Json first =
      SucceedJson(TrainArguments(folder, "model", {"--steps", "60", "--lr", "0.01"}));
  const std::vector<std::string> more = {"train",
                                         "--from",
                                         folder / "model",
                                         "--text",
                                         folder / "text.txt",
                                         "--valid",
                                         folder / "text.txt",
                                         "--batch",
                                         "4",
                                         "--context",
                                         "24",
                                         "--threads",
                                         "1",
                                         "--out",
                                         folder / "more"};
  const auto with = [&](std::vector<std::string> end) {
    end.insert(end.begin(), more.begin(), more.end());
    return UnderConditions(std::move(end));
  };
  const Json second = SucceedJson(with({"--steps", "60", "--lr", "0.01"}));
  EXPECT_EQ(second["parameters"], first["parameters"]);
  ExpectAtMost("loss-ratio", second["valid_loss"].get<double>() / first["valid_loss"].get<double>(),
               {.limit = 1.0, .stated = 0.2});
  // A vanishing rate leaves the model where it was.
  std::vector<std::string> still = with({"--steps", "1", "--lr", "1e-12"});
  *std::find(still.begin(), still.end(), folder / "more") = folder / "still";
  EXPECT_NEAR(SucceedJson(still)["valid_loss"].get<double>(), first["valid_loss"].get<double>(),
              1e-6);
  ExpectFailure(with({"--steps", "1", "--layers", "3"}), 2, {"--from", "--layers"});
}

TEST(TrainCommand, ResumeHoldsARunToTheModelItStartedFrom) {
  const TemporaryFolder folder;
  for (const char* seed : {"1", "2"}) {
    Succeed(TrainArguments(folder, std::string("model") + seed, {"--steps", "2", "--seed", seed}));
  }
  const auto from = [&](const char* model, const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "train",   "--from",  folder / model, "--text", folder / "text.txt",
        "--batch", "4",       "--context",    "24",     "--threads",
        "1",       "--steps", "4000",         "--out",  folder / "out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_EQ(RunAndSignal(from("model1", {}), folder / "out", 3, SIGINT), 130);
  ExpectFailure(from("model2", {"--resume"}), 1, {"start_hash"});
}

TEST(TrainCommand, AnotherRunsFolderIsLeftAlone) {
  const TemporaryFolder folder;
  const std::vector<std::string> words = TrainArguments(folder, "run", {"--steps", "4000"});
  EXPECT_EQ(RunAndSignal(words, folder / "run", 3, SIGINT), 130);
  const std::string metrics = ReadFile(folder / "run/metrics.jsonl"),
                    vocabulary = ReadFile(folder / "run/vocab.json");
  const std::vector<std::string> files = FilesIn(folder / "run");
  ExpectFailure(TrainArguments(folder, "run", {"--steps", "9"}), 1, {"--resume", "another folder"});
  EXPECT_EQ(FilesIn(folder / "run"), files);
  EXPECT_EQ(ReadFile(folder / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(ReadFile(folder / "run/vocab.json"), vocabulary);
}

TEST(TrainCommand, ProductsThatWrapAreRefused) {
  const std::string large = "4294967296";
  ExpectFailure({"train", "--text", "t", "--batch", large, "--accumulate", large, "--tokens",
                 "1000", "--out", "o"},
                1, {"too large", large});
  ExpectFailure({"train", "--dry-run", "--steps", "1", "--batch", "1099511627776", "--context",
                 "1048576", "--width", "262144"},
                1, {"too large"});
  ExpectFailure({"train", "--text", "t", "--batch", "1048576", "--accumulate", "1048576", "--steps",
                 "1099511627776", "--out", "o"},
                1, {"too large"});
}

TEST(TrainCommand, CtrlCSavesAndResumeEndsWithTheSameBytes) {
  const TemporaryFolder folder;
  const std::vector<std::string> length = {"--steps", "400"};
  Succeed(TrainArguments(folder, "whole", length));
  EXPECT_EQ(RunAndSignal(TrainArguments(folder, "part", length), folder / "part", 5, SIGINT), 130);
  EXPECT_FALSE(fs::exists(folder / "part/model.safetensors"));
  Succeed(TrainArguments(folder, "part", {"--steps", "400", "--resume"}));
  EXPECT_EQ(ModelBytes(folder / "part"), ModelBytes(folder / "whole"));
  EXPECT_EQ(FilesIn(folder / "part"), FilesIn(folder / "whole"));
}

TEST(TrainCommand, KillNineLeavesAReadableCheckpoint) {
  const TemporaryFolder folder;
  const std::vector<std::string> length = {"--steps", "400", "--checkpoint-every", "1"};
  Succeed(TrainArguments(folder, "whole", length));
  // Every step writes a checkpoint, so most kills hit the middle of one.
  int lines = 3;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::string> arguments = TrainArguments(folder, "part", length);
    if (round > 0) arguments.push_back("--resume");
    EXPECT_EQ(RunAndSignal(arguments, folder / "part", lines, SIGKILL), 128 + SIGKILL);
    lines += 7;
  }
  Succeed(
      TrainArguments(folder, "part", {"--steps", "400", "--checkpoint-every", "1", "--resume"}));
  EXPECT_EQ(ModelBytes(folder / "part"), ModelBytes(folder / "whole"));
  EXPECT_EQ(FilesIn(folder / "part"), FilesIn(folder / "whole"));
}

TEST(TrainCommand, AFullDiskIsAnErrorNotABrokenFile) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments =
      TrainArguments(folder, "model", {"--steps", "20", "--checkpoint-every", "5"});
  // As a full disk: no file may grow beyond 60 KB, less than a checkpoint needs.
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{60000, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const ProgramRun run = RunProgram(arguments);
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_EQ(run.ErrorLines().size(), 1u) << run.err;
  EXPECT_NE(run.err.find("checkpoint-5.safetensors"), std::string::npos) << run.err;
  for (const std::string& name : FilesIn(folder / "model")) {
    EXPECT_FALSE(name.ends_with(".safetensors") || name.ends_with(".tmp")) << name;
  }
}

TEST(TrainCommand, DryRunPrintsThePlanOfGpt2) {
  const Json plan = SucceedJson({"train", "--dry-run", "--steps", "1", "--layers", "12", "--heads",
                                 "12", "--width", "768", "--vocab", "50257", "--context", "1024",
                                 "--batch", "4", "--recompute", "--precision", "fp32"});
  EXPECT_EQ(plan["parameters"], 124439808);
  EXPECT_LT(plan["total_bytes"].get<double>(), 6e9);
}

TEST(TrainCommand, BadInputIsRefusedBeforeAnyWork) {
  const TemporaryFolder folder;
  WriteFile(folder / "short.txt", "a b");
  WriteFile(folder / "text.txt", SmallText() + SmallText());
  MakeSmallModel(folder / "there");
  const std::string out = folder / "new", text = folder / "short.txt";
  ExpectFailure({"train", "--text", text, "--out", out}, 2, {"--tokens"});
  ExpectFailure({"train", "--steps", "5", "--out", out}, 2, {"--text"});
  ExpectFailure({"train", "--steps", "5", "--text", text}, 2, {"--out"});
  ExpectFailure({"train", "--steps", "5", "--text", folder / "none.txt", "--out", out}, 1,
                {"none.txt"});
  ExpectFailure({"train", "--steps", "5", "--text", text, "--out", out, "--vocab", "257"}, 1,
                {"3 tokens", "257"});
  ExpectFailure({"train", "--steps", "5", "--text", text, "--out", out, "--width", "30"}, 2,
                {"--width 30"});
  ExpectFailure({"train", "--steps", "5", "--text", text, "--out", folder / "there"}, 1,
                {"holds a model"});
  ExpectFailure({"train", "--steps", "5", "--text", text, "--out", out, "--resume"}, 1, {"new"});
  ExpectFailure({"train", "--steps", "5", "--text", folder / "text.txt", "--out", text + "/x"}, 1,
                {"short.txt"});
  ExpectFailure({"train", "--steps", "5", "--text", text, "--out", out, "--tokenizer", "nothing"},
                1, {"nothing"});
  EXPECT_FALSE(fs::exists(fs::path(out) / "model.safetensors"));
}

}  // namespace
}  // namespace clearhead
