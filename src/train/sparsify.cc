// SPDX-License-Identifier: MIT
#include "train/sparsify.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "train/checkpoint.h"
#include "train/run_settings.h"
#include "train/training_run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {
Json SparsifySettings(const Model& start, std::span<const std::int32_t> train,
                      std::span<const std::int32_t> valid, const SparsifyOptions& o) {
  Json json = StepSettings(start.config, train, o.shape);
  json.update({{"dense_hash", WeightsFingerprint(start)},
               {"trained", ToText(o.optimizer.part)},
               {"stored_logits", o.stored != nullptr},
               {"valid_hash", TokensFingerprint(valid)},
               {"steps", o.steps},
               {"warmup", o.warmup},
               {"lr", o.lr},
               {"decay", o.decay_fraction},
               {"tolerance", o.tolerance},
               {"slack", o.slack},
               {"push", o.push},
               {"distill", o.distill},
               {"lambda_init", o.multiplier.initial},
               {"lambda_max", o.multiplier.maximum},
               {"lambda_rate", o.multiplier.rate},
               {"ema", o.multiplier.ema},
               {"starts", o.starts.size()},
               {"seed", o.seed}});
  return json;
}

// Linear warm-up, plateau, linear decay to 0.
double RateAt(const SparsifyOptions& o, std::int64_t step) {
  const double warm =
      o.warmup > 0 ? static_cast<double>(step + 1) / static_cast<double>(o.warmup) : 1.0;
  const double left =
      static_cast<double>(o.steps - step) / (o.decay_fraction * static_cast<double>(o.steps));
  return o.lr * std::min({1.0, warm, left});
}

double SlackAt(const SparsifyOptions& o, std::int64_t step) {
  const double done = static_cast<double>(step) / static_cast<double>(o.steps);
  return o.slack * RateAt(o, step) / o.lr + o.push * std::max(0.0, 1.0 - 2.0 * done);
}

SparseQuality Measure(const Model& model, std::span<const std::int32_t> valid,
                      const SparsifyOptions& o) {
  const Evaluation e = Evaluate(model, valid,
                                {.context = o.shape.context,
                                 .max_tokens = o.run.eval_tokens,
                                 .gates = {.sum_probabilities = false}});
  double open = 0.0;
  for (const std::int64_t edges : e.open_edges) open += static_cast<double>(edges);
  const double heads = static_cast<double>(std::max<std::size_t>(e.open_edges.size(), 1));
  return {e.loss, open / (heads * static_cast<double>(e.causal_edges)),
          open / (heads * static_cast<double>(e.tokens))};
}

Json QualityJson(const SparseQuality& q) {
  return {
      {"loss", q.loss}, {"edge_fraction", q.edge_fraction}, {"edges_per_query", q.edges_per_query}};
}

std::optional<SparseQuality> QualityOf(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return SparseQuality{json.at("loss").get<double>(), json.at("edge_fraction").get<double>(),
                       json.at("edges_per_query").get<double>()};
}

Json QualityJson(const std::optional<SparseQuality>& quality) {
  return quality ? QualityJson(*quality) : Json();
}

Model GatedCopy(const Model& dense, float bias) {
  Model gated = dense;
  gated.config.attention = AttentionKind::kGated;
  gated.config.gate_bias = bias;
  return gated;
}

class SparsifyRun final : public TrainingRun {
 public:
  SparsifyRun(const Model& dense, std::span<const std::int32_t> train,
              std::span<const std::int32_t> valid, const SparsifyOptions& options,
              const std::filesystem::path& best_folder, const SparsifyCallbacks& callbacks)
      : dense_(dense),
        valid_(valid),
        options_(options),
        best_folder_(best_folder),
        callbacks_(callbacks),
        settings_(SparsifySettings(GatedCopy(dense, options.gate_bias), train, valid, options)),
        dense_loss_(Measure(dense, valid, options).loss),
        batches_(train, options.shape.context, HashCoordinates(options.seed, {1}), options.starts),
        optimizer_(GatedCopy(dense, options.gate_bias), options.optimizer),
        step_(optimizer_.model().config, {.shape = options.shape,
                                          .distill = options.distill,
                                          .seed = HashCoordinates(options.seed, {2}),
                                          .stored = options.stored}),
        multiplier_(options.multiplier),
        progress_{.steps = options.steps, .target = target()} {}

  std::int64_t steps() const override { return options_.steps; }
  double tokens_per_step() const override {
    return static_cast<double>(options_.shape.batch * options_.shape.accumulation *
                               options_.shape.context);
  }
  double loss_of_guessing() const override {
    return std::log(static_cast<double>(dense_.config.vocabulary));
  }
  Json Settings() const override { return settings_; }
  ParameterBlock& parameters() override { return optimizer_.parameters(); }

  RunStep Gradients(std::int64_t step) override {
    const double lr = RateAt(options_, step), slack = SlackAt(options_, step);
    const double beta = multiplier_.beta();
    const SparsifyStepResult r = step_.Gradients(optimizer_, dense_, batches_, step, beta);
    multiplier_.Update(r.loss - r.dense_loss - slack);
    progress_.result = r;
    progress_.beta = beta;
    progress_.slack = slack;
    progress_.lr = lr;
    return {.loss = r.loss,
            .gradient_norm = r.gradient_norm,
            .lr = lr,
            .metrics = {{"loss", r.loss},
                        {"dense_loss", r.dense_loss},
                        {"divergence", r.divergence},
                        {"gate_probability", r.penalty},
                        {"sampled_edge_fraction", r.open_share},
                        {"beta", beta},
                        {"slack", slack},
                        {"lr", lr},
                        {"gradient_norm", r.gradient_norm}}};
  }
  void Update(double lr, double norm) override { optimizer_.Step(lr, norm); }

  bool Evaluate(Json& line) override {
    quality_ = Measure(optimizer_.model(), valid_, options_);
    progress_.model = &optimizer_.model();
    const bool feasible = quality_->loss <= target();
    line["valid"] = QualityJson(*quality_);
    line["target"] = target();
    line["feasible"] = feasible;
    if (!feasible || (best_ && quality_->edge_fraction >= best_->edge_fraction)) return false;
    best_ = quality_;
    SaveModel(optimizer_.model(), best_folder_);
    return true;  // the best model and the memory of it belong together
  }

  Json State() const override {
    return {{"beta", multiplier_.beta()},
            {"violation", multiplier_.average()},
            {"last", QualityJson(quality_)},
            {"best", QualityJson(best_)}};
  }
  void Restore(const Json& state, const std::string& source) override {
    try {
      multiplier_.Restore(state.at("beta").get<double>(), state.at("violation").get<double>());
      quality_ = QualityOf(state.at("last"));
      best_ = QualityOf(state.at("best"));
    } catch (const Json::exception&) {
      Fail("{}: not a checkpoint of sparsify", source);
    }
    optimizer_.Restored();
  }
  Json StateOfNumbers(std::span<const double> v) const override {
    if (v.size() != 10) return Json::object();
    const auto quality = [&](std::size_t at) {
      return v[at] == 0.0 ? Json() : QualityJson(SparseQuality{v[at + 1], v[at + 2], v[at + 3]});
    };
    return {{"beta", v[0]}, {"violation", v[1]}, {"last", quality(2)}, {"best", quality(6)}};
  }
  bool PickTrained(std::span<const float> whole, std::span<float> out) const override {
    return optimizer_.PickTrained(whole, out);
  }

  void OnStep(std::int64_t step, double rate) override {
    progress_.step = step;
    progress_.tokens_per_second = rate;
    progress_.quality = quality_;
    progress_.best = best_;
    if (callbacks_.on_step) callbacks_.on_step(progress_);
    progress_.model = nullptr;
  }

  double dense_loss() const { return dense_loss_; }
  double target() const { return dense_loss_ + options_.tolerance; }
  SparseQuality last() const { return quality_.value_or(SparseQuality{}); }
  std::optional<SparseQuality> best() const { return best_; }

 private:
  const Model& dense_;
  std::span<const std::int32_t> valid_;
  const SparsifyOptions& options_;
  std::filesystem::path best_folder_;
  const SparsifyCallbacks& callbacks_;
  Json settings_;
  double dense_loss_;  // validation
  Batches batches_;
  Optimizer optimizer_;
  SparsifyStep step_;
  Multiplier multiplier_;
  SparsifyProgress progress_;
  std::optional<SparseQuality> quality_, best_;  // last known; feasible with the fewest edges
};

}  // namespace

SparsifyResult Sparsify(const Model& dense, std::span<const std::int32_t> train,
                        std::span<const std::int32_t> valid, const SparsifyOptions& options,
                        const std::filesystem::path& out, const SparsifyCallbacks& callbacks) {
  Check(dense.config.attention == AttentionKind::kSoftmax, "sparsify starts from a dense model");
  CheckStepShape(dense.config, options.shape, options.steps);
  CheckVocabulary(train, dense.config.vocabulary);
  CheckVocabulary(valid, dense.config.vocabulary);
  if (!options.run.resume) RefuseAnotherRun(out);
  const std::filesystem::path best_folder = out / "best";
  SparsifyRun run(dense, train, valid, options, best_folder, callbacks);
  RunOptions run_options = options.run;
  if (run_options.eval_every == 0) {
    run_options.eval_every = std::max<std::int64_t>(1, options.steps / 20);
  }
  const RunOutcome outcome = RunTraining(run, run_options, out, callbacks.should_stop);
  if (outcome.finished) {
    if (run.best()) SaveModel(LoadModel(best_folder), out);
    std::error_code ignored;
    std::filesystem::remove_all(best_folder, ignored);
    RemoveCheckpoints(CheckpointFolder(out));
  }
  return {.finished = outcome.finished,
          .step = outcome.step,
          .dense_loss = run.dense_loss(),
          .last = run.last(),
          .best = run.best(),
          .seconds = outcome.seconds,
          .tokens_per_second = outcome.tokens_per_second};
}

}  // namespace clearhead
