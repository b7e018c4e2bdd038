// SPDX-License-Identifier: MIT
// Generation: the cache against full recomputation, where it ends, what is drawn.
#include "use/generate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/threads.h"
#include "model/model_testing.h"
#include "support/golden_models.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

// Logits of every position, the tokens fed in pieces of the given lengths through one cache.
std::vector<float> CachedLogits(const Model& model, const std::vector<std::int32_t>& ids,
                                const std::vector<std::int64_t>& pieces, const GateRun& gates) {
  KeyValueCache cache(model.config, 1, static_cast<std::int64_t>(ids.size()));
  std::vector<float> logits(ids.size() * static_cast<std::size_t>(model.config.vocabulary));
  std::int64_t done = 0;
  for (const std::int64_t length : pieces) {
    const Pass pass{.model = model, .batch = 1, .length = length, .cache = &cache, .gates = gates};
    Activations activations(model.config, 1, length, Keep::kNothing, 0);
    Forward(pass, ids.data() + done, activations, logits.data() + done * model.config.vocabulary);
    done += length;
  }
  EXPECT_EQ(done, static_cast<std::int64_t>(ids.size()));
  return logits;
}

TEST(KeyValueCache, PiecesGiveTheLogitsOfTheWhole) {
  const GateRun sampled{.mode = GateMode::kSampled, .noise = {.seed = 7}};
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 31);
    const std::vector<std::int32_t> ids = RandomIds(config, 17, 32);
    for (const GateRun& gates : {GateRun{}, sampled, GateRun{.open = true}}) {
      const std::vector<float> whole = RunModel(model, ids, 1, {.gates = gates}).logits;
      for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{17},
                                                      {16, 1},
                                                      {1, 16},
                                                      {5, 1, 7, 1, 1, 2},
                                                      std::vector<std::int64_t>(17, 1)}) {
        EXPECT_LE(MaxRelativeDifference(CachedLogits(model, ids, pieces, gates), whole), 2e-6);
      }
    }
  }
}

std::int32_t ArgMax(const float* logits, std::int64_t count) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + count) - logits);
}

TEST(Generate, EveryGreedyTokenIsTheLikeliest) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 33);
    for (const std::int64_t prompt : {1, 2, 7, 16}) {
      const Generation result = Generate(model, RandomIds(config, prompt, 34), {.max_new = 100});
      ASSERT_EQ(result.ids.size(), 17u) << "goes on to the model's last position";
      EXPECT_EQ(result.new_tokens, 17 - prompt);
      for (std::int64_t length = prompt; length < 17; ++length) {
        const std::vector<std::int32_t> before(result.ids.begin(), result.ids.begin() + length);
        const std::vector<float> logits = RunModel(model, before, 1).logits;
        EXPECT_EQ(ArgMax(logits.data() + (length - 1) * config.vocabulary, config.vocabulary),
                  result.ids[static_cast<std::size_t>(length)]);
      }
    }
  }
}

TEST(Generate, EndsWhereItShould) {
  const Model model = LivelyModel(OddConfig(), 35);
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const Generation all = Generate(model, prompt, {.max_new = 100});
  ASSERT_EQ(all.ids.size(), 17u);

  const Generation five = Generate(model, prompt, {.max_new = 5});
  EXPECT_EQ(five.new_tokens, 5);
  EXPECT_EQ(five.ids, std::vector<std::int32_t>(all.ids.begin(), all.ids.begin() + 8));

  const Generation none = Generate(model, prompt, {.max_new = 0});
  EXPECT_EQ(none.ids, prompt);
  EXPECT_EQ(none.new_tokens, 0);

  // The stop token ends the text and is part of it.
  const std::int32_t stop = all.ids[6];
  const auto first = std::find(all.ids.begin() + 3, all.ids.end(), stop);
  const Generation stopped = Generate(model, prompt, {.max_new = 100, .stop_tokens = {stop}});
  EXPECT_EQ(stopped.ids, std::vector<std::int32_t>(all.ids.begin(), first + 1));

  // So does the caller; it sees every new token in order.
  std::vector<std::int32_t> seen;
  const Generation refused = Generate(model, prompt, {.max_new = 100}, [&](std::int32_t id) {
    seen.push_back(id);
    return seen.size() < 4;
  });
  EXPECT_EQ(refused.new_tokens, 4);
  EXPECT_EQ(seen, std::vector<std::int32_t>(all.ids.begin() + 3, all.ids.begin() + 7));

  // A full prompt leaves no room; a longer one is refused.
  EXPECT_EQ(Generate(model, RandomIds(model.config, 17, 1), {}).new_tokens, 0);
  EXPECT_NE(
      ErrorOf([&] { Generate(model, RandomIds(model.config, 18, 1), {}); }).find("17 positions"),
      std::string::npos);
  EXPECT_NE(ErrorOf([&] { Generate(model, {}, {}); }).find("no tokens"), std::string::npos);
  EXPECT_NE(ErrorOf([&] { Generate(model, {23}, {}); }).find("token id 23"), std::string::npos);
}

TEST(Generate, SamplesDependOnTheSeedAlone) {
  const Model model = LivelyModel(OddConfig(), 36);
  const GenerateOptions options{.max_new = 16, .temperature = 1.5, .seed = 5};
  const std::vector<std::int32_t> first = Generate(model, {2}, options).ids;
  {
    const UseThreads scope(Threads() + 1);
    EXPECT_EQ(Generate(model, {2}, options).ids, first);
  }
  GenerateOptions other = options;
  other.seed = 6;
  EXPECT_NE(Generate(model, {2}, other).ids, first);
  // One candidate is no choice.
  GenerateOptions one = options;
  one.top_k = 1;
  EXPECT_EQ(Generate(model, {2}, one).ids, Generate(model, {2}, {.max_new = 16}).ids);
}

// Uniform numbers on a grid of n cells fall into each token's share to within one cell at either
// end.
std::vector<double> Shares(const std::vector<float>& logits, const GenerateOptions& options,
                           int n) {
  std::vector<double> shares(logits.size(), 0.0);
  for (int i = 0; i < n; ++i) {
    ++shares[static_cast<std::size_t>(SampleToken(logits, options, (i + 0.5) / n))];
  }
  for (double& share : shares) share /= n;
  return shares;
}

TEST(SampleToken, DrawsFromTheTemperedSoftmax) {
  const std::vector<float> logits = {0.3f, -2.0f, 1.9f, 1.9f, -30.0f, 0.0f, 80.0f - 79.0f};
  for (const double temperature : {0.25, 1.0, 3.0}) {
    for (const std::int64_t top_k : {0, 1, 3, 6, 7, 100}) {
      SCOPED_TRACE(fmt::format("temperature {} top-k {}", temperature, top_k));
      std::vector<std::size_t> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](auto a, auto b) { return logits[a] > logits[b]; });
      if (top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(top_k)));
      std::vector<double> expected(logits.size(), 0.0);
      double sum = 0.0;
      for (const std::size_t token : order) sum += std::exp(logits[token] / temperature);
      for (const std::size_t token : order)
        expected[token] = std::exp(logits[token] / temperature) / sum;
      const int n = 20000;
      const std::vector<double> shares =
          Shares(logits, {.temperature = temperature, .top_k = top_k}, n);
      for (std::size_t token = 0; token < logits.size(); ++token) {
        EXPECT_NEAR(shares[token], expected[token], 2.0 / n) << token;
      }
    }
  }
}

TEST(SampleToken, TakesTheFirstOfEqualsAtTemperatureZero) {
  EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2, 3}, {}, 0.99), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{-1}, {}, 0.5), 0);
  // Huge logits do not overflow, and the ends of (0, 1) stay inside.
  EXPECT_EQ(SampleToken(std::vector<float>{3e38f, -3e38f}, {.temperature = 1.0}, 0.999999), 0);
  EXPECT_EQ(SampleToken(std::vector<float>{0, 0, 0}, {.temperature = 1.0}, 0.0), 0);
  EXPECT_EQ(SampleToken(std::vector<float>{0, 0, 0}, {.temperature = 1.0}, 1.0), 2);
  // A temperature that fp32 cannot hold is still one.
  EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2}, {.temperature = 1e-50}, 0.5), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2}, {.temperature = 5e-324}, 0.5), 1);
}

}  // namespace
}  // namespace clearhead
