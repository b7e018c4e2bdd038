// SPDX-License-Identifier: MIT
// clearhead eval, generate and write, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/program.h"
#include "cli/small_model.h"
#include "support/golden_models.h"
#include "text/token_stream.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

class WithModel : public testing::TestWithParam<bool> {
 protected:
  WithModel()
      : model_(MakeSmallModel(folder_ / "m", GetParam())),
        tokenizer_(Tokenizer::Load(folder_ / "m")) {
    WriteFile(folder_ / "text", SmallText());
  }
  std::string path() const { return folder_ / "m"; }
  std::string text() const { return folder_ / "text"; }

  TemporaryFolder folder_;
  Model model_;
  Tokenizer tokenizer_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, WithModel, testing::Bool(),
                         [](const auto& info) { return info.param ? "gated" : "softmax"; });

// Sum of -log p over one window, from the logits that capture writes.
double WindowLoss(const std::string& model, const std::vector<std::int32_t>& tokens,
                  std::size_t first, std::size_t length) {
  const TemporaryFolder folder;
  const std::string ids = IdList(std::span(tokens).subspan(first, length));
  Succeed({"capture", model, "--ids", ids, "--out", folder / "run"});
  const GoldenTensor logits = ReadGolden(folder / "run").at("logits");
  const auto vocabulary = static_cast<std::size_t>(logits.shape[2]);
  double sum = 0.0;
  for (std::size_t t = 0; t < length; ++t) {
    const float* row = logits.values.data() + t * vocabulary;
    double total = 0.0;
    for (std::size_t v = 0; v < vocabulary; ++v) total += std::exp(double{row[v]});
    sum += std::log(total) - row[tokens[first + t + 1]];
  }
  return sum;
}

TEST_P(WithModel, EvalIsTheLossOfItsWindows) {
  const std::vector<std::int32_t> tokens = tokenizer_.Encode(SmallText());
  for (const std::size_t context : {48u, 31u}) {
    for (const std::size_t wanted : {tokens.size() - 1, std::size_t{65}}) {
      std::vector<std::string> command = {"eval", path(),     "--text",
                                          text(), "--tokens", std::to_string(wanted)};
      if (context != 48) command.insert(command.end(), {"--context", std::to_string(context)});
      const Json json = SucceedJson(command);
      double sum = 0.0;
      std::size_t windows = 0;
      for (std::size_t first = 0; first < wanted; first += context, ++windows) {
        sum += WindowLoss(path(), tokens, first, std::min(context, wanted - first));
      }
      const double loss = sum / static_cast<double>(wanted);
      EXPECT_NEAR(json["loss"].get<double>(), loss, 1e-5);
      EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(loss), 1e-4 * std::exp(loss));
      EXPECT_EQ(json["tokens"], wanted);
      EXPECT_EQ(json["windows"], windows);
      EXPECT_EQ(json["context"], context);
      EXPECT_EQ(json.contains("open_edges"), GetParam());
    }
  }
  EXPECT_EQ(SucceedJson({"eval", path(), "--text", text()})["tokens"], tokens.size() - 1);
}

TEST_P(WithModel, EvalTellsPeople) {
  const std::string out = Succeed({"eval", path(), "--text", text(), "--per-head"}).out;
  EXPECT_NE(out.find("perplexity"), std::string::npos) << out;
  EXPECT_EQ(out.find("L1H2") != std::string::npos, GetParam()) << out;
}

TEST_P(WithModel, EvalCountsGates) {
  const std::vector<std::string> command = {"eval", path(), "--text", text(), "--per-head"};
  const Json json = SucceedJson(command);
  if (!GetParam()) {
    EXPECT_FALSE(json.contains("heads"));
    ExpectFailure({"eval", path(), "--text", text(), "--gates", "hard"}, 1,
                  {"--gates", "gated model"});
    return;
  }
  ASSERT_EQ(json["heads"].size(), 6u);
  EXPECT_EQ(json["heads"][5]["head"], "L1H2");
  std::int64_t open = 0;
  for (const Json& head : json["heads"]) {
    open += head["open_edges"].get<std::int64_t>();
    EXPECT_GE(head["mean_gate_probability"].get<double>(), 0.0);
    EXPECT_LE(head["mean_gate_probability"].get<double>(), 1.0);
    EXPECT_NEAR(head["edge_fraction"].get<double>() * json["causal_edges"].get<double>() / 6.0,
                head["open_edges"].get<double>(), 1e-6 * json["causal_edges"].get<double>());
  }
  EXPECT_EQ(json["open_edges"], open);
  EXPECT_GT(open, 0);
  EXPECT_LT(json["edge_fraction"].get<double>(), 1.0);
  std::vector<std::string> dense = command;
  dense.insert(dense.end(), {"--gates", "open"});
  EXPECT_NE(SucceedJson(dense)["loss"], json["loss"]);
}

TEST(EvalGates, OpenIsTheDenseModelAndSampledFollowsTheSeed) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "gated", true);
  MakeSmallModel(folder / "dense");  // the same weights
  WriteFile(folder / "text", SmallText());
  const auto eval = [&](const char* model, std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", folder / model, "--text", folder / "text"});
    return SucceedJson(more);
  };
  const Json open = eval("gated", {"--gates", "open", "--per-head"});
  EXPECT_EQ(open["loss"], eval("dense", {})["loss"]);
  EXPECT_FALSE(open.contains("open_edges"));
  EXPECT_FALSE(open.contains("heads"));

  const Json hard = eval("gated", {});
  EXPECT_EQ(eval("gated", {"--gates", "hard", "--seed", "9"})["loss"], hard["loss"]);
  const Json sampled = eval("gated", {"--gates", "sampled", "--seed", "7", "--per-head"});
  EXPECT_EQ(eval("gated", {"--gates", "sampled", "--seed", "7", "--per-head"})["loss"],
            sampled["loss"]);
  EXPECT_NE(eval("gated", {"--gates", "sampled", "--seed", "8"})["open_edges"],
            sampled["open_edges"]);
  EXPECT_NE(hard["open_edges"], sampled["open_edges"]);
  // A sampled gate is open with its probability: over all pairs the share comes close to the mean.
  double probability = 0.0;
  for (const Json& head : sampled["heads"]) {
    probability += head["mean_gate_probability"].get<double>() / 6.0;
  }
  const double pairs = sampled["causal_edges"].get<double>();
  EXPECT_NEAR(sampled["edge_fraction"].get<double>(), probability, 4.0 * 0.5 / std::sqrt(pairs));
  // Listing the heads asks for probabilities too, which changes no gate.
  const Json listed = eval("gated", {"--per-head"});
  EXPECT_EQ(listed["open_edges"], hard["open_edges"]);
  EXPECT_NEAR(listed["loss"].get<double>(), hard["loss"].get<double>(), 1e-6);
  ExpectFailure({"eval", folder / "gated", "--text", folder / "text", "--gates", "ajar"}, 2,
                {"--gates", "ajar"});
}

TEST_P(WithModel, EvalDoesNotDependOnThreads) {
  const auto loss = [&](const char* threads) {
    return SucceedJson({"eval", path(), "--text", text(), "--threads", threads})["loss"]
        .get<double>();
  };
  EXPECT_EQ(loss("1"), loss("1"));
  EXPECT_NEAR(loss("1"), loss("2"), 1e-6);
}

TEST_P(WithModel, EvalRefusesWhatItCannotDo) {
  ExpectFailure({"eval", path(), "--text", folder_ / "absent"}, 1, {"absent"});
  ExpectFailure({"eval", path(), "--text", path()}, 1, {path(), "not a regular file"});
  ExpectFailure({"eval", path()}, 2, {"--text"});
  WriteFile(folder_ / "empty", "");
  ExpectFailure({"eval", path(), "--text", folder_ / "empty"}, 1, {"0 tokens"});
  WriteFile(folder_ / "one", "a");
  ExpectFailure({"eval", path(), "--text", folder_ / "one"}, 1, {"1 token"});
  ExpectFailure({"eval", path(), "--text", text(), "--context", "49"}, 1, {"49", "48 positions"});
  ExpectFailure({"eval", path(), "--text", text(), "--context", "0"}, 2, {"--context"});
  ExpectFailure({"eval", path(), "--text", text(), "--tokens", "-3"}, 2, {"--tokens"});
  ExpectFailure({"eval", path(), "--text", text()}, 1, {"standard output"}, {.out = "/dev/full"});
  ExpectFailure({"eval", path(), "--text", text()}, 1, {"standard output"}, {.close_out = true});
  // A model without tokenizer files.
  ExpectFailure({"eval", GoldenModel("a").string(), "--text", text()}, 1,
                {GoldenModel("a").string()});
  // A tokenizer with more tokens than the model has embeddings.
  ModelConfig config = model_.config;
  config.vocabulary = 100;
  SaveModel(LivelyModel(config, 3), path());
  ExpectFailure({"eval", path(), "--text", text()}, 1, {"token id", "vocabulary of 100"});
}

TEST(Generate, GreedyMatchesHuggingFace) {
  for (const char* name : {"a", "b", "c-untied"}) {
    const Json golden = ReadJsonFile(GoldenModel(name) / "golden.json");
    ASSERT_FALSE(golden["generate"].empty());
    for (const Json& c : golden["generate"]) {
      const std::string prompt =
          fmt::format("{}", fmt::join(c["prompt"].get<std::vector<int>>(), ","));
      const std::vector<std::string> command = {"generate",  GoldenModel(name).string(),
                                                "--ids",     prompt,
                                                "--max-new", c["new_tokens"].dump()};
      const Json json = SucceedJson(command);
      EXPECT_EQ(json["ids"], c["ids"]) << name;
      EXPECT_EQ(json["new_tokens"], c["ids"].size() - c["prompt"].size());
      EXPECT_FALSE(json.contains("text"));
      // Without a tokenizer people see the new ids.
      std::string expected;
      for (std::size_t i = c["prompt"].size(); i < c["ids"].size(); ++i)
        expected += fmt::format(" {}", c["ids"][i].dump());
      EXPECT_EQ(Succeed(command).out, expected + "\n");
    }
  }
}

TEST_P(WithModel, GenerateContinuesAText) {
  const std::string prompt = "The cat";
  const std::vector<std::string> command = {"generate", path(),      "--prompt",
                                            prompt,     "--max-new", "11"};
  const Json json = SucceedJson(command);
  const std::vector<std::int32_t> ids = json["ids"].get<std::vector<std::int32_t>>();
  const std::vector<std::int32_t> expected = tokenizer_.Encode(prompt);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin()));
  EXPECT_EQ(json["new_tokens"], ids.size() - expected.size());
  EXPECT_TRUE(json["text"].get<std::string>().starts_with(prompt));
  // What people see is the same text, bytes and all (ids of padding have none).
  const bool padding = std::any_of(
      ids.begin(), ids.end(), [&](std::int32_t id) { return id >= tokenizer_.vocabulary_size(); });
  if (!padding) {
    EXPECT_EQ(Succeed(command).out, tokenizer_.DecodeBytes(ids) + "\n");
  }
  // To the last position, never beyond, unless the end of the text comes first.
  const Json longest = SucceedJson({"generate", path(), "--prompt", prompt, "--max-new", "1000"});
  EXPECT_TRUE(longest["ids"].size() == 48 || longest["ids"].back() == *tokenizer_.end_of_text());
  EXPECT_EQ(SucceedJson({"generate", path(), "--prompt", prompt, "--max-new", "0"})["ids"].size(),
            expected.size());
  // An empty prompt starts at the end of the text before.
  EXPECT_EQ(SucceedJson({"generate", path(), "--prompt", "", "--max-new", "1"})["ids"][0],
            *tokenizer_.end_of_text());
}

TEST_P(WithModel, GenerateSamplesBySeed) {
  const auto ids = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"generate", path(), "--ids", "3,1,4", "--max-new", "30"};
    command.insert(command.end(), more.begin(), more.end());
    return SucceedJson(command)["ids"];
  };
  const Json seven = ids({"--temperature", "1.5", "--seed", "7"});
  EXPECT_EQ(ids({"--temperature", "1.5", "--seed", "7"}), seven);
  EXPECT_EQ(ids({"--temperature", "1.5", "--seed", "7", "--threads", "1"}), seven);
  EXPECT_NE(ids({"--temperature", "1.5", "--seed", "8"}), seven);
  EXPECT_NE(ids({"--temperature", "5", "--seed", "7"}), seven);
  EXPECT_EQ(ids({"--temperature", "1.5", "--top-k", "1"}), ids({}));
  EXPECT_EQ(ids({"--temperature", "0", "--seed", "8"}), ids({}));
}

TEST_P(WithModel, GenerateRefusesWhatItCannotDo) {
  ExpectFailure({"generate", path()}, 2, {"--prompt", "--ids"});
  ExpectFailure({"generate", path(), "--prompt", "a", "--ids", "1"}, 2, {"exactly one"});
  ExpectFailure({"generate", path(), "--ids", ""}, 2, {"''"});
  ExpectFailure({"generate", path(), "--ids", "293"}, 1, {"293", "vocabulary of 293"});
  ExpectFailure({"generate", path(), "--ids", "-1"}, 1, {"-1"});
  ExpectFailure({"generate", path(), "--prompt", SmallText()}, 1, {"48 positions"});
  for (const char* wrong : {"-1", "hot", "nan", "inf", "1e9"}) {
    ExpectFailure({"generate", path(), "--ids", "1", "--temperature", wrong}, 2,
                  {"--temperature", wrong});
  }
  ExpectFailure({"generate", path(), "--ids", "1", "--top-k", "0"}, 2, {"--top-k"});
  ExpectFailure({"generate", path(), "--ids", "1", "--max-new", "-1"}, 2, {"--max-new"});
  ExpectFailure({"generate", path(), "--ids", "1", "--seed", "-1"}, 2, {"--seed"});
  ExpectFailure({"generate", path(), "--ids", "1", "--threads", "0"}, 2, {"--threads"});
  ExpectFailure({"generate", path(), "--ids", "1"}, 1, {"standard output"}, {.out = "/dev/full"});
  ExpectFailure({"generate", path(), "--prompt", "a", "--json"}, 1, {"standard output"},
                {.close_out = true});
}

TEST_P(WithModel, WriteMakesATextOfDocuments) {
  const auto write = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"write", path(), "--out", folder_ / "own"};
    command.insert(command.end(), more.begin(), more.end());
    const Json json = SucceedJson(command);
    return std::pair(json, ReadFile(folder_ / "own"));
  };
  const auto [json, text] = write({"--documents", "9", "--batch", "4", "--seed", "3"});
  EXPECT_EQ(json["documents"], 9);
  EXPECT_GT(json["tokens"].get<int>(), 9);
  // The end-of-text token stands between documents and in none of them.
  const std::vector<std::int32_t> ids = tokenizer_.Encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer_.end_of_text()), 8);
  EXPECT_EQ(write({"--documents", "9", "--batch", "4", "--seed", "3"}).second, text);
  EXPECT_NE(write({"--documents", "9", "--batch", "4", "--seed", "4"}).second, text);
  // In two pieces: the same documents.
  const std::string end(tokenizer_.TokenBytes(*tokenizer_.end_of_text()));
  const std::string first = write({"--documents", "4", "--batch", "4", "--seed", "3"}).second;
  const std::string rest =
      write({"--documents", "5", "--first", "4", "--batch", "4", "--seed", "3"}).second;
  EXPECT_EQ(first + end + rest, text);
  // As tokens: the same documents, each behind the token that begins it; what reads texts takes
  // them.
  const std::string tokens = folder_ / "own.safetensors";
  Succeed({"write", path(), "--documents", "9", "--batch", "4", "--seed", "3", "--out", tokens});
  const std::vector<std::int32_t> kept = EncodeDocument(tokenizer_, tokens);
  EXPECT_EQ(kept.front(), *tokenizer_.end_of_text());
  EXPECT_EQ(std::count(kept.begin(), kept.end(), *tokenizer_.end_of_text()), 9);
  EXPECT_EQ(SucceedJson({"eval", path(), "--text", tokens})["tokens"].get<std::size_t>(),
            kept.size() - 1);
  ExpectFailure({"write", path(), "--documents", "1", "--out", folder_ / "no/own.safetensors"}, 1,
                {"own.safetensors"});
  // Greedy, with a start of one's own and an end.
  const std::string cat =
      write({"--documents", "1", "--prompt", "The cat", "--temperature", "0", "--longest", "5"})
          .second;
  EXPECT_TRUE(cat.starts_with("The cat")) << cat;
  EXPECT_THAT(Succeed({"write", path(), "--documents", "2", "--out", folder_ / "own"}).out,
              testing::HasSubstr("2 documents"));
}

TEST_P(WithModel, WriteRefusesWhatItCannotDo) {
  const std::string out = folder_ / "own";
  ExpectFailure({"write", path(), "--out", out}, 2, {"--documents"});
  ExpectFailure({"write", path(), "--documents", "0", "--out", out}, 2, {"--documents"});
  ExpectFailure({"write", path(), "--documents", "1"}, 2, {"--out"});
  ExpectFailure({"write", path(), "--documents", "1", "--batch", "0", "--out", out}, 2,
                {"--batch"});
  ExpectFailure({"write", path(), "--documents", "1", "--prompt", SmallText(), "--out", out}, 1,
                {"48 positions"});
  ExpectFailure({"write", path(), "--documents", "1", "--out", folder_ / "no" / "own"}, 1, {"own"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace clearhead
