// SPDX-License-Identifier: MIT
#include "features/feature_eval.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/rank_sums.h"
#include "features/feature_run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {

// Sums over the positions that count, of one layer: [count] numbers in a row, so that those of
// groups of windows can be added up (core/rank_sums.h).
template <typename T>
struct LayerSums {
  std::span<T> y, y_squared, e_squared;  // [C]
  T &error_norm, &output_norm, &entries, &positions;

  static std::int64_t Count(std::int64_t width) { return 3 * width + 4; }
  LayerSums(std::span<T> sums, std::size_t width)
      : y(sums.subspan(0, width)),
        y_squared(sums.subspan(width, width)),
        e_squared(sums.subspan(2 * width, width)),
        error_norm(sums[3 * width]),
        output_norm(sums[3 * width + 1]),
        entries(sums[3 * width + 2]),
        positions(sums[3 * width + 3]) {}
};

void Add(const float* output, const float* error, LayerSums<double>* sums) {
  double output_squared = 0.0, error_squared = 0.0;
  for (std::size_t i = 0; i < sums->y.size(); ++i) {
    const double o = output[i], e = error[i];
    sums->y[i] += o;
    sums->y_squared[i] += o * o;
    sums->e_squared[i] += e * e;
    output_squared += o * o;
    error_squared += e * e;
  }
  sums->output_norm += std::sqrt(output_squared);
  sums->error_norm += std::sqrt(error_squared);
  sums->positions += 1.0;
}

// What does not vary is explained by its mean alone.
double Explained(double left, double spread) {
  return spread > 0.0 ? 1.0 - left / spread : left > 0.0 ? 0.0 : 1.0;
}

FeatureLayerEval ResultOf(const LayerSums<const double>& sums) {
  const double n = sums.positions;
  FeatureLayerEval result{.l0 = sums.entries / n,
                          .error_norm = sums.error_norm / n,
                          .output_norm = sums.output_norm / n};
  double left = 0.0, spread = 0.0;
  for (std::size_t i = 0; i < sums.y.size(); ++i) {
    const double here = std::max(0.0, sums.y_squared[i] - sums.y[i] * sums.y[i] / n);
    left += sums.e_squared[i];
    spread += here;
    result.explained_by_dimension +=
        Explained(sums.e_squared[i], here) / static_cast<double>(sums.y.size());
  }
  result.explained_variance = Explained(left, spread);
  return result;
}

// Sees the MLP outputs right after the features' run has kept what it leaves of them.
class SumOutputs final : public Hooks {
 public:
  SumOutputs(const TranscoderConfig& config, std::int64_t first_position)
      : width_(static_cast<std::size_t>(config.width)),
        count_(static_cast<std::size_t>(LayerSums<double>::Count(config.width))),
        features_(static_cast<std::size_t>(config.features)),
        first_position_(first_position),
        fired_(features_ * static_cast<std::size_t>(config.layers)) {}

  void set_run(const FeatureRun* run) { run_ = run; }
  // Where the sums of the next passes go, [layers, LayerSums::Count].
  void set_sums(std::span<double> sums) { sums_ = sums; }

  // Of the features of a layer, the share that fired on no rank.
  std::vector<double> Silent(Communicator& ranks) {
    ranks.Sum(fired_);
    std::vector<double> silent;
    for (auto of = fired_.begin(); of != fired_.end();
         of += static_cast<std::ptrdiff_t>(features_)) {
      silent.push_back(
          static_cast<double>(std::count(of, of + static_cast<std::ptrdiff_t>(features_), 0.0)) /
          static_cast<double>(features_));
    }
    return silent;
  }

  bool Wants(TapId id) const override { return id.tap == Tap::kMlpOut; }
  void Visit(TapId id, const TensorView<float>& value) override {
    const auto layer = static_cast<std::size_t>(id.layer);
    LayerSums<double> sums(sums_.subspan(layer * count_, count_), width_);
    const SparseRows& active = run_->active()[layer];
    const std::int64_t T = value.shape[1], C = value.shape[2], R = value.shape[0] * T;
    for (std::int64_t r = 0; r < R; ++r) {
      if (r % T < first_position_) continue;
      Add(value.data + r * C, run_->values()[layer].error.data() + r * C, &sums);
      const std::int64_t begin = active.begin[static_cast<std::size_t>(r)];
      const std::int64_t end = active.begin[static_cast<std::size_t>(r) + 1];
      for (std::int64_t e = begin; e < end; ++e) {
        fired_[layer * features_ +
               static_cast<std::size_t>(active.column[static_cast<std::size_t>(e)])] = 1.0;
      }
      sums.entries += static_cast<double>(end - begin);
    }
  }

 private:
  std::size_t width_, count_, features_;
  std::int64_t first_position_;
  const FeatureRun* run_ = nullptr;
  std::span<double> sums_;
  std::vector<double> fired_;  // [layers, features], 1: it did
};

// Every MLP output becomes its mean.
class SetToMean final : public Hooks {
 public:
  SetToMean(const std::vector<LayerSums<const double>>& sums, std::int64_t first_position)
      : first_position_(first_position) {
    for (const LayerSums<const double>& layer : sums) {
      std::vector<float>& mean = means_.emplace_back(layer.y.size());
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] = static_cast<float>(layer.y[i] / layer.positions);
      }
    }
  }

  bool Wants(TapId id) const override { return id.tap == Tap::kMlpOut; }
  bool Changes(TapId id) const override { return Wants(id); }
  void Visit(TapId id, const TensorView<float>& value) override {
    const std::vector<float>& mean = means_[static_cast<std::size_t>(id.layer)];
    const std::int64_t T = value.shape[1], C = value.shape[2], R = value.shape[0] * T;
    for (std::int64_t r = 0; r < R; ++r) {
      if (r % T >= first_position_) std::copy(mean.begin(), mean.end(), value.data + r * C);
    }
  }

 private:
  std::vector<std::vector<float>> means_;
  std::int64_t first_position_;
};

}  // namespace

double FeatureEval::Mean(double FeatureLayerEval::*figure) const {
  double sum = 0.0;
  for (const FeatureLayerEval& layer : layers) sum += layer.*figure;
  return sum / static_cast<double>(layers.size());
}

FeatureEval EvaluateFeatures(const Model& model, const Transcoder& transcoder,
                             std::span<const std::int32_t> tokens,
                             const FeatureEvalOptions& options) {
  CheckFits(transcoder, model);
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t L = model.config.layers, C = transcoder.config.width;
  Communicator alone;
  Communicator& ranks = options.ranks == nullptr ? alone : *options.ranks;
  EvaluateOptions evaluate{.context = options.context,
                           .max_tokens = options.max_tokens,
                           .gates = options.gates,
                           .ranks = &ranks};
  const WindowPlan plan = PlanWindows(model.config, tokens, evaluate);
  std::int64_t before = 0;  // predictions of earlier runs
  if (options.progress) {
    evaluate.progress = [&](std::int64_t done, std::int64_t total) {
      options.progress(before + done, total * (L + 4));
    };
  }
  WindowLosses losses(model, tokens, plan, evaluate);
  const auto finish = [&] {
    before += plan.predictions;
    return losses.Finish();
  };
  const std::int64_t first = options.all_positions ? 0 : transcoder.config.first_position;
  if (plan.groups.front().length <= first) {
    Fail(
        "windows of {} have no position but the first {}, which these features were not trained "
        "on; give a longer text or context, or count all positions",
        plan.groups.front().length, first);
  }

  FeatureEval result{.context = plan.context, .first_position = first};
  SumOutputs outputs(transcoder.config, first);
  FeatureRun reading(model, transcoder, {.keep_outputs = true}, &outputs);
  outputs.set_run(&reading);
  const std::int64_t of_layer = LayerSums<double>::Count(C);
  const std::vector<double> added =
      SumInOrder(ranks, std::vector<std::int64_t>(plan.groups.size(), 1), L * of_layer,
                 [&](std::size_t group, std::span<double> sums) {
                   outputs.set_sums(sums);
                   losses.Run(group, &reading);
                 });
  std::vector<LayerSums<const double>> sums;
  for (std::int64_t l = 0; l < L; ++l) {
    sums.emplace_back(std::span(added).subspan(static_cast<std::size_t>(l * of_layer),
                                               static_cast<std::size_t>(of_layer)),
                      static_cast<std::size_t>(C));
  }
  const Evaluation own = finish();
  result.tokens = own.tokens;
  result.windows = own.windows;
  result.positions = static_cast<std::int64_t>(sums[0].positions);
  result.loss = own.loss;

  const auto loss = [&](std::vector<bool> replaced, bool keep_errors) {
    FeatureRun run(model, transcoder,
                   {.replaced = std::move(replaced),
                    .keep_errors = keep_errors,
                    .first_position = first,
                    .keep_active = false});
    losses.RunOwn(&run);
    return finish().loss;
  };
  const std::vector<bool> every(static_cast<std::size_t>(L), true);
  result.loss_replaced = loss(every, false);
  result.loss_errors_kept = loss(every, true);
  SetToMean means(sums, first);
  losses.RunOwn(&means);
  result.loss_mean = finish().loss;
  const std::vector<double> silent = outputs.Silent(ranks);
  for (std::size_t l = 0; l < every.size(); ++l) {
    FeatureLayerEval& layer = result.layers.emplace_back(ResultOf(sums[l]));
    layer.silent = silent[l];
    std::vector<bool> one(every.size(), false);
    one[l] = true;
    layer.loss_replaced = loss(std::move(one), false);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace clearhead
