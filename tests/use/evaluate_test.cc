// SPDX-License-Identifier: MIT
// Evaluation: the windows, and the counts of a gated model's gates.
#include "use/evaluate.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

// The definition, one window at a time.
struct Slow {
  std::vector<double> window_losses;
  double loss = 0.0;
  std::int64_t tokens = 0, causal = 0;
  std::vector<std::int64_t> open;
  std::vector<double> probability;
};

Slow SlowEvaluation(const Model& model, const std::vector<std::int32_t>& tokens,
                    std::int64_t context, std::int64_t predictions) {
  const ModelConfig& config = model.config;
  Slow slow;
  slow.open.resize(static_cast<std::size_t>(config.layers * config.heads));
  slow.probability.resize(slow.open.size());
  for (std::int64_t first = 0; first < predictions; first += context) {
    const std::int64_t length = std::min(context, predictions - first);
    const std::vector<std::int32_t> window(tokens.begin() + first, tokens.begin() + first + length);
    const ModelRun run = RunModel(model, window, 1, {.taps = AllTaps(config)});
    double sum = 0.0;
    for (std::int64_t t = 0; t < length; ++t) {
      const float* row = run.logits.data() + t * config.vocabulary;
      double total = 0.0;
      for (std::int64_t v = 0; v < config.vocabulary; ++v) total += std::exp(double{row[v]});
      sum += std::log(total) - row[tokens[static_cast<std::size_t>(first + t + 1)]];
    }
    slow.window_losses.push_back(sum / static_cast<double>(length));
    slow.loss += sum;
    slow.tokens += length;
    slow.causal += length * (length + 1) / 2;
    if (config.attention != AttentionKind::kGated) continue;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const auto& mask = run.taps.at({Tap::kSparseMask, layer}).values;
      const auto& probability = run.taps.at({Tap::kGateProb, layer}).values;
      for (std::int64_t i = 0; i < config.heads * length * length; ++i) {
        if (i % length > i / length % length) continue;
        const auto head = static_cast<std::size_t>(layer * config.heads + i / (length * length));
        slow.open[head] += mask[static_cast<std::size_t>(i)] > 0 ? 1 : 0;
        slow.probability[head] += probability[static_cast<std::size_t>(i)];
      }
    }
  }
  slow.loss /= static_cast<double>(slow.tokens);
  return slow;
}

TEST(Evaluate, FollowsTheDefinition) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 41);
    for (const std::int64_t count : {2, 6, 18, 19, 50}) {
      const std::vector<std::int32_t> tokens = RandomIds(config, count, 42);
      for (const std::int64_t context : {0, 1, 5, 16, 17}) {
        for (const std::int64_t max_tokens : {0, 1, 13, 1000}) {
          SCOPED_TRACE(
              fmt::format("{} tokens, context {}, at most {}", count, context, max_tokens));
          const Evaluation result =
              Evaluate(model, tokens, {.context = context, .max_tokens = max_tokens});
          const std::int64_t window = context == 0 ? 17 : context;
          const Slow slow = SlowEvaluation(
              model, tokens, window, max_tokens == 0 ? count - 1 : std::min(count - 1, max_tokens));
          EXPECT_NEAR(result.loss, slow.loss, 5e-6);
          EXPECT_EQ(result.tokens, slow.tokens);
          EXPECT_EQ(result.windows, static_cast<std::int64_t>(slow.window_losses.size()));
          EXPECT_EQ(result.context, window);
          EXPECT_EQ(result.causal_edges, slow.causal);
          ASSERT_EQ(result.window_losses.size(), slow.window_losses.size());
          for (std::size_t i = 0; i < slow.window_losses.size(); ++i) {
            EXPECT_NEAR(result.window_losses[i], slow.window_losses[i], 5e-6);
          }
          if (config.attention == AttentionKind::kSoftmax) {
            EXPECT_TRUE(result.open_edges.empty());
            continue;
          }
          EXPECT_EQ(result.open_edges, slow.open);
          ASSERT_EQ(result.gate_probability.size(), slow.probability.size());
          for (std::size_t i = 0; i < slow.probability.size(); ++i) {
            EXPECT_NEAR(result.gate_probability[i], slow.probability[i],
                        1e-6 * (1.0 + slow.probability[i]));
          }
        }
      }
    }
  }
}

TEST(Evaluate, DoesNotDependOnTheBatch) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 43);
    const std::vector<std::int32_t> tokens = RandomIds(config, 100, 44);
    const Evaluation expected = Evaluate(model, tokens, {.context = 7, .batch_tokens = 1});
    for (const std::int64_t batch_tokens : {7, 13, 14, 35, 64, 1 << 20}) {
      std::int64_t done = 0, total = 0;
      const Evaluation result = Evaluate(model, tokens,
                                         {.context = 7,
                                          .batch_tokens = batch_tokens,
                                          .progress = [&](std::int64_t d, std::int64_t t) {
                                            EXPECT_GT(d, done);
                                            done = d;
                                            total = t;
                                          }});
      EXPECT_NEAR(result.loss, expected.loss, 1e-6);
      EXPECT_EQ(result.windows, 15);
      EXPECT_EQ(result.tokens, 99);
      EXPECT_EQ(result.open_edges, expected.open_edges);
      EXPECT_EQ(done, 99);
      EXPECT_EQ(total, 99);
    }
  }
}

TEST(Evaluate, ProbabilitiesAreOptional) {
  const Model model = LivelyModel(GatedConfig(), 48);
  const std::vector<std::int32_t> tokens = RandomIds(model.config, 40, 49);
  for (const GateMode mode : {GateMode::kHard, GateMode::kSampled}) {
    const Evaluation with = Evaluate(model, tokens, {.gates = {.mode = mode}});
    const Evaluation without =
        Evaluate(model, tokens, {.gates = {.mode = mode, .sum_probabilities = false}});
    EXPECT_FALSE(with.gate_probability.empty());
    EXPECT_TRUE(without.gate_probability.empty());
    EXPECT_EQ(with.open_edges, without.open_edges);
    EXPECT_NEAR(with.loss, without.loss, 1e-6);
  }
}

TEST(Evaluate, OpenGatesAreNotCounted) {
  const Model model = LivelyModel(GatedConfig(), 45);
  const std::vector<std::int32_t> tokens = RandomIds(model.config, 30, 46);
  const Evaluation open = Evaluate(model, tokens, {.gates = {.open = true}});
  EXPECT_TRUE(open.open_edges.empty());
  Model dense = model;
  dense.config.attention = AttentionKind::kSoftmax;
  EXPECT_EQ(open.loss, Evaluate(dense, tokens, {}).loss);
  EXPECT_NE(open.loss, Evaluate(model, tokens, {}).loss);
}

TEST(Evaluate, RefusesWhatItCannotDo) {
  const Model model = LivelyModel(OddConfig(), 47);
  const auto refusal = [&](const std::vector<std::int32_t>& tokens, std::int64_t context) {
    return ErrorOf([&] { Evaluate(model, tokens, {.context = context}); });
  };
  EXPECT_NE(refusal({}, 0).find("0 tokens long"), std::string::npos);
  EXPECT_NE(refusal({1}, 0).find("1 tokens long"), std::string::npos);
  EXPECT_NE(refusal({1, 2}, 18).find("17 positions"), std::string::npos);
  EXPECT_NE(refusal({1, 2, 23}, 0).find("token id 23"), std::string::npos);
  EXPECT_NE(refusal({1, 2, -1}, 0).find("token id -1"), std::string::npos);
  EXPECT_EQ(refusal({1, 22}, 17), "");
}

}  // namespace
}  // namespace clearhead
