// SPDX-License-Identifier: MIT
// `clearhead sparsify` as a user meets it: a whole run, the parts that train, Ctrl-C, stored
// logits, refusals.
#include <algorithm>
#include <set>

#include "cli/interrupted_run.h"
#include "cli/program.h"
#include "cli/small_model.h"
#include "support/conditions.h"
#include "support/margin.h"
#include "text/token_stream.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

// A dense model that has learned its text a little, once for all tests.
const fs::path& DenseModel() {
  static const TemporaryFolder folder;
  static const fs::path model = [] {
    WriteFile(folder / "text.txt", SmallText());
    Succeed({"train",
             "--text",
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
             "--lr",
             "0.01",
             "--steps",
             "150",
             "--threads",
             "1",
             "--out",
             folder / "dense"});
    return folder / "dense";
  }();
  return model;
}

fs::path Text() { return DenseModel().parent_path() / "text.txt"; }

std::vector<std::string> Arguments(const fs::path& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "sparsify",  DenseModel(), "--text",  Text(), "--valid",      Text(),
      "--context", "24",         "--batch", "4",    "--threads",    "1",
      "--lr",      "0.003",      "--out",   out,    "--eval-every", "20"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return UnderConditions(std::move(arguments));
}

TEST(SparsifyCommand, MakesAModelThatTheOtherCommandsTake) {
  const TemporaryFolder folder;
  const fs::path out = folder / "sparse";
  const Json json = SucceedJson(Arguments(out, {"--steps", "200", "--tolerance", "0.5"}));
  ExpectAtMost("edges", json["best"]["edge_fraction"].get<double>(),
               {.limit = 0.7, .stated = 0.25});
  EXPECT_LE(json["best"]["loss"].get<double>(), json["dense_loss"].get<double>() + 0.5);
  EXPECT_EQ(FilesIn(out), (std::vector<std::string>{"config.json", "merges.txt", "metrics.jsonl",
                                                    "model.safetensors", "sparsify.svg",
                                                    "start.json", "vocab.json"}));
  const Json config = ParseJson(ReadFile(out / "config.json"), "config.json");
  EXPECT_EQ(config["clearhead"]["attention"], "gated");
  EXPECT_EQ(config["clearhead"]["gate_bias"], 2.0);
  const Json eval = SucceedJson({"eval", out, "--text", Text(), "--context", "24"});
  EXPECT_NEAR(eval["loss"].get<double>(), json["best"]["loss"].get<double>(), 1e-6);
  EXPECT_NEAR(eval["edge_fraction"].get<double>(), json["best"]["edge_fraction"].get<double>(),
              1e-9);
  const Json dense = SucceedJson({"eval", DenseModel(), "--text", Text(), "--context", "24"});
  EXPECT_NEAR(dense["loss"].get<double>(), json["dense_loss"].get<double>(), 1e-6);
  int measured = 0;
  for (const Json& line : ReadMetrics(out / "metrics.jsonl")) measured += line.contains("valid");
  EXPECT_EQ(measured, 10);
  const Json run = SucceedJson({"frontier", out, "--out", folder / "frontier.svg",  //
                                "--tolerance", "0.5", "--most", "1"})["runs"][0];
  EXPECT_TRUE(fs::exists(folder / "frontier.svg"));
  EXPECT_EQ(run["measured"].size(), 10u);
  EXPECT_EQ(run["untrained"].size(), json["untrained"].size());
  EXPECT_EQ(run["within"][0]["best"]["edge_fraction"], json["best"]["edge_fraction"]);
  EXPECT_THAT(Succeed({"frontier", out}).out, ::testing::HasSubstr("untrained, T = 24"));
  EXPECT_EQ(Succeed({"generate", out, "--prompt", "The cat", "--max-new", "2"}).code, 0);
}

TEST(SparsifyCommand, CtrlCSavesAndResumeEndsWithTheSameBytes) {
  const TemporaryFolder folder;
  for (const std::string part : {"all", "lora:2"}) {
    const std::vector<std::string> more = {"--steps", "200", "--tolerance", "5", "--train", part};
    const fs::path whole = folder / ("whole" + part), stopped = folder / ("part" + part);
    Succeed(Arguments(whole, more));
    EXPECT_EQ(RunAndSignal(Arguments(stopped, more), stopped, 30, SIGINT), 130);
    EXPECT_FALSE(fs::exists(stopped / "model.safetensors"));
    std::vector<std::string> resume = more;
    resume.push_back("--resume");
    Succeed(Arguments(stopped, resume));
    EXPECT_EQ(ReadFile(stopped / "model.safetensors"), ReadFile(whole / "model.safetensors"));
    EXPECT_EQ(FilesIn(stopped), FilesIn(whole));
  }
}

// Steps see the tokens of the text alone; what is measured and written has all of them, those that
// the text does not have as they were.
TEST(SparsifyCommand, ACutVocabularyComesBackWhole) {
  const TemporaryFolder folder;
  const std::vector<std::string> more = {"--steps", "40", "--tolerance", "5", "--cut-vocabulary"};
  const fs::path out = folder / "whole", stopped = folder / "part";
  const Json json = SucceedJson(Arguments(out, more));
  const Json eval = SucceedJson({"eval", out, "--text", Text(), "--context", "24"});
  EXPECT_NEAR(eval["loss"].get<double>(), json["best"]["loss"].get<double>(), 1e-6);
  const Model dense = LoadModel(DenseModel()), sparse = LoadModel(out);
  ASSERT_EQ(sparse.config.vocabulary, dense.config.vocabulary);
  const std::vector<std::int32_t> ids = EncodeDocument(Tokenizer::Load(out), Text());
  const std::set<std::int32_t> used(ids.begin(), ids.end());
  const std::int64_t C = dense.config.width;
  int changed = 0, unused = 0;
  for (std::int32_t token = 0; token < dense.config.vocabulary; ++token) {
    const float* before = dense.weights(Role::kTokenEmbedding).f32() + token * C;
    const float* after = sparse.weights(Role::kTokenEmbedding).f32() + token * C;
    const bool same = std::equal(before, before + C, after);
    changed += !same;
    unused += !used.contains(token);
    EXPECT_TRUE(same || used.contains(token)) << token;
  }
  EXPECT_GT(changed, 0);
  EXPECT_GT(unused, 0);
  EXPECT_EQ(RunAndSignal(Arguments(stopped, more), stopped, 15, SIGINT), 130);
  std::vector<std::string> resume = more;
  resume.push_back("--resume");
  Succeed(Arguments(stopped, resume));
  EXPECT_EQ(ReadFile(stopped / "model.safetensors"), ReadFile(out / "model.safetensors"));
}

// What a well-trained model needs, all at once; a resumed run goes on with the probe's rate.
TEST(SparsifyCommand, TheGentleWayAndBack) {
  const TemporaryFolder folder;
  const std::vector<std::string> more = {"--steps",       "40",     "--tolerance", "5",
                                         "--probe-rates", "--hold", "--head-bias", "--concentrate",
                                         "--sweep-bias"};
  const fs::path whole = folder / "whole", stopped = folder / "part";
  const Json json = SucceedJson(Arguments(whole, more));
  EXPECT_GE(json["probe"]["tried"].size(), 2u);
  EXPECT_EQ(json["untrained"].size(), 7u);
  double fraction = 1.1;  // from nearly all open to few
  for (const Json& point : json["untrained"]) {
    EXPECT_LE(point["edge_fraction"].get<double>(), fraction);
    fraction = point["edge_fraction"].get<double>();
  }
  // The sweep takes the fewest edges: with this tolerance the lowest bias.
  ASSERT_EQ(json["swept"].size(), 13u);
  EXPECT_EQ(json["gate_bias"], json["swept"].back()["gate_bias"]);
  const Json config = ParseJson(ReadFile(whole / "config.json"), "config.json");
  EXPECT_EQ(config["clearhead"]["gate_bias"], json["gate_bias"]);
  EXPECT_EQ(config["clearhead"]["gate_bias_by_head"], true);
  const Json info = SucceedJson({"info", whole});
  EXPECT_EQ(info["model"]["gate_bias_by_head"], true);
  EXPECT_EQ(RunAndSignal(Arguments(stopped, more), stopped, 15, SIGINT), 130);
  std::vector<std::string> resume = more;
  resume.push_back("--resume");
  Succeed(Arguments(stopped, resume));
  EXPECT_EQ(ReadFile(stopped / "model.safetensors"), ReadFile(whole / "model.safetensors"));
  EXPECT_EQ(ReadFile(stopped / "config.json"), ReadFile(whole / "config.json"));
  ExpectFailure(Arguments(folder / "no", {"--probe-rates", "--lr-rest", "0.1"}), 2,
                {"--lr-rest", "--probe-rates"});
  ExpectFailure(Arguments(folder / "no", {"--head-bias", "--train", "lora:2"}), 1,
                {"lora:2", "gate biases"});
}

TEST(SparsifyCommand, LearnsFromStoredLogits) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = Tokenizer::Load(DenseModel());
  const std::vector<std::int32_t> tokens = EncodeFile(tokenizer, Text());
  Json rows = Json::array();
  for (std::size_t i = 0; i + 20 <= tokens.size(); i += 20) {
    rows.push_back(std::vector<std::int32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                             tokens.begin() + static_cast<std::ptrdiff_t>(i + 20)));
  }
  WriteFile(folder / "rows.json", ToText(rows));
  Succeed({"capture", DenseModel(), "--ids-file", folder / "rows.json", "--out",
           folder / "logits.safetensors"});
  const Json json =
      SucceedJson({"sparsify", DenseModel(), "--logits", folder / "logits.safetensors", "--valid",
                   Text(), "--steps", "40", "--batch", "4", "--tolerance", "5", "--threads", "1",
                   "--out", folder / "sparse"});
  EXPECT_EQ(json["context"], 19);
  EXPECT_EQ(ReadMetrics(folder / "sparse/metrics.jsonl").size(), 40u);
}

TEST(SparsifyCommand, ASecondRoundGoesOnFromTheFirst) {
  const TemporaryFolder folder;
  const Json first = SucceedJson(Arguments(folder / "first", {"--steps", "6", "--tolerance", "5"}));
  const Json second =
      SucceedJson(Arguments(folder / "second", {"--steps", "6", "--tolerance", "5", "--from",
                                                folder / "first", "--own-text", "--settle", "1"}));
  EXPECT_EQ(second["dense_loss"], first["dense_loss"]);
  const Json line = ReadMetrics(folder / "second/metrics.jsonl")[0];
  const Json at_first = ReadMetrics(folder / "first/metrics.jsonl")[0];
  EXPECT_NE(line["gate_probability"], at_first["gate_probability"]);
  ExpectFailure(Arguments(folder / "third", {"--steps", "6", "--from", "tale-sparse"}), 1,
                {"another shape"});
}

TEST(SparsifyCommand, ATargetOutOfReachSaysTheNumbers) {
  const TemporaryFolder folder;
  const ProgramRun run =
      // Every gate is closed, and four steps teach nothing: no path meets the target.
      RunProgram(Arguments(folder / "sparse", {"--steps", "4", "--tolerance", "0", "--push", "5",
                                               "--gate-bias", "-30"}));
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("no model within 0 nats of the dense validation loss"), std::string::npos)
      << run.err;
  EXPECT_EQ(run.ErrorLines().size(), 1u) << run.err;
  EXPECT_FALSE(fs::exists(folder / "sparse/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "sparse/sparsify.svg"));
  // What hours made is not thrown away: it is a model, under a name of its own.
  EXPECT_NE(run.err.find((folder / "sparse/last").string()), std::string::npos) << run.err;
  const Json last = SucceedJson({"eval", folder / "sparse/last", "--text", Text()});
  EXPECT_EQ(last["edge_fraction"], 0.0);
  // Its metrics are not lost to the next attempt.
  ExpectFailure(Arguments(folder / "sparse", {"--steps", "4"}), 1,
                {"metrics.jsonl", "another folder"});
  ExpectFailure(
      Arguments(folder / "new", {"--steps", "1099511627776", "--accumulate", "4294967296"}), 1,
      {"too large"});
}

TEST(SparsifyCommand, RefusesBeforeAnyWork) {
  const TemporaryFolder folder;
  const fs::path out = folder / "sparse";
  const auto with = [&](const std::vector<std::string>& more) { return Arguments(out, more); };
  ExpectFailure(
      {"sparsify", DenseModel(), "--text", Text(), "--steps", "5", "--context", "25", "--out", out},
      1, {"--context 25", "24 positions"});
  ExpectFailure(with({"--steps", "5", "--train", "mlp"}), 1, {"'mlp'", "lora:R"});
  ExpectFailure(with({"--steps", "5", "--train", "lora:99"}), 1, {"rank", "width 32"});
  ExpectFailure(with({}), 2, {"--tokens"});
  WriteFile(folder / "short.txt", "The cat.");
  ExpectFailure(
      {"sparsify", DenseModel(), "--text", folder / "short.txt", "--steps", "5", "--out", out}, 1,
      {"tokens long", "needs at least"});
  ExpectFailure({"sparsify", DenseModel(), "--steps", "5", "--out", out}, 2, {"--text"});
  MakeSmallModel(folder / "gated", true);
  ExpectFailure({"sparsify", folder / "gated", "--text", Text(), "--steps", "5", "--out", out}, 1,
                {"gated already"});
  ExpectFailure(with({"--steps", "5", "--own-text", "--distill", "0"}), 2, {"--own-text"});
  ExpectFailure(with({"--steps", "5", "--settle", "2"}), 2, {"--settle"});
  ExpectFailure(with({"--steps", "5", "--from", DenseModel()}), 1, {"--from", "is dense"});
  ExpectFailure(with({"--steps", "5", "--from", folder / "gated", "--head-bias"}), 2, {"--from"});
  // A tokenizer with more tokens than the model has embeddings.
  fs::create_directories(folder / "mismatch");
  for (const auto& entry : fs::directory_iterator(DenseModel())) {
    fs::copy(entry.path(), folder / "mismatch");
  }
  const std::string text = SmallText();
  const std::vector<std::string_view> texts = {text};
  TrainBpe(texts, {.vocabulary_size = 310}).Save(folder / "mismatch");
  ExpectFailure({"sparsify", folder / "mismatch", "--text", Text(), "--steps", "5", "--out", out},
                1, {"tokenizer has", "the model only 290"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace clearhead
