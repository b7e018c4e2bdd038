// SPDX-License-Identifier: MIT
// Comparison of two models against a plain loop over their logits in double.
#include "use/compare.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

struct Slow {
  std::vector<double> differences, lengths;
  double loss_a = 0.0, loss_b = 0.0, divergence = 0.0;
  std::int64_t same = 0;
};

std::vector<double> LogSoftmax(const float* row, std::int64_t count) {
  double total = 0.0;
  for (std::int64_t v = 0; v < count; ++v) total += std::exp(double{row[v]});
  std::vector<double> result;
  for (std::int64_t v = 0; v < count; ++v) result.push_back(row[v] - std::log(total));
  return result;
}

Slow SlowComparison(const Model& a, const Model& b, const std::vector<std::int32_t>& tokens,
                    std::int64_t context, std::int64_t predictions, const GateRun& gates) {
  const std::int64_t V = a.config.vocabulary;
  Slow slow;
  for (std::int64_t first = 0; first < predictions; first += context) {
    const std::int64_t length = std::min(context, predictions - first);
    const std::vector<std::int32_t> ids(tokens.begin() + first, tokens.begin() + first + length);
    const ModelRun run_a = RunModel(a, ids, 1, {.gates = gates});
    const ModelRun run_b = RunModel(b, ids, 1, {.gates = gates});
    double sum_a = 0.0, sum_b = 0.0;
    for (std::int64_t t = 0; t < length; ++t) {
      const auto target = static_cast<std::size_t>(tokens[static_cast<std::size_t>(first + t + 1)]);
      const std::vector<double> log_a = LogSoftmax(run_a.logits.data() + t * V, V);
      const std::vector<double> log_b = LogSoftmax(run_b.logits.data() + t * V, V);
      sum_a -= log_a[target];
      sum_b -= log_b[target];
      std::size_t best_a = 0, best_b = 0;
      for (std::size_t v = 0; v < log_a.size(); ++v) {
        slow.divergence += std::exp(log_a[v]) * (log_a[v] - log_b[v]);
        if (log_a[v] > log_a[best_a]) best_a = v;
        if (log_b[v] > log_b[best_b]) best_b = v;
      }
      slow.same += best_a == best_b;
    }
    slow.loss_a += sum_a;
    slow.loss_b += sum_b;
    slow.differences.push_back((sum_b - sum_a) / static_cast<double>(length));
    slow.lengths.push_back(static_cast<double>(length));
  }
  slow.loss_a /= static_cast<double>(predictions);
  slow.loss_b /= static_cast<double>(predictions);
  slow.divergence /= static_cast<double>(predictions);
  return slow;
}

// A neighbour of a model: every weight moved a little, so that predictions agree here and there.
Model Neighbour(const ModelConfig& config, std::uint64_t seed) {
  std::vector<float> values = LivelyParameters(config, seed);
  RandomStream random(seed + 1);
  for (float& value : values) value += 0.05f * static_cast<float>(random.Normal());
  return ModelOf(config, std::move(values));
}

TEST(Compare, FollowsTheDefinition) {
  ModelConfig shorter = GatedConfig();
  shorter.positions = 13;
  const Model dense = LivelyModel(OddConfig(), 41), gated = Neighbour(GatedConfig(), 41);
  const Model other = Neighbour(shorter, 43);
  const std::pair<const Model*, const Model*> pairs[] = {
      {&dense, &gated}, {&gated, &dense}, {&gated, &other}};
  for (const auto& [a, b] : pairs) {
    const std::int64_t longest = std::min(a->config.positions, b->config.positions);
    for (const std::int64_t count : {2, 6, 19, 80}) {
      const std::vector<std::int32_t> tokens = RandomIds(a->config, count, 42);
      for (const std::int64_t context : {0, 1, 5, 13}) {
        for (const std::int64_t max_tokens : {0, 1, 11}) {
          for (const bool open : {false, true}) {
            SCOPED_TRACE(fmt::format("{} tokens, context {}, at most {}, open {}", count, context,
                                     max_tokens, open));
            const EvaluateOptions options{
                .context = context, .max_tokens = max_tokens, .gates = {.open = open}};
            const Comparison result = Compare(*a, *b, tokens, options);
            const std::int64_t predictions =
                max_tokens == 0 ? count - 1 : std::min(count - 1, max_tokens);
            const Slow slow = SlowComparison(*a, *b, tokens, context == 0 ? longest : context,
                                             predictions, options.gates);
            EXPECT_NEAR(result.a.loss, slow.loss_a, 5e-6);
            EXPECT_NEAR(result.b.loss, slow.loss_b, 5e-6);
            EXPECT_NEAR(result.divergence, slow.divergence, 5e-6);
            EXPECT_EQ(result.same_prediction, slow.same);
            EXPECT_EQ(result.a.tokens, predictions);
            EXPECT_EQ(result.a.context, context == 0 ? longest : context);
            EXPECT_NEAR(result.difference.mean, result.b.loss - result.a.loss, 1e-12);
            const WeightedMean expected = MeanWithInterval(slow.differences, slow.lengths);
            ASSERT_EQ(result.difference.interval.has_value(), slow.differences.size() > 1);
            if (expected.interval) {
              // Two windows multiply the rounding of their difference by 12.7.
              EXPECT_NEAR(result.difference.interval->low, expected.interval->low, 2e-4);
              EXPECT_NEAR(result.difference.interval->high, expected.interval->high, 2e-4);
            }
          }
        }
      }
    }
  }
}

TEST(Compare, SidesAreWhatEvaluateFinds) {
  const Model a = LivelyModel(OddConfig(), 51), b = LivelyModel(GatedConfig(), 52);
  const std::vector<std::int32_t> tokens = RandomIds(a.config, 100, 53);
  for (const GateMode mode : {GateMode::kHard, GateMode::kSampled}) {
    const EvaluateOptions options{
        .context = 7, .gates = {.mode = mode, .noise = {.seed = 3}, .sum_probabilities = false}};
    const Comparison result = Compare(a, b, tokens, options);
    const Evaluation alone_a = Evaluate(a, tokens, options), alone_b = Evaluate(b, tokens, options);
    EXPECT_EQ(result.a.loss, alone_a.loss);
    EXPECT_EQ(result.b.loss, alone_b.loss);
    EXPECT_EQ(result.b.window_losses, alone_b.window_losses);
    EXPECT_TRUE(result.a.open_edges.empty());
    EXPECT_EQ(result.b.open_edges, alone_b.open_edges);
    EXPECT_EQ(result.b.causal_edges, alone_b.causal_edges);
    // Noise belongs to the window: grouping changes nothing.
    EvaluateOptions single = options;
    single.batch_tokens = 1;
    const Comparison one_by_one = Compare(a, b, tokens, single);
    EXPECT_EQ(one_by_one.b.open_edges, result.b.open_edges);
    EXPECT_EQ(one_by_one.same_prediction, result.same_prediction);
    EXPECT_NEAR(one_by_one.difference.interval->low, result.difference.interval->low, 1e-5);
  }
}

TEST(Compare, AModelAgreesWithItself) {
  const Model model = LivelyModel(GatedConfig(), 61);
  const std::vector<std::int32_t> tokens = RandomIds(model.config, 60, 62);
  const Comparison result = Compare(model, model, tokens, {.context = 9});
  EXPECT_EQ(result.same_prediction, 59);
  EXPECT_EQ(result.divergence, 0.0);
  EXPECT_EQ(result.difference.mean, 0.0);
  ASSERT_TRUE(result.difference.interval);
  EXPECT_EQ(result.difference.interval->low, 0.0);
  EXPECT_EQ(result.difference.interval->high, 0.0);
}

TEST(Compare, RefusesWhatItCannotDo) {
  ModelConfig wider = OddConfig(), shorter = OddConfig();
  wider.vocabulary = 29;
  shorter.positions = 5;
  const Model a = LivelyModel(OddConfig(), 1), b = LivelyModel(wider, 1),
              c = LivelyModel(shorter, 1);
  const std::string vocabularies = ErrorOf([&] { Compare(a, b, RandomIds(a.config, 9, 1), {}); });
  EXPECT_NE(vocabularies.find("23 and 29"), std::string::npos) << vocabularies;
  const std::string context =
      ErrorOf([&] { Compare(a, c, RandomIds(a.config, 9, 1), {.context = 6}); });
  EXPECT_NE(context.find("5 positions"), std::string::npos) << context;
  EXPECT_NE(ErrorOf([&] { Compare(a, c, std::vector<std::int32_t>{1}, {}); }), "");
}

}  // namespace
}  // namespace clearhead
