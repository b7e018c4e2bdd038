// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <set>

#include "cli/induction_pair.h"
#include "cli/program.h"

namespace clearhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CircuitCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    MakeInductionPair(folder_->path());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string Path(const std::string& name) { return (*folder_ / name).string(); }

  static TemporaryFolder* folder_;
};
TemporaryFolder* CircuitCommand::folder_ = nullptr;

std::set<std::string> FirstHeads(const Json& circuit) {
  std::set<std::string> heads;
  for (std::size_t i = 0; i < circuit["at_90"].get<std::size_t>(); ++i) {
    heads.insert(circuit["heads"][i]["head"].get<std::string>());
  }
  return heads;
}

TEST_F(CircuitCommand, FindsTheBuiltCircuitAndWritesItsFiles) {
  const std::string out = Path("one");
  const Json json = SucceedJson(
      {"circuit", Path("dense"), "--import", Path("digits.csv"), "--level", "both", "--out", out});
  EXPECT_EQ(json, ReadJsonFile(out + "/circuit.json"));
  EXPECT_THAT(FilesIn(out), ElementsAre("circuit.json", "curve-edges.svg", "curve-heads.svg",
                                        "edges.svg", "graph.json", "heads.svg", "table.md"));
  EXPECT_EQ(json["model"], "dense");
  EXPECT_EQ(json["items"], 24);
  EXPECT_EQ(json["at_90"], 2);
  EXPECT_EQ(FirstHeads(json), (std::set<std::string>{"L0H0", "L1H1"}));
  EXPECT_EQ(json["heads"].size(), 4u);
  for (const Json& head : json["heads"]) {
    EXPECT_TRUE(head["head"] != "L0H0" || head["role"] == "previous-token") << head["role"];
  }
  EXPECT_EQ(json["edges"]["marks"][1]["pruned_size"], 3);
  for (const char* key : {"task", "metric", "ablation", "importance", "granularity", "faithfulness",
                          "random_baseline", "edge_scores"}) {
    EXPECT_FALSE(json[key].get<std::string>().empty()) << key;
  }
  EXPECT_LT(json["marks"][1]["random"]["faithfulness"].get<double>(), 0.9);

  const Json graph = ReadJsonFile(out + "/graph.json");
  EXPECT_EQ(graph["cfg"]["n_layers"], 2);
  EXPECT_EQ(graph["nodes"].size(), 8u);
  EXPECT_EQ(graph["nodes"]["a1.h1"]["in_graph"], true);
  EXPECT_EQ(graph["nodes"]["a1.h0"]["in_graph"], false);
  EXPECT_EQ(graph["edges"].size(), 6 * 1 + 3 + 6 * 4 + 6 + 7u);
  EXPECT_EQ(graph["edges"]["a0.h0->a1.h1<k>"]["in_graph"], true);
  EXPECT_GT(graph["edges"]["a0.h0->a1.h1<k>"]["score"].get<double>(), 0.1);
  EXPECT_EQ(graph["edges"]["input->m0"]["in_graph"], false);
}

TEST_F(CircuitCommand, ComparesTwoModelsAndKeepsOneSectionInADocument) {
  const std::string out = Path("two"), table = Path("results.md");
  WriteFile(table, "# Results\n\nOther things.\n");
  const std::vector<std::string> arguments = {
      "circuit", Path("dense"), Path("sparse"), "--import", Path("digits.csv"), "--out",
      out,       "--table",     table,          "--label",  "Dense,Sparse one"};
  const ProgramRun run = Succeed(arguments);
  EXPECT_THAT(run.out, HasSubstr("Sparse one"));
  EXPECT_THAT(run.out, HasSubstr("2 / 2 / 2 / 2 heads"));
  EXPECT_THAT(run.out, HasSubstr("random"));
  EXPECT_THAT(FilesIn(out),
              ElementsAre("circuit-Dense.json", "circuit-Sparse_one.json", "circuit.json",
                          "curve-heads.svg", "graph-Dense.json", "graph-Sparse_one.json",
                          "heads-Dense.svg", "heads-Sparse_one.svg", "table.md"));
  const Json both = ReadJsonFile(out + "/circuit.json");
  ASSERT_EQ(both["models"].size(), 2u);
  EXPECT_EQ(both["models"][1], ReadJsonFile(out + "/circuit-Sparse_one.json"));
  EXPECT_EQ(FirstHeads(both["models"][1]), (std::set<std::string>{"L0H0", "L1H1"}));
  EXPECT_LT(both["models"][1]["attention_edges"]["open"].get<double>(),
            both["models"][0]["attention_edges"]["open"].get<double>());

  const std::string once = ReadFile(table);
  EXPECT_TRUE(once.starts_with("# Results\n\nOther things.\n\n"));
  EXPECT_THAT(once, HasSubstr("| digits | logit difference | 24 | Sparse one |"));
  EXPECT_THAT(once, HasSubstr("heads at 90 %: Dense and Sparse one both need 2."));
  EXPECT_THAT(once, HasSubstr("clearhead circuit "));
  Succeed(arguments);
  EXPECT_EQ(ReadFile(table), once);  // the section is replaced, and the search is repeatable
}

TEST_F(CircuitCommand, OtherAblationsAndRanks) {
  for (const auto& [ablation, rank] : {std::pair{"mean", "noise"},
                                       {"zero", "noise"},
                                       {"resample", "attribution"},
                                       {"resample", "denoise"}}) {
    const Json json = SucceedJson({"circuit", Path("dense"), "--import", Path("digits.csv"),
                                   "--ablation", ablation, "--rank", rank, "--out", Path("other")});
    EXPECT_EQ(FirstHeads(json), (std::set<std::string>{"L0H0", "L1H1"})) << ablation << rank;
  }
}

TEST_F(CircuitCommand, BenchmarkComparesBothWays) {
  const Json json =
      SucceedJson({"circuit", Path("dense"), "--import", Path("digits.csv"), "--benchmark"});
  EXPECT_EQ(json[0]["prompts"], 24);
  EXPECT_GT(json[0]["times_faster"].get<double>(), 0.0);
  EXPECT_LT(json[0]["largest_difference"].get<double>(), 1e-4);
}

TEST_F(CircuitCommand, RefusesBadTasksInOneLine) {
  const auto imported = [&](const std::string& csv, const std::vector<std::string>& parts) {
    WriteFile(Path("bad.csv"), csv);
    ExpectFailure({"circuit", Path("dense"), "--import", Path("bad.csv"), "--out", Path("bad")}, 1,
                  parts);
  };
  imported("prompt,answer\n123,4\n", {"no column 'clean'", "prompt,answer"});
  imported("clean,corrupted,correct_idx,incorrect_idx\n123,124,99999,1\n",
           {"line 2", "token 99999 is outside the vocabulary"});
  imported("clean,corrupted,correct_idx,incorrect_idx\n123,12,7,8\n", {"line 2", "one length"});
  imported("clean,corrupted,correct_idx,incorrect_idx\n", {"no prompts"});
  // Nothing is repeated: there is nothing to continue.
  imported("clean,corrupted,correct_idx,incorrect_idx\n1234,1230,21,20\n4567,4561,20,21\n",
           {"the model cannot do task 'bad'", "there is no circuit to find"});
  EXPECT_FALSE(std::filesystem::exists(Path("bad")));

  const std::string digits = Path("digits.csv"), dense = Path("dense"), out = Path("bad");
  ExpectFailure({"circuit", dense, "--task", "juggling", "--out", out}, 1, {"juggling", "copy"});
  ExpectFailure({"circuit", dense, "--task", "addition", "--out", out}, 1, {"addition"});
  ExpectFailure({"circuit", dense, "--out", out}, 2, {"--task or --import"});
  ExpectFailure({"circuit", dense, "--task", "copy", "--import", digits, "--out", out}, 2,
                {"--task or --import"});
  ExpectFailure({"circuit", dense, "--import", digits}, 2, {"--out is required"});
  ExpectFailure({"circuit", dense, dense, dense, "--import", digits, "--out", out}, 2,
                {"one or two models, not 3"});
  ExpectFailure({"circuit", dense, "--import", digits, "--out", out, "--label", "a,b"}, 2,
                {"1 models, 2 names"});
  ExpectFailure(
      {"circuit", dense, "--import", digits, "--out", out, "--ablation", "zero", "--rank", "both"},
      2, {"--rank both needs --ablation resample"});
  ExpectFailure({"circuit", dense, "--import", digits, "--out", out, "--n", "0"}, 2,
                {"positive number"});
}

}  // namespace
}  // namespace clearhead
