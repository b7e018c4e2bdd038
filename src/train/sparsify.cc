// SPDX-License-Identifier: MIT
#include "train/sparsify.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "train/checkpoint.h"
#include "train/run_loop.h"
#include "train/run_settings.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {
Json Settings(const Model& start, std::span<const std::int32_t> train,
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
                                 .max_tokens = o.eval_tokens,
                                 .gates = {.sum_probabilities = false}});
  double open = 0.0;
  for (const std::int64_t edges : e.open_edges) open += static_cast<double>(edges);
  const double heads = static_cast<double>(std::max<std::size_t>(e.open_edges.size(), 1));
  return {e.loss, open / (heads * static_cast<double>(e.causal_edges)),
          open / (heads * static_cast<double>(e.tokens))};
}

// The numbers of the loop that a checkpoint keeps, in one order for both directions.
struct LoopState {
  double beta = 0.0, average = 0.0;
  SparseQuality last, best;
  double has_last = 0.0, has_best = 0.0;

  std::vector<double> Pack() const {
    return {beta,
            average,
            has_last,
            last.loss,
            last.edge_fraction,
            last.edges_per_query,
            has_best,
            best.loss,
            best.edge_fraction,
            best.edges_per_query};
  }
  static LoopState Unpack(const std::vector<double>& v, const std::string& source) {
    if (v.size() != 10) Fail("{}: not a checkpoint of sparsify", source);
    return {.beta = v[0],
            .average = v[1],
            .last = {v[3], v[4], v[5]},
            .best = {v[7], v[8], v[9]},
            .has_last = v[2],
            .has_best = v[6]};
  }
};

Json QualityJson(const SparseQuality& q) {
  return {
      {"loss", q.loss}, {"edge_fraction", q.edge_fraction}, {"edges_per_query", q.edges_per_query}};
}

}  // namespace

SparsifyResult Sparsify(const Model& dense, std::span<const std::int32_t> train,
                        std::span<const std::int32_t> valid, const SparsifyOptions& options,
                        const std::filesystem::path& out, const SparsifyCallbacks& callbacks) {
  Check(dense.config.attention == AttentionKind::kSoftmax, "sparsify starts from a dense model");
  CheckStepShape(dense.config, options.shape, options.steps);
  CheckVocabulary(train, dense.config.vocabulary);
  CheckVocabulary(valid, dense.config.vocabulary);
  if (!options.resume) RefuseAnotherRun(out);
  const std::filesystem::path best_folder = out / "best";
  Model start = dense;
  start.config.attention = AttentionKind::kGated;
  start.config.gate_bias = options.gate_bias;

  SparsifyResult result;
  result.dense_loss = Measure(dense, valid, options).loss;
  const double target = result.dense_loss + options.tolerance;

  Batches batches(train, options.shape.context, HashCoordinates(options.seed, {1}), options.starts);
  Optimizer optimizer(start, options.optimizer);
  SparsifyStep sparsify_step(start.config, {.shape = options.shape,
                                            .distill = options.distill,
                                            .seed = HashCoordinates(options.seed, {2}),
                                            .stored = options.stored});
  Multiplier multiplier(options.multiplier);
  std::optional<SparseQuality> quality, best;
  SparsifyProgress progress{.steps = options.steps, .target = target};

  RunLoopParts parts{.settings = Settings(start, train, valid, options)};
  parts.gradients = [&](std::int64_t step) {
    const double lr = RateAt(options, step), slack = SlackAt(options, step),
                 beta = multiplier.beta();
    const SparsifyStepResult r = sparsify_step.Gradients(optimizer, dense, batches, step, beta);
    multiplier.Update(r.loss - r.dense_loss - slack);
    progress.result = r;
    progress.beta = beta;
    progress.slack = slack;
    progress.lr = lr;
    return LoopStep{.loss = r.loss,
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
  };
  parts.evaluate = [&](Json& line) {
    quality = Measure(optimizer.model(), valid, options);
    progress.model = &optimizer.model();
    const bool feasible = quality->loss <= target;
    line["valid"] = QualityJson(*quality);
    line["target"] = target;
    line["feasible"] = feasible;
    if (!feasible || (best && quality->edge_fraction >= best->edge_fraction)) return false;
    best = quality;
    SaveModel(optimizer.model(), best_folder);
    return true;  // the best model and the memory of it belong together
  };
  parts.state = [&] {
    return LoopState{.beta = multiplier.beta(),
                     .average = multiplier.average(),
                     .last = quality.value_or(SparseQuality{}),
                     .best = best.value_or(SparseQuality{}),
                     .has_last = quality ? 1.0 : 0.0,
                     .has_best = best ? 1.0 : 0.0}
        .Pack();
  };
  parts.restore = [&](const std::vector<double>& values, const std::string& source) {
    const LoopState loop = LoopState::Unpack(values, source);
    multiplier.Restore(loop.beta, loop.average);
    if (loop.has_last != 0.0) quality = loop.last;
    if (loop.has_best != 0.0) best = loop.best;
  };
  parts.on_step = [&](std::int64_t step, double rate) {
    progress.step = step;
    progress.tokens_per_second = rate;
    progress.quality = quality;
    progress.best = best;
    if (callbacks.on_step) callbacks.on_step(progress);
    progress.model = nullptr;
  };
  parts.should_stop = callbacks.should_stop;

  const RunOutcome outcome =
      RunLoop({.steps = options.steps,
               .tokens_per_step = static_cast<double>(
                   options.shape.batch * options.shape.accumulation * options.shape.context),
               .eval_every = options.eval_every > 0 ? options.eval_every
                                                    : std::max<std::int64_t>(1, options.steps / 20),
               .checkpoint_every = options.checkpoint_every,
               .checkpoint_seconds = options.checkpoint_seconds,
               .resume = options.resume},
              parts, optimizer, out);
  result.finished = outcome.finished;
  result.step = outcome.step;
  result.last = quality.value_or(SparseQuality{});
  result.best = best;
  result.seconds = outcome.seconds;
  result.tokens_per_second = outcome.tokens_per_second;
  if (result.finished) {
    if (best) SaveModel(LoadModel(best_folder), out);
    std::error_code ignored;
    std::filesystem::remove_all(best_folder, ignored);
    RemoveCheckpoints(CheckpointFolder(out));
  }
  return result;
}

}  // namespace clearhead
