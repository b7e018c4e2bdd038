// SPDX-License-Identifier: MIT
// The figures of features against their definitions, one window at a time.
#include "features/feature_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "features/toy_transcoders.h"
#include "model/model_testing.h"
#include "support/thread_ranks.h"

namespace clearhead {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Loss over windows of `context`, with the MLP outputs that `change` makes of (layer, inputs by
// layer, own output): positions from `first` on.
template <typename MakeOutput>
double SlowLoss(const Model& model, const std::vector<std::int32_t>& tokens, std::int64_t context,
                Tap reads, std::int64_t first, const MakeOutput& change) {
  const ModelConfig& config = model.config;
  const std::int64_t C = config.width;
  const auto predictions = static_cast<std::int64_t>(tokens.size()) - 1;
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < predictions; begin += context) {
    const std::int64_t T = std::min(context, predictions - begin);
    const std::vector<std::int32_t> ids(tokens.begin() + begin, tokens.begin() + begin + T);
    std::vector<Intervention> interventions;
    std::vector<std::vector<float>> inputs;
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const ModelRun run = RunModel(
          model, ids, 1, {.taps = {{reads, l}, {Tap::kMlpOut, l}}, .interventions = interventions});
      inputs.push_back(run.taps.at({reads, l}).values);
      std::vector<float> own = run.taps.at({Tap::kMlpOut, l}).values, changed = own;
      change(l, inputs, changed);
      std::copy(own.begin(), own.begin() + std::min(first, T) * C, changed.begin());
      interventions.push_back({.tap = {Tap::kMlpOut, l},
                               .change = Change::kSet,
                               .values = changed,
                               .values_shape = {1, T, C}});
    }
    const ModelRun run = RunModel(model, ids, 1, {.interventions = interventions});
    for (std::int64_t t = 0; t < T; ++t) {
      const float* row = run.logits.data() + t * config.vocabulary;
      double total = 0.0;
      for (std::int64_t v = 0; v < config.vocabulary; ++v) total += std::exp(double{row[v]});
      sum += std::log(total) - row[tokens[static_cast<std::size_t>(begin + t + 1)]];
    }
  }
  return sum / static_cast<double>(predictions);
}

TEST(FeatureEval, FollowsTheDefinitions) {
  for (const ModelConfig& config : {GatedConfig(), FamilyConfig("olmo2", false)}) {
    for (const TranscoderKind kind : {TranscoderKind::kCrossLayer, TranscoderKind::kPerLayer}) {
      for (const std::int64_t first : {0, 1, 2}) {
        SCOPED_TRACE(NameOf(config));
        const Model model = LivelyModel(config, 5);
        Transcoder transcoder = RandomTranscoder(config, kind, 21, 6);
        // What its files say, unless all positions are asked for.
        const bool all_positions = first == 0;
        transcoder.config.first_position = all_positions ? 2 : first;
        const Tap reads = transcoder.config.reads;
        const std::vector<std::int32_t> tokens = RandomIds(config, 38, 7);
        const std::int64_t context = 9, C = config.width;
        const FeatureEval eval = EvaluateFeatures(
            model, transcoder, tokens, {.context = context, .all_positions = all_positions});
        EXPECT_EQ(eval.tokens, 37);
        EXPECT_EQ(eval.windows, 5);
        EXPECT_EQ(eval.first_position, first);
        EXPECT_EQ(eval.positions, first == 0 ? 37 : first == 1 ? 32 : 28);  // the last has one

        // Every layer's outputs, errors and features, where they count.
        std::vector<std::vector<double>> y(2), e(2);
        std::vector<std::int64_t> entries(2);
        std::vector<std::vector<bool>> fired(2, std::vector<bool>(21));
        const auto reconstruct = [&](std::int64_t l, const std::vector<std::vector<float>>& inputs,
                                     std::vector<float>& output, bool count) {
          const auto T = static_cast<std::int64_t>(output.size()) / C;
          std::vector<SparseRows> active;
          for (std::int64_t i = 0; i <= l; ++i) {
            active.push_back(Encode(transcoder, i, T, inputs[static_cast<std::size_t>(i)].data()));
          }
          std::vector<float> written(output.size());
          Reconstruct(transcoder, l, T, active, inputs[static_cast<std::size_t>(l)].data(),
                      written.data());
          if (count) {
            const auto at = static_cast<std::size_t>(l);
            for (std::int64_t t = first; t < T; ++t) {
              for (std::int64_t i = t * C; i < (t + 1) * C; ++i) {
                y[at].push_back(output[static_cast<std::size_t>(i)]);
                e[at].push_back(double{output[static_cast<std::size_t>(i)]} -
                                written[static_cast<std::size_t>(i)]);
              }
              for (std::int64_t n = active[at].begin[t]; n < active[at].begin[t + 1]; ++n) {
                fired[at][static_cast<std::size_t>(active[at].column[n])] = true;
                ++entries[at];
              }
            }
          }
          output = written;
        };
        const double own = SlowLoss(model, tokens, context, reads, first,
                                    [&](std::int64_t l, const auto& inputs, auto& output) {
                                      std::vector<float> unused = output;
                                      reconstruct(l, inputs, unused, true);
                                    });
        EXPECT_NEAR(eval.loss, own, 1e-5);
        EXPECT_NEAR(eval.loss_errors_kept, own, 1e-5);
        EXPECT_NEAR(eval.loss_replaced,
                    SlowLoss(model, tokens, context, reads, first,
                             [&](std::int64_t l, const auto& inputs, auto& output) {
                               reconstruct(l, inputs, output, false);
                             }),
                    1e-4);
        std::vector<std::vector<float>> means;
        for (std::size_t l = 0; l < 2; ++l) {
          const auto rows = static_cast<std::int64_t>(y[l].size()) / C;
          std::vector<double> mean(static_cast<std::size_t>(C));
          double left = 0, spread = 0, by_dimension = 0, error_norm = 0, output_norm = 0;
          for (std::int64_t i = 0; i < C; ++i) {
            double left_here = 0, spread_here = 0;
            for (std::int64_t r = 0; r < rows; ++r) {
              mean[static_cast<std::size_t>(i)] += y[l][static_cast<std::size_t>(r * C + i)];
            }
            mean[static_cast<std::size_t>(i)] /= static_cast<double>(rows);
            for (std::int64_t r = 0; r < rows; ++r) {
              const double d =
                  y[l][static_cast<std::size_t>(r * C + i)] - mean[static_cast<std::size_t>(i)];
              const double x = e[l][static_cast<std::size_t>(r * C + i)];
              left_here += x * x;
              spread_here += d * d;
            }
            left += left_here;
            spread += spread_here;
            by_dimension += (1 - left_here / spread_here) / static_cast<double>(C);
          }
          for (std::int64_t r = 0; r < rows; ++r) {
            double yy = 0, ee = 0;
            for (std::int64_t i = r * C; i < (r + 1) * C; ++i) {
              yy += y[l][static_cast<std::size_t>(i)] * y[l][static_cast<std::size_t>(i)];
              ee += e[l][static_cast<std::size_t>(i)] * e[l][static_cast<std::size_t>(i)];
            }
            output_norm += std::sqrt(yy) / static_cast<double>(rows);
            error_norm += std::sqrt(ee) / static_cast<double>(rows);
          }
          const FeatureLayerEval& found = eval.layers[l];
          EXPECT_NEAR(found.explained_variance, 1 - left / spread, 1e-4 * left / spread);
          EXPECT_NEAR(found.explained_by_dimension, by_dimension, 1e-4 * std::abs(by_dimension));
          EXPECT_NEAR(found.output_norm, output_norm, 1e-5 * output_norm);
          EXPECT_NEAR(found.error_norm, error_norm, 1e-5 * error_norm);
          EXPECT_NEAR(found.l0, static_cast<double>(entries[l]) / static_cast<double>(rows), 1e-9);
          EXPECT_GT(found.l0, 0.5);
          EXPECT_NEAR(found.silent,
                      static_cast<double>(std::count(fired[l].begin(), fired[l].end(), false)) / 21,
                      1e-9);
          means.emplace_back(mean.begin(), mean.end());
          const auto one = static_cast<std::int64_t>(l);
          EXPECT_NEAR(found.loss_replaced,
                      SlowLoss(model, tokens, context, reads, first,
                               [&](std::int64_t layer, const auto& inputs, auto& output) {
                                 if (layer == one) reconstruct(layer, inputs, output, false);
                               }),
                      1e-4);
        }
        EXPECT_NEAR(
            eval.loss_mean,
            SlowLoss(model, tokens, context, reads, first,
                     [&](std::int64_t l, const auto&, auto& output) {
                       for (std::size_t i = 0; i < output.size(); ++i) {
                         output[i] =
                             means[static_cast<std::size_t>(l)][i % static_cast<std::size_t>(C)];
                       }
                     }),
            1e-5);
      }
    }
  }
}

// Features that are the neurons themselves explain everything.
TEST(FeatureEval, TheMlpsThemselvesArePerfect) {
  ModelConfig config = OddConfig();
  config.activation = Activation::kRelu;
  const Model model = LivelyModel(config, 3);
  const FeatureEval eval =
      EvaluateFeatures(model, MlpsAsTranscoder(model), RandomIds(config, 60, 4), {.context = 17});
  EXPECT_NEAR(eval.loss_replaced, eval.loss, 1e-5);
  EXPECT_NEAR(eval.recovered(), 1.0, 1e-3);
  for (const FeatureLayerEval& layer : eval.layers) {
    EXPECT_NEAR(layer.explained_variance, 1.0, 1e-6);
    EXPECT_NEAR(layer.explained_by_dimension, 1.0, 1e-6);
    EXPECT_NEAR(layer.loss_replaced, eval.loss, 1e-5);
    EXPECT_LT(layer.error_norm, 1e-4 * layer.output_norm);
  }
}

// Groups of windows are dealt out; every figure has the bits of one rank's.
TEST(FeatureEval, RanksFindTheSameFigures) {
  for (const ModelConfig& config : {OddConfig(), GatedConfig()}) {
    const Model model = LivelyModel(config, 3);
    Transcoder transcoder = RandomTranscoder(config, TranscoderKind::kCrossLayer, 21, 6);
    transcoder.config.first_position = 1;
    const std::vector<std::int32_t> tokens = RandomIds(config, 9000, 4);  // five groups
    const auto figures = [&](Communicator* ranks) {
      const FeatureEval e = EvaluateFeatures(model, transcoder, tokens, {.ranks = ranks});
      std::vector<double> all = {e.loss,
                                 e.loss_replaced,
                                 e.loss_errors_kept,
                                 e.loss_mean,
                                 static_cast<double>(e.tokens),
                                 static_cast<double>(e.windows),
                                 static_cast<double>(e.positions)};
      for (const FeatureLayerEval& l : e.layers) {
        all.insert(all.end(), {l.explained_variance, l.explained_by_dimension, l.l0, l.silent,
                               l.error_norm, l.output_norm, l.loss_replaced});
      }
      return all;
    };
    const std::vector<double> expected = figures(nullptr);
    for (const int count : {2, 3, 7}) {
      const auto messages = RunRanks(
          count, [&](Communicator& ranks) { EXPECT_EQ(figures(&ranks), expected) << count; });
      EXPECT_THAT(messages, testing::Each(""));
    }
  }
}

TEST(FeatureEval, RefusesWhatItCannotJudge) {
  const Model model = LivelyModel(OddConfig(), 3);
  Transcoder transcoder = RandomTranscoder(model.config, TranscoderKind::kCrossLayer, 8, 1);
  transcoder.config.first_position = 1;
  const auto eval = [&](const std::vector<std::int32_t>& tokens, FeatureEvalOptions options) {
    return [&transcoder, &model, tokens, options] {
      EvaluateFeatures(model, transcoder, tokens, options);
    };
  };
  EXPECT_THAT(eval({1, 2}, {}), ThrowsMessage<Error>(HasSubstr("longer")));
  EXPECT_THAT(eval({1, 2, 3}, {.context = 1}), ThrowsMessage<Error>(HasSubstr("longer")));
  EXPECT_THAT(eval({1}, {}), ThrowsMessage<Error>(HasSubstr("at least 2")));
  EXPECT_THAT(eval({1, 2, 3}, {.context = 18}), ThrowsMessage<Error>(HasSubstr("17 positions")));
  EXPECT_EQ(EvaluateFeatures(model, transcoder, std::vector<std::int32_t>{1, 2, 3},
                             {.context = 1, .all_positions = true})
                .positions,
            2);
}

}  // namespace
}  // namespace clearhead
