// SPDX-License-Identifier: MIT
// `clearhead tasks`: examples, scores, running text, files.
#include <algorithm>

#include "cli/task_model.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

fs::path TaskModel(const TemporaryFolder& folder) {
  MakeTaskModel(folder / "model");
  return folder / "model";
}

TEST(TasksCommand, ShowsExamplesWithoutAModel) {
  const Json json = SucceedJson({"tasks", "--n", "2"});
  ASSERT_EQ(json.size(), 11u);
  for (const Json& task : json) EXPECT_EQ(task["examples"].size(), 2u);
  EXPECT_NE(Succeed({"tasks", "ioi"}).out.find("gave"), std::string::npos);
}

TEST(TasksCommand, RunningTextIsTheSameForASeed) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments = {"tasks", "copy",   "addition", "--lines",
                                              "50",    "--seed", "3"};
  const std::string text = Succeed(arguments).out;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
  EXPECT_EQ(Succeed(arguments).out, text);
  std::vector<std::string> to_file = arguments;
  to_file.insert(to_file.end(), {"--out", folder / "lines.txt"});
  Succeed(to_file);
  EXPECT_EQ(ReadFile(folder / "lines.txt"), text);
}

TEST(TasksCommand, ScoresAndExportsAndImports) {
  const TemporaryFolder folder;
  const fs::path model = TaskModel(folder);
  const Json score = SucceedJson({"tasks", "ioi", "--model", model, "--items", "40", "--export",
                                  folder / "ioi.csv", "--n", "1"});
  ASSERT_EQ(score.size(), 1u);
  EXPECT_EQ(score[0]["items"], 40);
  EXPECT_EQ(score[0]["examples"].size(), 1u);
  const Json again = SucceedJson({"tasks", "--import", folder / "ioi.csv", "--model", model});
  EXPECT_EQ(again[0]["items"], 40);
  for (const char* field : {"accuracy", "preferred", "clean_metric", "corrupted_metric"}) {
    EXPECT_NEAR(again[0][field].get<double>(), score[0][field].get<double>(), 1e-9) << field;
  }
  const Json sums = SucceedJson({"tasks", "digits", "--model", model, "--items", "10"});
  EXPECT_EQ(sums[0]["exact_sums"], 0.0);  // random weights
}

TEST(TasksCommand, OneLineForWhatCannotBe) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "small");
  const std::string small = folder / "small";
  ExpectFailure({"tasks", "juggling"}, 1, {"juggling", "greater-than"});
  ExpectFailure({"tasks", "ioi", "--model", small}, 1, {"single tokens"});
  ExpectFailure({"tasks", "ioi", "--export", folder / "x.csv"}, 2, {"--model"});
  WriteFile(folder / "bad.csv", "clean,corrupted\na,b\n");
  ExpectFailure({"tasks", "--import", folder / "bad.csv", "--model", small}, 1, {"correct_idx"});
}

TEST(TasksCommand, HeadsAreDrawnAndAnalysedOnATask) {
  const TemporaryFolder folder;
  const std::string model = TaskModel(folder);
  const Json heads = SucceedJson({"heads", model, "--task", "ioi", "--items", "3"});
  EXPECT_EQ(heads["models"][0]["sequences"], 3);
  SucceedJson({"grid", model, "--task", "copy", "--sequence", "2", "--out", folder / "g.png"});
  EXPECT_TRUE(fs::exists(folder / "g.png"));
  ExpectFailure({"grid", model, "--task", "chess", "--out", folder / "n.png"}, 1, {"chess", "ioi"});
  ExpectFailure({"grid", model, "--task", "ioi", "--prompt", "a", "--out", folder / "n.png"}, 2,
                {"exactly one"});
}

}  // namespace
}  // namespace clearhead
