// SPDX-License-Identifier: MIT
#include "features/feature_eval.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "features/feature_run.h"
#include "model/output.h"
#include "model/run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {

// Sums over the positions that count, of one layer.
struct LayerSums {
  std::vector<double> y, y_squared, e_squared;  // [C]
  std::vector<bool> fired;                      // [F]
  std::int64_t entries = 0;
  double error_norm = 0.0, output_norm = 0.0;

  LayerSums(std::int64_t width, std::int64_t features)
      : y(static_cast<std::size_t>(width)),
        y_squared(y.size()),
        e_squared(y.size()),
        fired(static_cast<std::size_t>(features)) {}

  void Add(const float* output, const float* error) {
    double output_squared = 0.0, error_squared = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double o = output[i], e = error[i];
      y[i] += o;
      y_squared[i] += o * o;
      e_squared[i] += e * e;
      output_squared += o * o;
      error_squared += e * e;
    }
    output_norm += std::sqrt(output_squared);
    error_norm += std::sqrt(error_squared);
  }

  void AddFeatures(const SparseRows& active, std::int64_t row) {
    const std::int64_t begin = active.begin[static_cast<std::size_t>(row)];
    const std::int64_t end = active.begin[static_cast<std::size_t>(row) + 1];
    for (std::int64_t e = begin; e < end; ++e) {
      fired[static_cast<std::size_t>(active.column[static_cast<std::size_t>(e)])] = true;
    }
    entries += end - begin;
  }

  FeatureLayerEval Result(std::int64_t positions) const {
    const auto n = static_cast<double>(positions);
    FeatureLayerEval result{.l0 = static_cast<double>(entries) / n,
                            .error_norm = error_norm / n,
                            .output_norm = output_norm / n};
    double left = 0.0, spread = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double here = std::max(0.0, y_squared[i] - y[i] * y[i] / n);
      left += e_squared[i];
      spread += here;
      result.explained_by_dimension +=
          Explained(e_squared[i], here) / static_cast<double>(y.size());
    }
    result.explained_variance = Explained(left, spread);
    result.silent = static_cast<double>(std::count(fired.begin(), fired.end(), false)) /
                    static_cast<double>(fired.size());
    return result;
  }

  // What does not vary is explained by its mean alone.
  static double Explained(double left, double spread) {
    return spread > 0.0 ? 1.0 - left / spread : left > 0.0 ? 0.0 : 1.0;
  }
};

// Sees the MLP outputs right after the features' run has kept what it leaves of them.
class SumOutputs final : public Hooks {
 public:
  SumOutputs(const TranscoderConfig& config, std::int64_t first_position)
      : sums_(static_cast<std::size_t>(config.layers), LayerSums(config.width, config.features)),
        first_position_(first_position) {}

  void set_run(const FeatureRun* run) { run_ = run; }
  const std::vector<LayerSums>& sums() const { return sums_; }
  std::int64_t positions() const { return positions_; }

  bool Wants(TapId id) const override { return id.tap == Tap::kMlpOut; }
  void Visit(TapId id, const TensorView<float>& value) override {
    const auto layer = static_cast<std::size_t>(id.layer);
    const std::int64_t T = value.shape[1], C = value.shape[2], R = value.shape[0] * T;
    for (std::int64_t r = 0; r < R; ++r) {
      if (r % T < first_position_) continue;
      sums_[layer].Add(value.data + r * C, run_->values()[layer].error.data() + r * C);
      sums_[layer].AddFeatures(run_->active()[layer], r);
      if (layer == 0) ++positions_;
    }
  }

 private:
  std::vector<LayerSums> sums_;
  std::int64_t first_position_;
  const FeatureRun* run_ = nullptr;
  std::int64_t positions_ = 0;
};

// Every MLP output becomes its mean.
class SetToMean final : public Hooks {
 public:
  SetToMean(const std::vector<LayerSums>& sums, std::int64_t positions, std::int64_t first_position)
      : first_position_(first_position) {
    for (const LayerSums& layer : sums) {
      std::vector<float>& mean = means_.emplace_back(layer.y.size());
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] = static_cast<float>(layer.y[i] / static_cast<double>(positions));
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

// The text again and again, with other hooks.
class Runs {
 public:
  Runs(const Model& model, std::span<const std::int32_t> tokens, const FeatureEvalOptions& options,
       std::int64_t count)
      : model_(model), tokens_(tokens), options_(options), count_(count) {
    plan_ = PlanWindows(model.config, tokens,
                        {.context = options.context, .max_tokens = options.max_tokens});
  }

  const WindowPlan& plan() const { return plan_; }

  Evaluation Run(Hooks* hooks) {
    Evaluation result;
    for (const WindowGroup& group : plan_.groups) {
      if (!activations_ || activations_->batch != group.windows ||
          activations_->length != group.length) {
        activations_.emplace(ActivationsFor(model_.config, group));
      }
      Pass pass = PassOver(model_, group, options_.gates);
      pass.hooks = hooks;
      ForwardToFinalNorm(pass, tokens_.data() + group.first, *activations_);
      LossForward(pass, tokens_.data() + group.first + 1, *activations_);
      AddWindows(pass, *activations_, &result);
      done_ += pass.rows();
      if (options_.progress) options_.progress(done_, plan_.predictions * count_);
    }
    return result;
  }

 private:
  const Model& model_;
  std::span<const std::int32_t> tokens_;
  const FeatureEvalOptions& options_;
  std::int64_t count_, done_ = 0;
  WindowPlan plan_;
  std::optional<Activations> activations_;
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
  const auto L = static_cast<std::size_t>(model.config.layers);
  Runs runs(model, tokens, options, model.config.layers + 4);
  const std::int64_t first = options.all_positions ? 0 : transcoder.config.first_position;
  if (runs.plan().groups.front().length <= first) {
    Fail(
        "windows of {} have no position but the first {}, which these features were not trained "
        "on; give a longer text or context, or count all positions",
        runs.plan().groups.front().length, first);
  }

  FeatureEval result{.first_position = first};
  SumOutputs sums(transcoder.config, first);
  FeatureRun reading(model, transcoder, {.keep_outputs = true}, &sums);
  sums.set_run(&reading);
  const Evaluation own = runs.Run(&reading);
  result.tokens = own.tokens;
  result.windows = own.windows;
  result.context = runs.plan().context;
  result.positions = sums.positions();
  result.loss = own.loss;

  const auto loss = [&](std::vector<bool> replaced, bool keep_errors) {
    FeatureRun run(model, transcoder,
                   {.replaced = std::move(replaced),
                    .keep_errors = keep_errors,
                    .first_position = first,
                    .keep_active = false});
    return runs.Run(&run).loss;
  };
  result.loss_replaced = loss(std::vector<bool>(L, true), false);
  result.loss_errors_kept = loss(std::vector<bool>(L, true), true);
  SetToMean means(sums.sums(), sums.positions(), first);
  result.loss_mean = runs.Run(&means).loss;
  for (std::size_t l = 0; l < L; ++l) {
    FeatureLayerEval& layer = result.layers.emplace_back(sums.sums()[l].Result(result.positions));
    std::vector<bool> one(L, false);
    one[l] = true;
    layer.loss_replaced = loss(std::move(one), false);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace clearhead
