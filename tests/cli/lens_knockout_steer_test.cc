// SPDX-License-Identifier: MIT
// lens, knockout and steer, end to end, with the model that ships and with bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/docs_commands.h"
#include "cli/program.h"
#include "core/safetensors.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

TEST(LensCommand, LastRowIsThePrediction) {
  const TemporaryFolder folder;
  const std::string figure = folder / "lens.svg";
  const Json lens = ParseJson(
      Succeed({"lens", "addition", "--prompt", "43+25=0", "--json", "--out", figure}).out, "lens");
  EXPECT_EQ(lens["schema"], "clearhead.lens.1");
  EXPECT_EQ(lens["stream"].size(), 5u);
  EXPECT_EQ(lens["stream"][4]["point"], "L3");
  const Json& last = lens["stream"][4]["positions"][6];
  EXPECT_EQ(last["likeliest"][0]["text"], "6");
  EXPECT_EQ(last["target_rank"], 0);
  EXPECT_EQ(lens["heads"]["position"], 6);
  EXPECT_EQ(lens["heads"]["heads"].size(), 16u);
  EXPECT_THAT(ReadFile(figure), HasSubstr("<svg"));
  const std::string text =
      Succeed({"lens", "addition", "--prompt", "43+25=0", "--target", "6", "--rows", "3"}).out;
  EXPECT_THAT(text, HasSubstr("embed"));
  EXPECT_THAT(text, HasSubstr("on target"));
  EXPECT_FALSE(
      ParseJson(Succeed({"lens", "addition", "--prompt", "43", "--stream", "--json"}).out, "lens")
          .contains("heads"));
}

TEST(LensCommand, RefusesBadInput) {
  ExpectFailure({"lens", "addition", "--prompt", "43+25=", "--target", "68"}, 1, {"not one token"});
  ExpectFailure({"lens", "addition", "--prompt", "43+25=", "--position", "6"}, 1, {"position 6"});
  ExpectFailure({"lens", "addition", "--prompt", "43+25=", "--out", "lens.txt"}, 1, {"lens.txt"});
  ExpectFailure({"lens", "addition"}, 2, {"--prompt"});
}

TEST(KnockoutCommand, CutsWhatIsNamed) {
  const TemporaryFolder folder;
  const std::string figure = folder / "cut.pdf";
  const Json cut = ParseJson(Succeed({"knockout", "addition", "--prompt", "43+25=068", "--cut",
                                      "L1H2:6<-0", "--cut", "L0H1", "--json", "--out", figure})
                                 .out,
                             "knockout");
  EXPECT_EQ(cut["cut"], Json({"L1H2:6<-0", "L0H1"}));
  EXPECT_EQ(cut["edges"], 1 + 45);
  EXPECT_GT(cut["after"]["loss"].get<double>(), cut["before"]["loss"].get<double>());
  EXPECT_EQ(cut["divergence"].size(), 9u);
  EXPECT_THAT(ReadFile(figure), HasSubstr("%PDF"));
  const Json heads = ParseJson(
      Succeed({"knockout", "addition", "--prompt", "43+25=068", "--heads", "all", "--json"}).out,
      "knockout");
  EXPECT_EQ(heads["edges"], 16 * 45);
  EXPECT_THAT(
      Succeed({"knockout", "addition-sparse", "--prompt", "43+25=068", "--cut", "L0H1"}).out,
      HasSubstr("edges cut; loss"));
}

TEST(KnockoutCommand, RefusesBadInput) {
  ExpectFailure({"knockout", "addition", "--prompt", "43+25="}, 2, {"say what to cut"});
  ExpectFailure({"knockout", "addition", "--prompt", "43+25=", "--cut", "L3H5-8"}, 2,
                {"L3H5-8", "is not a cut"});
  ExpectFailure({"knockout", "addition", "--prompt", "43+25=", "--cut", "L0H0:2<-4"}, 1,
                {"future"});
  ExpectFailure({"knockout", "addition", "--prompt", "43+25=", "--cut", "L9H0"}, 1,
                {"no such head"});
  ExpectFailure({"knockout", "addition", "--prompt", "43+25=", "--heads", "top:3"}, 2, {"top:N"});
}

TEST(SteerCommand, DosesOfEveryKind) {
  const TemporaryFolder folder;
  const std::string figure = folder / "steer.png";
  const Json texts =
      ParseJson(Succeed({"steer", "addition", "--prompt", "43+25=0", "--towards", "99+00=0",
                         "--away", "11+00=0", "--layer", "3", "--doses", "0,0.5,2", "--target", "6",
                         "--target", "9", "--json", "--out", figure})
                    .out,
                "steer");
  EXPECT_EQ(texts["doses"].size(), 3u);
  EXPECT_EQ(texts["doses"][0]["divergence"], 0.0);
  EXPECT_GT(texts["doses"][2]["divergence"].get<double>(),
            texts["doses"][1]["divergence"].get<double>());
  EXPECT_THAT(ReadFile(figure), HasSubstr("PNG"));
  EXPECT_THAT(
      Succeed({"steer", "addition", "--prompt", "43+25=0", "--head", "L1H2", "--doses", "-1,1"})
          .out,
      HasSubstr("the output of L1H2 at position 6, before layer 2"));
  const std::vector<float> vector(128, 0.25f);
  const std::vector<TensorToWrite> tensors = {{.name = "v", .shape = {128}, .data = vector.data()},
                                              {.name = "w", .shape = {64}, .data = vector.data()}};
  WriteSafetensors(folder / "v.safetensors", tensors);
  const std::string file = folder / "v.safetensors";
  Succeed({"steer", "addition", "--prompt", "43+25=0", "--direction", file + ":v", "--layer", "1",
           "--position", "all"});
  ExpectFailure(
      {"steer", "addition", "--prompt", "43+25=", "--direction", file + ":w", "--layer", "1"}, 1,
      {"64 values", "128"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--direction", file, "--layer", "1"}, 1,
                {"2 tensors"});
  const Json feature =
      ParseJson(Succeed({"steer", "tale", "--prompt", "The cat sat", "--features", "tale-features",
                         "--feature", "L3F12", "--doses", "0,8", "--json"})
                    .out,
                "steer");
  EXPECT_EQ(feature["doses"][0]["divergence"], 0.0);
  EXPECT_GT(feature["doses"][1]["divergence"].get<double>(), 0.0);
}

TEST(SteerCommand, RefusesBadInput) {
  ExpectFailure({"steer", "addition", "--prompt", "43+25="}, 2, {"one thing to add"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--head", "L1H2", "--doses", "1,x"}, 2,
                {"1,x"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--head", "L1H9"}, 1, {"no head 9"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--head", "L1H2", "--position", "6"}, 1,
                {"--position 6"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--towards", "1", "--away", "2"}, 2,
                {"--layer"});
  ExpectFailure({"steer", "addition", "--prompt", "43+25=", "--feature", "L1F2"}, 2,
                {"--features"});
}

TEST(DocsPrompts, EveryCommandRuns) {
  const std::filesystem::path page =
      std::filesystem::path(CLEARHEAD_TEST_DATA) / ".." / ".." / "docs" / "prompts.md";
  const std::vector<std::string> commands = CommandsOf(page);
  EXPECT_GE(commands.size(), 7u);
  const TemporaryFolder folder;
  for (const std::string& line : commands) {
    std::vector<std::string> words = Words(line);
    words.erase(words.begin());
    const ProgramRun run = RunProgram(words, {.folder = folder.path()});
    EXPECT_EQ(run.code, 0) << line << "\n" << run.err;
    EXPECT_FALSE(run.out.empty()) << line;
  }
  for (const char* figure : {"lens.svg", "losses.svg", "dose.svg"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / figure)) << figure;
  }
}

}  // namespace
}  // namespace clearhead
