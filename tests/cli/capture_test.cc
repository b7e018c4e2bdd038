// SPDX-License-Identifier: MIT
// clearhead capture, end to end, against Hugging Face's values.
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/small_model.h"
#include "support/golden_models.h"

namespace clearhead {
namespace {

std::string Rows(const GoldenCase& c) {
  Json rows = Json::array();
  for (std::int64_t b = 0; b < c.batch; ++b) {
    rows.push_back(std::vector<std::int32_t>(c.ids.begin() + b * c.length,
                                             c.ids.begin() + (b + 1) * c.length));
  }
  return ToText(rows);
}

TEST(Capture, BatchMatchesHuggingFace) {
  const GoldenCase c = GoldenCases(GoldenModel("b"))[0];
  const auto golden = ReadGolden(c.tensors);
  const TemporaryFolder folder;
  WriteFile(folder / "ids.json", Rows(c));
  const std::string out = folder / "run.safetensors";
  const Json json =
      SucceedJson({"capture", GoldenModel("b").string(), "--ids-file", folder / "ids.json",
                   "--taps", "blocks.*.attn.hook_pattern,hook_embed", "--gradients", "--out", out});
  const auto run = ReadGolden(out);
  EXPECT_EQ(json["out"], out);
  EXPECT_EQ(json["batch"], c.batch);
  EXPECT_EQ(json["length"], c.length);
  EXPECT_EQ(json["tensors"], run.size() + 1);  // and ids
  EXPECT_NEAR(json["loss"].get<double>(), c.loss, 1e-5);
  std::int64_t bytes = 4 * c.batch * c.length;
  for (const auto& [name, tensor] : run)
    bytes += static_cast<std::int64_t>(4 * tensor.values.size());
  EXPECT_EQ(json["bytes"], bytes);

  EXPECT_EQ(run.at("logits").shape, golden.at("logits").shape);
  EXPECT_LE(MaxAbsDifference(run.at("logits").values, golden.at("logits").values), 1e-4);
  EXPECT_NEAR(run.at("loss").values[0], c.loss, 1e-5);
  int patterns = 0, gradients = 0;
  for (const auto& [name, expected] : golden) {
    if (name.starts_with("attn.")) {
      const std::string tap = "blocks." + name.substr(5) + ".attn.hook_pattern";
      EXPECT_LE(MaxAbsDifference(run.at(tap).values, expected.values), 1e-5) << name;
      EXPECT_TRUE(run.contains("grad." + tap));
      ++patterns;
    }
    if (name.starts_with("grad.")) {
      EXPECT_LE(MaxRelativeDifference(run.at(name).values, expected.values), 5e-5) << name;
      ++gradients;
    }
  }
  EXPECT_EQ(patterns, 4);
  EXPECT_EQ(run.size(), static_cast<std::size_t>(1 + 1 + gradients + 2 * (patterns + 1)));
}

TEST(Capture, OneSequenceFromTheCommandLine) {
  const GoldenCase c = GoldenCases(GoldenModel("a"))[2];  // b1t1
  ASSERT_EQ(c.batch, 1);
  const TemporaryFolder folder;
  const std::string out = folder / "run.safetensors";
  const std::string text =
      Succeed({"capture", GoldenModel("a").string(), "--ids", IdList(c.ids), "--out", out}).out;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const auto run = ReadGolden(out);
  EXPECT_EQ(run.size(), 1u);
  EXPECT_LE(MaxAbsDifference(run.at("logits").values, ReadGolden(c.tensors).at("logits").values),
            1e-4);
  EXPECT_EQ(FilesIn(folder.path()), std::vector<std::string>{"run.safetensors"});
}

TEST(Capture, AllTapsOfEveryKindOfModel) {
  for (const bool gated : {false, true}) {
    const TemporaryFolder folder;
    const Model model = MakeSmallModel(folder / "m", gated);
    const std::string out = folder / "run.safetensors";
    const std::vector<std::string> command = {
        "capture",     folder / "m", "--prompt", "The cat sat on the mat.", "--taps", "all",
        "--gradients", "--out",      out};
    Succeed(command);
    const auto run = ReadGolden(out);
    const std::vector<std::int32_t> ids =
        Tokenizer::Load(folder / "m").Encode("The cat sat on the mat.");
    EXPECT_EQ(run.at("logits").shape[1], static_cast<std::int64_t>(ids.size()));
    const auto expected =
        RunCapture(model, ids, 1, {.taps = AllTaps(model.config), .gradients = true});
    ASSERT_EQ(run.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(run.contains(name)) << name;
      EXPECT_EQ(run.at(name).shape, tensor.shape) << name;
      EXPECT_LE(MaxRelativeDifference(run.at(name).values, tensor.values), 1e-5) << name;
    }
    if (!gated) continue;
    // All gates open: a dense model, which has no gates to look at.
    std::vector<std::string> open = command;
    open.insert(open.end(), {"--gates", "open"});
    Succeed(open);
    const auto dense = ReadGolden(out);
    EXPECT_FALSE(dense.contains("blocks.0.attn.hook_sparse_mask"));
    EXPECT_NE(dense.at("logits").values, run.at("logits").values);
    // Sampled gates depend on the seed and on nothing else.
    std::vector<std::vector<float>> sampled;
    for (const char* seed : {"1", "1", "2"}) {
      std::vector<std::string> sample = command;
      sample.insert(sample.end(), {"--gates", "sampled", "--seed", seed});
      Succeed(sample);
      sampled.push_back(ReadGolden(out).at("logits").values);
    }
    EXPECT_EQ(sampled[0], sampled[1]);
    EXPECT_NE(sampled[0], sampled[2]);
  }
}

TEST(Capture, GateWeightEntersTheGradients) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "m", /*gated=*/true);
  const auto gradients = [&](const char* weight) {
    Succeed({"capture", folder / "m", "--ids", "1,2,3,4,5", "--gradients", "--gate-weight", weight,
             "--out", folder / "run"});
    return ReadGolden(folder / "run");
  };
  const auto without = gradients("0"), with = gradients("3");
  EXPECT_EQ(without.at("loss").values, with.at("loss").values);
  EXPECT_NE(without.at("grad.transformer.h.0.attn.c_attn.weight").values,
            with.at("grad.transformer.h.0.attn.c_attn.weight").values);
}

TEST(Capture, ThreadsDoNotMatter) {
  const GoldenCase c = GoldenCases(GoldenModel("b"))[0];
  const TemporaryFolder folder;
  WriteFile(folder / "ids.json", Rows(c));
  const auto capture = [&](const std::string& threads, const std::string& name) {
    Succeed({"capture", GoldenModel("b").string(), "--ids-file", folder / "ids.json", "--taps",
             "all", "--gradients", "--threads", threads, "--out", folder / name});
  };
  capture("1", "1");
  capture("1", "1-again");
  capture("2", "2");
  capture("2", "2-again");
  EXPECT_EQ(ReadFile(folder / "1"), ReadFile(folder / "1-again"));
  EXPECT_EQ(ReadFile(folder / "2"), ReadFile(folder / "2-again"));
  const auto one = ReadGolden(folder / "1"), two = ReadGolden(folder / "2");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [name, tensor] : one) {
    EXPECT_LE(MaxRelativeDifference(two.at(name).values, tensor.values), 1e-5) << name;
  }
}

TEST(Capture, ReplacesAnOlderFile) {
  const TemporaryFolder folder;
  WriteFile(folder / "run", "old");
  Succeed({"capture", GoldenModel("a").string(), "--ids", "1,2", "--out", folder / "run"});
  EXPECT_EQ(ReadGolden(folder / "run").at("logits").shape, (std::vector<std::int64_t>{1, 2, 97}));
}

}  // namespace
}  // namespace clearhead
