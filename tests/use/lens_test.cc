// SPDX-License-Identifier: MIT
#include "use/lens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/head_weights.h"
#include "model/model_testing.h"
#include "use/record.h"

namespace clearhead {
namespace {

// Final norm and output matrix of one row, in double.
std::vector<double> LogitsOf(const Model& model, const float* row) {
  const Norm norm = FinalNormOf(model);
  const std::int64_t C = norm.width;
  double mean = 0.0, squares = 0.0;
  for (std::int64_t i = 0; i < C; ++i) mean += row[i] / static_cast<double>(C);
  if (norm.kind == NormKind::kRms) mean = 0.0;
  for (std::int64_t i = 0; i < C; ++i) squares += (row[i] - mean) * (row[i] - mean);
  const double scale = std::sqrt(squares / static_cast<double>(C) + norm.epsilon);
  std::vector<double> logits;
  for (std::int32_t v = 0; v < model.config.vocabulary; ++v) {
    const std::vector<float> column = OutputRow(model, v);
    double sum = 0.0;
    for (std::int64_t i = 0; i < C; ++i) {
      const double gain = norm.weight == nullptr ? 1.0 : norm.weight[i];
      const double bias = norm.bias == nullptr ? 0.0 : norm.bias[i];
      sum += ((row[i] - mean) / scale * gain + bias) * column[static_cast<std::size_t>(i)];
    }
    logits.push_back(sum);
  }
  return logits;
}

double Probability(const std::vector<double>& logits, std::int32_t token) {
  double sum = 0.0;
  for (const double logit : logits)
    sum += std::exp(logit - logits[static_cast<std::size_t>(token)]);
  return 1.0 / sum;
}

TEST(Lens, EveryLayerIsNormedAndUnembedded) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const std::vector<std::int32_t> ids = RandomIds(config, 7, 3);
    const Lens lens = LookThrough(model, ids, {.likeliest = 3, .target = 5, .heads = false});
    ASSERT_EQ(lens.stream.size(), static_cast<std::size_t>(config.layers + 1));
    const Recording run =
        Record(model, ids, 1, {.taps = {{Tap::kResidPre, 0}, {Tap::kResidPre, 1}}});
    for (std::int64_t point = 0; point < 2; ++point) {
      const float* rows = run.values.at({Tap::kResidPre, point}).values.data();
      for (std::int64_t t = 0; t < 7; ++t) {
        const std::vector<double> logits = LogitsOf(model, rows + t * config.width);
        const LensCell& cell =
            lens.stream[static_cast<std::size_t>(point)][static_cast<std::size_t>(t)];
        EXPECT_NEAR(cell.target_probability, Probability(logits, 5), 1e-5);
        EXPECT_NEAR(cell.likeliest[0].probability, Probability(logits, cell.likeliest[0].token),
                    1e-5);
        EXPECT_EQ(cell.likeliest.size(), 3u);
        EXPECT_EQ(cell.target_rank == 0, cell.likeliest[0].token == 5);
      }
    }
    // The last row is what the model says.
    for (std::size_t t = 0; t < 7; ++t) {
      const std::span<const float> row(
          run.logits.data() + static_cast<std::int64_t>(t) * config.vocabulary,
          static_cast<std::size_t>(config.vocabulary));
      EXPECT_EQ(lens.stream.back()[t].likeliest[0].token, Likeliest(row, 1)[0].token);
    }
  }
}

// Shares of heads, embedding, MLPs and biases are the logits.
TEST(Lens, SharesAddUpToTheLogit) {
  for (const ModelConfig& config : TestConfigs()) {
    if (config.norm_place == NormPlace::kAfter) continue;
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const std::vector<std::int32_t> ids = RandomIds(config, 6, 4);
    const std::int64_t at = 4, C = config.width;
    const std::int32_t target = 9;
    const Lens lens = LookThrough(model, ids, {.likeliest = 2, .target = target, .position = at});
    ASSERT_EQ(lens.heads.size(), static_cast<std::size_t>(config.layers * config.heads));
    RecordOptions record{.taps = {{Tap::kResidPre, 0}, {Tap::kLnFinalScale, 0}}};
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      for (const Tap tap : {Tap::kResult, Tap::kAttnOut, Tap::kMlpOut})
        record.taps.push_back({tap, layer});
    }
    const Recording run = Record(model, ids, 1, record);
    // What others than heads wrote: embedding, MLPs, the attention's biases.
    std::vector<double> rest(static_cast<std::size_t>(C));
    const auto add = [&](TapId id, double sign, std::int64_t offset) {
      for (std::int64_t i = 0; i < C; ++i)
        rest[static_cast<std::size_t>(i)] += sign * run.values.at(id).values[offset + i];
    };
    add({Tap::kResidPre, 0}, 1.0, at * C);
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      add({Tap::kMlpOut, layer}, 1.0, at * C);
      add({Tap::kAttnOut, layer}, 1.0, at * C);
      for (std::int64_t h = 0; h < config.heads; ++h)
        add({Tap::kResult, layer}, -1.0, (at * config.heads + h) * C);
    }
    const Norm norm = FinalNormOf(model);
    const std::vector<float> column = OutputRow(model, target);
    double mean = 0.0, logit = 0.0;
    for (const double value : rest) mean += value / static_cast<double>(C);
    if (norm.kind == NormKind::kRms) mean = 0.0;
    const double scale = run.values.at({Tap::kLnFinalScale, 0}).values[at];
    for (std::int64_t i = 0; i < C; ++i) {
      const double gain = norm.weight == nullptr ? 1.0 : norm.weight[i],
                   bias = norm.bias == nullptr ? 0.0 : norm.bias[i];
      logit += ((rest[static_cast<std::size_t>(i)] - mean) / scale * gain + bias) *
               column[static_cast<std::size_t>(i)];
    }
    for (const HeadLens& head : lens.heads) logit += head.target_logit;
    EXPECT_NEAR(logit, run.logits[at * config.vocabulary + target], 1e-4);
    for (const HeadLens& head : lens.heads) {
      // A gated head whose gates are all closed says nothing.
      EXPECT_TRUE(config.attention == AttentionKind::kGated || !head.raised.empty());
      for (const LogitShare& share : head.raised) EXPECT_GT(share.logit, 0.0);
      for (const LogitShare& share : head.lowered) EXPECT_LT(share.logit, 0.0);
    }
  }
}

TEST(Lens, RefusesWhatIsNotThere) {
  const Model model = LivelyModel(OddConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 5, 1);
  EXPECT_THROW(LookThrough(model, ids, {.target = 23}), Error);
  EXPECT_THROW(LookThrough(model, ids, {.position = 5}), Error);
  EXPECT_THROW(LookThrough(model, {}, {}), Error);
  const Model after = LivelyModel(FamilyConfig("olmo2", false));
  EXPECT_THROW(LookThrough(after, ids, {}), Error);
  EXPECT_NO_THROW(LookThrough(after, ids, {.heads = false}));
}

}  // namespace
}  // namespace clearhead
