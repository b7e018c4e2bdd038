// SPDX-License-Identifier: MIT
// Training transcoders: exact gradients, rows from a model, units folded away, resume bit for bit,
// the same bits for any number of threads.
#include "train/transcoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "features/transcoder_files.h"
#include "model/model.h"
#include "support/temporary_folder.h"
#include "support/with_threads.h"
#include "train/metrics_log.h"
#include "train/schedule.h"
#include "use/record.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed, double scale = 1.0) {
  RandomStream random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(scale * random.Normal()));
  }
  return values;
}

// Rows that no two layers or dimensions share.
struct Rows {
  std::vector<std::vector<float>> x;
  std::vector<float> y;
  TranscoderRows view;
};
std::unique_ptr<Rows> MakeRows(const TranscoderShape& s, std::int64_t rows) {
  auto made = std::make_unique<Rows>();
  for (std::int64_t l = 0; l < s.layers; ++l) {
    made->x.push_back(RandomValues(rows * s.width, 100 + static_cast<std::uint64_t>(l)));
  }
  made->y = RandomValues(rows * s.layers * s.width, 200);
  made->view.rows = rows;
  for (const std::vector<float>& x : made->x) made->view.x.push_back(x.data());
  made->view.y = made->y.data();
  return made;
}

// ---- The step in plain double precision, what fires given ----

struct Fired {  // by layer: (row, feature)
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> main, aux;
};

struct PlainLoss {
  const TranscoderShape& s;
  const TranscoderRows& rows;
  const Fired& fired;
  double aux_weight = 0.0, penalty_weight = 0.0;
  const std::vector<double>* left = nullptr;  // y - yhat where the gradient is taken: aux' target

  double Pre(const std::vector<TranscoderTensors>& at, const std::vector<double>& w,
             const float* base, std::int64_t l, std::int64_t r, std::int64_t f) const {
    const auto i = static_cast<std::size_t>(l);
    double pre = w[static_cast<std::size_t>(at[i].encoder_bias - base + f)];
    for (std::int64_t c = 0; c < s.width; ++c) {
      pre += w[static_cast<std::size_t>(at[i].encoder - base + f * s.width + c)] *
             rows.x[i][r * s.width + c];
    }
    return pre;
  }

  // Adds what the entries write to y[rows, L, C].
  void Write(const std::vector<TranscoderTensors>& at, const std::vector<double>& w,
             const float* base,
             const std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>& entries,
             std::vector<double>& y, double* penalty) const {
    for (std::int64_t l = 0; l < s.layers; ++l) {
      const std::int64_t length = s.targets(l) * s.width;
      for (const auto& [r, f] : entries[static_cast<std::size_t>(l)]) {
        const double a = Pre(at, w, base, l, r, f);
        const auto row =
            static_cast<std::size_t>(at[static_cast<std::size_t>(l)].decoder - base + f * length);
        double squares = 0.0;
        for (std::int64_t i = 0; i < length; ++i) {
          const double d = w[row + static_cast<std::size_t>(i)];
          squares += d * d;
          y[static_cast<std::size_t>((r * s.layers + l) * s.width + i)] += a * d;
        }
        if (penalty != nullptr) *penalty += std::tanh(4.0 * a * std::sqrt(squares));
      }
    }
  }

  double operator()(const std::vector<TranscoderTensors>& at, const std::vector<double>& w,
                    const float* base, std::vector<double>* remaining) const {
    const auto count = static_cast<std::size_t>(rows.rows * s.layers * s.width);
    std::vector<double> y(count), silent(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t l =
          i / static_cast<std::size_t>(s.width) % static_cast<std::size_t>(s.layers);
      y[i] = w[static_cast<std::size_t>(at[l].decoder_bias - base) +
               i % static_cast<std::size_t>(s.width)];
    }
    double penalty = 0.0, error = 0.0, aux = 0.0;
    Write(at, w, base, fired.main, y, &penalty);
    Write(at, w, base, fired.aux, silent, nullptr);
    const auto row = static_cast<std::size_t>(s.layers * s.width);
    for (std::size_t i = 0; i < count; ++i) {
      const double difference = rows.y[i] - y[i];
      error += difference * difference;
      if (remaining != nullptr) remaining->push_back(difference);
      if (left != nullptr && i / row % 8 == 0) {
        aux += ((*left)[i] - silent[i]) * ((*left)[i] - silent[i]);
      }
    }
    return (error + aux_weight * 8.0 * aux) / static_cast<double>(count) +
           penalty_weight * penalty / static_cast<double>(rows.rows);
  }
};

void ExpectExactGradients(TranscoderKind kind, FiringRule rule) {
  const TranscoderShape shape{.kind = kind,
                              .layers = 3,
                              .width = 5,
                              .features = 11,
                              .thresholds = rule == FiringRule::kJumpRelu};
  const std::int64_t rows = 300;  // more than one piece
  const auto data = MakeRows(shape, rows);
  const auto count = static_cast<std::size_t>(ParameterCount(shape));
  std::vector<float> values = RandomValues(ParameterCount(shape), 7, 0.4), gradients(count);
  const auto weights = Bind(shape, values.data());
  for (const TranscoderTensors& layer : weights) {
    for (std::int64_t f = 0; layer.threshold != nullptr && f < shape.features; ++f) {
      layer.threshold[f] = std::log(0.3f + 0.05f * static_cast<float>(f)) / kThresholdRate;
    }
  }
  std::vector<char> silent(static_cast<std::size_t>(shape.layers * shape.features));
  for (std::size_t i = 0; i < silent.size(); i += 4) silent[i] = 1;
  const TranscoderStepOptions options{.rule = rule, .l0 = 3.0, .aux = 0.25f, .aux_count = 2};
  const float penalty_weight = rule == FiringRule::kJumpRelu ? 0.01f : 0.0f;
  TranscoderStep step(shape, options, rows);
  const TranscoderMeasure measure =
      step.Gradients(data->view, weights, Bind(shape, gradients.data()), penalty_weight, silent);

  // What fires, told again from the definition.
  Fired fired;
  const std::vector<double> exact(values.begin(), values.end());
  const PlainLoss pre{.s = shape, .rows = data->view, .fired = fired};
  fired.main.resize(static_cast<std::size_t>(shape.layers));
  fired.aux.resize(static_cast<std::size_t>(shape.layers));
  std::int64_t aux_entries = 0;
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const SparseRows& got = step.fired(l);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t e = got.begin[r]; e < got.begin[r + 1]; ++e) {
        fired.main[at].emplace_back(r, got.column[e]);
        const double a = pre.Pre(weights, exact, values.data(), l, r, got.column[e]);
        EXPECT_NEAR(got.value[e], a, 1e-5);
        if (rule == FiringRule::kBatchTopK) {
          EXPECT_GT(a, step.batch_thresholds()[at] - 1e-5);
        }
      }
      if (r % 8 != 0) continue;
      std::vector<std::pair<double, std::int64_t>> dead;
      for (std::int64_t f = 0; f < shape.features; ++f) {
        const double a = pre.Pre(weights, exact, values.data(), l, r, f);
        if (silent[static_cast<std::size_t>(l * shape.features + f)] && a > 0.0) {
          dead.emplace_back(-a, f);
        }
      }
      std::sort(dead.begin(), dead.end());
      for (std::size_t i = 0; i < std::min<std::size_t>(2, dead.size()); ++i) {
        fired.aux[at].emplace_back(r, dead[i].second);
        ++aux_entries;
      }
    }
  }
  EXPECT_GT(aux_entries, 20);
  PlainLoss loss{.s = shape, .rows = data->view, .fired = fired, .penalty_weight = penalty_weight};
  std::vector<double> left;
  EXPECT_NEAR(loss(weights, exact, values.data(), &left),
              measure.loss + penalty_weight * measure.penalty, 1e-6);
  loss.aux_weight = options.aux;
  loss.left = &left;

  double largest = 0.0;
  for (const float g : gradients) largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (std::size_t i = 0; i < count; ++i) {
    bool is_threshold = false;
    for (const TranscoderTensors& layer : weights) {
      const float* at = values.data() + i;
      is_threshold |= layer.threshold != nullptr && at >= layer.threshold &&
                      at < layer.threshold + shape.features;
    }
    if (is_threshold) continue;  // a rectangle is no derivative: another test
    std::vector<double> moved = exact;
    const double step_size = 1e-4;
    moved[i] = exact[i] + step_size;
    const double above = loss(weights, moved, values.data(), nullptr);
    moved[i] = exact[i] - step_size;
    const double below = loss(weights, moved, values.data(), nullptr);
    ASSERT_NEAR(gradients[i], (above - below) / (2.0 * step_size), 1e-5 * largest + 1e-8)
        << "parameter " << i;
  }
}

TEST(TranscoderStep, GradientsAreThoseOfThePlainLoss) {
  for (const TranscoderKind kind : {TranscoderKind::kCrossLayer, TranscoderKind::kPerLayer}) {
    for (const FiringRule rule :
         {FiringRule::kTopK, FiringRule::kBatchTopK, FiringRule::kJumpRelu}) {
      SCOPED_TRACE(static_cast<int>(rule));
      ExpectExactGradients(kind, rule);
    }
  }
}

TEST(TranscoderStep, ThresholdsSeeARectangleAroundThem) {
  const TranscoderShape shape{.layers = 1, .width = 4, .features = 6, .thresholds = true};
  const std::int64_t rows = 64;
  const auto data = MakeRows(shape, rows);
  std::vector<float> values = RandomValues(ParameterCount(shape), 3, 0.5);
  std::vector<float> gradients(values.size());
  const auto weights = Bind(shape, values.data()), d = Bind(shape, gradients.data());
  for (std::int64_t f = 0; f < shape.features; ++f) {
    weights[0].threshold[f] = std::log(0.6f) / kThresholdRate;
  }
  TranscoderStep step(shape, {.rule = FiringRule::kJumpRelu, .aux = 0.0f}, rows);
  const float c = 0.02f;
  step.Gradients(data->view, weights, d, c, {});
  // yhat from what fired; then the sum over the rectangle as the header states it.
  const std::int64_t C = shape.width, F = shape.features;
  std::vector<double> error(data->y.size());
  const SparseRows& fired = step.fired(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < C; ++i) {
      double y = weights[0].decoder_bias[i];
      for (std::int64_t e = fired.begin[r]; e < fired.begin[r + 1]; ++e) {
        y += static_cast<double>(fired.value[e]) * weights[0].decoder[fired.column[e] * C + i];
      }
      error[static_cast<std::size_t>(r * C + i)] = y - data->y[static_cast<std::size_t>(r * C + i)];
    }
  }
  for (std::int64_t f = 0; f < F; ++f) {
    double expected = 0.0, norm = 0.0;
    for (std::int64_t i = 0; i < C; ++i) norm += std::pow(weights[0].decoder[f * C + i], 2.0);
    norm = std::sqrt(norm);
    const double theta = 0.6;
    int inside = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double pre = weights[0].encoder_bias[f], d_a = 0.0;
      for (std::int64_t i = 0; i < C; ++i) {
        pre += static_cast<double>(weights[0].encoder[f * C + i]) *
               data->x[0][static_cast<std::size_t>(r * C + i)];
        d_a += 2.0 * error[static_cast<std::size_t>(r * C + i)] / static_cast<double>(rows * C) *
               weights[0].decoder[f * C + i];
      }
      if (std::abs(pre - theta) > 0.25) continue;
      ++inside;
      expected -=
          (theta * d_a + c / static_cast<double>(rows) * std::tanh(4.0 * theta * norm)) / 0.5;
    }
    EXPECT_GT(inside, 3);
    EXPECT_NEAR(d[0].threshold[f], expected * theta * kThresholdRate, 1e-6) << f;
  }
}

ModelConfig SmallConfig() {
  ModelConfig config{
      .layers = 3, .heads = 2, .width = 16, .vocabulary = 40, .positions = 24, .inner = 64};
  config.begin_of_text = 39;
  return config;
}

// Larger weights than training starts with: MLPs that do something.
Model LivelyModel(std::uint64_t seed = 4) {
  const ModelConfig config = SmallConfig();
  Model model = RandomModel(config, seed);
  const auto block = std::make_shared<Buffer<float>>(config.ParameterCount());
  FillRandom(config, seed, block->data());
  for (float& value : *block) {
    if (value != 1.0f) value *= 8.0f;
  }
  model.weights = BindWeights(config, block->data());
  model.storage = block;
  return model;
}

std::vector<std::int32_t> Tokens(std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.Below(39)));
  }
  return tokens;
}

TranscoderOptions SmallOptions(FiringRule rule = FiringRule::kBatchTopK) {
  TranscoderOptions options;
  options.features = 48;
  options.step.rule = rule;
  options.step.l0 = 6.0;
  options.data = {.context = 12, .rows = 300, .steps_at_once = 3, .seed = 9};
  options.steps = 8;
  options.dead_after = 900;
  options.run.checkpoint_every = 3;
  return options;
}

std::string FilesOf(const fs::path& folder) {
  std::string all;
  for (int l = 0; l < 3; ++l) {
    all += ReadFile(folder / fmt::format("W_enc_{}.safetensors", l));
    all += ReadFile(folder / fmt::format("W_dec_{}.safetensors", l));
  }
  return all;
}

TEST(TranscoderTraining, TheFilesAreTheSameForAnyNumberOfThreadsAndAfterAStop) {
  const Model model = LivelyModel();
  const std::vector<std::int32_t> text = Tokens(3000, 1), valid = Tokens(500, 2);
  for (const FiringRule rule : {FiringRule::kBatchTopK, FiringRule::kJumpRelu}) {
    const TemporaryFolder folder;
    const auto train = [&](const std::string& name, int threads, bool resume, int stop_after) {
      const UseThreads scope(threads);
      TranscoderOptions options = SmallOptions(rule);
      options.run.resume = resume;
      int steps = 0;
      TranscoderCallbacks callbacks;
      callbacks.should_stop = [&] { return ++steps == stop_after; };
      const TranscoderResult result =
          TrainTranscoder(model, text, valid, options, folder.path() / name, callbacks);
      EXPECT_EQ(result.finished, stop_after == 0);
    };
    train("one", 1, false, 0);
    train("three", 3, false, 0);
    train("stopped", 2, false, 5);
    train("stopped", 1, true, 0);
    const std::string one = FilesOf(folder.path() / "one");
    EXPECT_EQ(one == FilesOf(folder.path() / "three"), true);
    EXPECT_EQ(one == FilesOf(folder.path() / "stopped"), true);
    EXPECT_FALSE(fs::exists(folder.path() / "one/checkpoint"));
    EXPECT_EQ(ReadMetrics(folder.path() / "stopped/metrics.jsonl").size(), 8u);
  }
}

// What is saved, on the model's own values, is what was trained: it explains them, and fires as
// often as asked.
TEST(TranscoderTraining, WhatIsSavedExplainsTheModelsOwnValues) {
  const Model model = LivelyModel();
  const std::vector<std::int32_t> text = Tokens(40000, 1);
  for (const auto& [kind, rule] : {std::pair{TranscoderKind::kCrossLayer, FiringRule::kBatchTopK},
                                   std::pair{TranscoderKind::kCrossLayer, FiringRule::kJumpRelu},
                                   std::pair{TranscoderKind::kPerLayer, FiringRule::kTopK}}) {
    SCOPED_TRACE(static_cast<int>(rule));
    const TemporaryFolder folder;
    TranscoderOptions options = SmallOptions(rule);
    options.kind = kind;
    options.features = 128;
    options.step.l0 = 12.0;
    options.data.rows = 1024;
    options.steps = 120;
    options.lr = 1e-2;
    const TranscoderResult result =
        TrainTranscoder(model, text, text, options, folder.path() / "out", {});
    ASSERT_TRUE(result.finished);
    const Transcoder saved = LoadTranscoder(folder.path() / "out");
    CheckFits(saved, model);

    const std::int64_t T = 24, B = 20, C = 16, L = 3;
    std::vector<TapId> taps;
    for (std::int64_t l = 0; l < L; ++l) {
      taps.push_back({Tap::kLn2Normalized, l});
      taps.push_back({Tap::kMlpOut, l});
    }
    std::vector<std::int32_t> ids(text.begin(), text.begin() + B * T);
    const Recording run = Record(model, ids, B, {.taps = taps});
    std::vector<SparseRows> active;
    double l0 = 0.0;
    for (std::int64_t l = 0; l < L; ++l) {
      const float* x = run.values.at({Tap::kLn2Normalized, l}).values.data();
      const float* y = run.values.at({Tap::kMlpOut, l}).values.data();
      active.push_back(Encode(saved, l, B * T, x));
      l0 += static_cast<double>(active.back().size()) / static_cast<double>(B * T * L);
      std::vector<float> made(static_cast<std::size_t>(B * T * C));
      Reconstruct(saved, l, B * T, active, x, made.data());
      std::vector<double> mean(static_cast<std::size_t>(C));
      double error = 0.0, power = 0.0;
      for (std::int64_t i = 0; i < B * T * C; ++i)
        mean[static_cast<std::size_t>(i % C)] += y[i] / static_cast<double>(B * T);
      for (std::int64_t i = 0; i < B * T * C; ++i) {
        error += std::pow(y[i] - made[static_cast<std::size_t>(i)], 2.0);
        power += std::pow(y[i] - mean[static_cast<std::size_t>(i % C)], 2.0);
      }
      EXPECT_LT(error / power, 0.6) << "layer " << l;  // the mean alone: 1
    }
    EXPECT_GT(l0, 4.0);
    EXPECT_LT(l0, 36.0);
  }
}

TEST(TranscoderTraining, RefusesWhatCannotBe) {
  const Model model = LivelyModel();
  const std::vector<std::int32_t> text = Tokens(500, 1);
  const TemporaryFolder folder;
  const auto message = [&](const TranscoderOptions& options) {
    try {
      TrainTranscoder(model, text, {}, options, folder.path() / "out", {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  TranscoderOptions options = SmallOptions();
  options.step.l0 = 49.0;
  EXPECT_THAT(message(options), HasSubstr("L0 of 49"));
  options = SmallOptions();
  options.data.context = 25;
  EXPECT_THAT(message(options), HasSubstr("2 to 24"));
  options = SmallOptions(FiringRule::kTopK);
  EXPECT_THAT(message(options), HasSubstr("cross-layer"));
  options = SmallOptions();
  options.steps = 0;
  EXPECT_THAT(message(options), HasSubstr("at least 1"));
  options = SmallOptions();
  options.features = 0;
  EXPECT_THAT(message(options), HasSubstr("0 features"));
}

TEST(Schedule, WarmsHoldsAndDecays) {
  EXPECT_NEAR(WarmHoldDecay(1.0, 100, 0), 0.1, 1e-12);
  EXPECT_EQ(WarmHoldDecay(2.0, 100, 50), 2.0);
  EXPECT_NEAR(WarmHoldDecay(1.0, 100, 99), 0.005 / 0.3, 1e-12);
}

}  // namespace
}  // namespace clearhead
