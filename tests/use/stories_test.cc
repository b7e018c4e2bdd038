// SPDX-License-Identifier: MIT
// A real pretrained model that nobody here made: stories15M, from the npm package that
// scripts/fetch-test-data fetches, against the values Hugging Face computes of it.
#include <gtest/gtest.h>

#include "core/safetensors.h"
#include "model/import.h"
#include "support/golden_models.h"
#include "use/evaluate.h"
#include "use/generate.h"

namespace clearhead {
namespace {

class StoriesTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::path(CLEARHEAD_FETCHED_DATA) / "stories15M/model.bin";
    if (!std::filesystem::exists(file_)) {
      GTEST_SKIP() << "stories15M was not fetched; scripts/fetch-test-data gets it from npm";
    }
    model_ = ImportModel(file_);
    golden_ = ReadJsonFile(Folder() / "golden.json");
  }
  static std::filesystem::path Folder() { return GoldenFolder() / "llama/stories15M"; }

  std::filesystem::path file_;
  Model model_;
  Json golden_;
};

TEST_F(StoriesTest, LogitsAndAttentionAreHuggingFaces) {
  const std::int64_t V = model_.config.vocabulary;
  for (const Json& prompt : golden_["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<std::int32_t>>();
    const auto T = static_cast<std::int64_t>(ids.size());
    const auto run = RunCapture(model_, ids, 1,
                                {.taps = MatchTaps("blocks.*.attn.hook_pattern", model_.config)});
    const auto golden = ReadGolden(Folder() / prompt["tensors"].get<std::string>());
    const auto& logits = run.at("logits").values;
    const auto& top = golden.at("top.values").values;
    double worst = 0.0;
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t k = 0; k < 20; ++k) {
        const auto id = prompt["top_ids"][static_cast<std::size_t>(t)][static_cast<std::size_t>(k)]
                            .get<std::int64_t>();
        worst = std::max(worst,
                         std::abs(static_cast<double>(logits[static_cast<std::size_t>(t * V + id)] -
                                                      top[static_cast<std::size_t>(t * 20 + k)])));
      }
    }
    EXPECT_LE(worst, 5e-4);
    const std::vector<float> last(logits.end() - V, logits.end());
    EXPECT_LE(MaxAbsDifference(last, golden.at("logits_last").values), 5e-4);
    for (const auto& [name, expected] : golden) {
      if (!name.starts_with("attn.")) continue;
      const auto& ours = run.at("blocks." + name.substr(5) + ".attn.hook_pattern").values;
      EXPECT_LE(MaxAbsDifference(ours, expected.values), 1e-5) << name;
    }
  }
}

TEST_F(StoriesTest, GreedyTextIsHuggingFaces) {
  for (const Json& prompt : golden_["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<std::int32_t>>();
    const auto expected = prompt["greedy_ids"].get<std::vector<std::int32_t>>();
    const Generation result =
        Generate(model_, ids, {.max_new = static_cast<std::int64_t>(expected.size() - ids.size())});
    EXPECT_EQ(result.ids, expected);
  }
}

TEST_F(StoriesTest, LossIsHuggingFaces) {
  const Json& story = golden_["story"];
  const auto ids = story["ids"].get<std::vector<std::int32_t>>();
  const Recording run = Record(model_, ids, 1, {.gradients = true});
  EXPECT_NEAR(run.loss, 0.760100, 5e-5);
}

}  // namespace
}  // namespace clearhead
