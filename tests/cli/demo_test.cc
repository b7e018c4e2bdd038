// SPDX-License-Identifier: MIT
// `clearhead demo`, with small models in the place of those that ship.
#include <gmock/gmock.h>

#include "cli/interrupted_run.h"
#include "cli/task_model.h"
#include "support/conditions.h"
#include "support/margin.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

// An adder with random weights: what training teaches it in the demo brings its loss below that of
// the dense model, so that a sparse one is kept.
void MakeAdder(const fs::path& folder) {
  const std::vector<std::string_view> texts = {"12+34=046\n"};
  const Tokenizer tokenizer = TrainBpe(texts, {.vocabulary_size = 257});
  ModelConfig config;
  config.layers = 1;
  config.heads = 2;
  config.width = 16;
  config.inner = 24;
  config.positions = 20;
  config.vocabulary = tokenizer.vocabulary_size();
  SaveModel(RandomModel(config, 5), folder);
  tokenizer.Save(folder);
}

class DemoCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    MakeAdder(*folder_ / "models/addition");
    MakeTaskModel(*folder_ / "models/tale");
    MakeTaskModel(*folder_ / "models/tale-sparse", AttentionKind::kGated);
    ::setenv("CLEARHEAD_MODELS", (*folder_ / "models").c_str(), 1);
  }
  static void TearDownTestSuite() {
    ::unsetenv("CLEARHEAD_MODELS");
    delete folder_;
    folder_ = nullptr;
  }
  static TemporaryFolder* folder_;
};
TemporaryFolder* DemoCommand::folder_ = nullptr;

TEST_F(DemoCommand, ShowsItsCommandsAndWritesItsFiles) {
  const TemporaryFolder here;
  fs::create_directories(here / "clearhead-demo/addition-sparse");
  WriteFile(here / "clearhead-demo/addition-sparse/model.safetensors", "of an earlier demo");
  WriteFile(here / "clearhead-demo/.clearhead-demo", "");
  WriteFile(here / "clearhead-demo/mine.txt", "not the demo's");
  const ProgramRun run = Succeed({"demo"}, {.folder = here.path()});
  EXPECT_EQ(ReadFile(here / "clearhead-demo/mine.txt"), "not the demo's");
  EXPECT_THAT(FilesIn(here / "clearhead-demo"),
              AllOf(IsSupersetOf({"addition-sparse/config.json", "addition-sparse/metrics.jsonl",
                                  "addition-sparse/model.safetensors", "addition-sparse/vocab.json",
                                  "heads.json", "heads.png", "heads.svg", "sentences.txt",
                                  "sums-valid.txt", "sums.txt"}),
                    Each(Not(EndsWith(".tmp")))));
  EXPECT_EQ(fs::exists(here / "clearhead-demo/report.html"), CLEARHEAD_WEB != 0);
  EXPECT_EQ(LoadModel(here / "clearhead-demo/addition-sparse").config.attention,
            AttentionKind::kGated);
  EXPECT_EQ(ReadJsonFile(here / "clearhead-demo/heads.json")["models"].size(), 2u);
  for (const char* part :
       {"$ clearhead tasks digits --lines", "$ clearhead sparsify addition --text clearhead-demo/",
        "  dense      100.00 %", "    kept", "$ clearhead compare tale tale-sparse --prompt 'Say: ",
        "The old man looked at the sea and said\n", "$ clearhead grid tale tale-sparse --prompt ",
        "$ clearhead heads tale tale-sparse --text", " > clearhead-demo/heads.json",
        "$ clearhead circuit", "$ clearhead report", "Found in ", "clearhead sparsify gpt2"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  // Random weights do no task: the demo says so and goes on.
  EXPECT_THAT(run.out, HasSubstr("did not work: tale: the model cannot do task 'copy'"));
  EXPECT_THAT(run.out, HasSubstr("no circuit"));
}

TEST_F(DemoCommand, OneDocumentWithJson) {
  const TemporaryFolder here;
  const Json json = SucceedJson(UnderConditions({"demo", "--out", "a/b"}), {.folder = here.path()});
  ASSERT_TRUE(json.contains("adder"));
  EXPECT_EQ(json["adder"]["kept"], true);
  const Json& rows = json["adder"]["rows"];
  ASSERT_EQ(rows.size(), 12u);  // dense, ten validations, kept
  EXPECT_EQ(rows[0]["edge_fraction"], 1.0);
  ExpectAtMost("edges-ratio",
               rows[10]["edge_fraction"].get<double>() / rows[1]["edge_fraction"].get<double>(),
               {.limit = 1.0, .stated = 0.2});
  EXPECT_LE(rows[11]["loss_above_dense"].get<double>(), 0.005);
  EXPECT_EQ(json["prompts"].size(), 6u);
  EXPECT_GT(json["comparison"]["tokens"], 1000);
  EXPECT_THAT(json["failed"]["circuit"].get<std::string>(), HasSubstr("cannot do task"));
  EXPECT_FALSE(json.contains("circuit"));
  EXPECT_TRUE(fs::exists(here / "a/b/heads.png"));
}

TEST_F(DemoCommand, AnInterruptLeavesWholeFilesAndTheNextRunStartsAnew) {
  const TemporaryFolder here;
  const std::string out = here / "demo";
  EXPECT_EQ(RunAndSignal({"demo", "--out", out}, out + "/addition-sparse", 5, SIGINT), 130);
  EXPECT_THAT(FilesIn(out), AllOf(Contains("sums.txt"), Each(Not(EndsWith(".tmp")))));
  EXPECT_FALSE(fs::exists(out + "/heads.png"));
  EXPECT_EQ(RunAndSignal({"demo", "--out", out}, out + "/addition-sparse", 5, SIGINT), 130);
}

// Names of files do not tell whose they are: a folder of the user's may have sums and circuits too.
TEST_F(DemoCommand, TouchesNoFolderThatItDidNotMake) {
  const TemporaryFolder here;
  fs::create_directories(here / "mine/circuit");
  WriteFile(here / "mine/sums.txt", "my sums");
  WriteFile(here / "mine/circuit/notes.txt", "a week's work");
  ExpectFailure({"demo", "--out", here / "mine"}, 1, {"mine", "not made by a demo", "--out"});
  EXPECT_EQ(ReadFile(here / "mine/sums.txt"), "my sums");
  EXPECT_EQ(ReadFile(here / "mine/circuit/notes.txt"), "a week's work");
  EXPECT_EQ(FilesIn(here / "mine").size(), 3u);
}

TEST_F(DemoCommand, OneLineForWhatCannotBe) {
  const TemporaryFolder here;
  WriteFile(here / "file", "x");
  ExpectFailure({"demo", "--out", here / "file"}, 1, {"file"});
  ExpectFailure({"demo", "--steps", "3"}, 2, {"--steps"}, {.folder = here.path()});
  EXPECT_FALSE(fs::exists(here / "clearhead-demo"));
}

}  // namespace
}  // namespace clearhead
