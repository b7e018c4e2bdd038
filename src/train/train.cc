// SPDX-License-Identifier: MIT
#include "train/train.h"

#include "core/random.h"
#include "train/checkpoint.h"
#include "train/run_loop.h"
#include "train/run_settings.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {
// Whatever changes the numbers of a run; a resumed one must agree.
Json Settings(const Model& start, std::span<const std::int32_t> train, const TrainOptions& o) {
  Json json = StepSettings(start.config, train, o.shape);
  json.update({{"start_hash", o.drawn_start ? Json("drawn") : Json(WeightsFingerprint(start))},
               {"steps", o.schedule.total},
               {"warmup", o.schedule.warmup},
               {"lr", o.schedule.peak},
               {"weight_decay", o.optimizer.weight_decay},
               {"clip", o.optimizer.clip_norm},
               {"starts", o.starts.size()},
               {"seed", o.seed}});
  return json;
}

double ValidationLoss(const Model& model, std::span<const std::int32_t> valid,
                      const TrainOptions& o) {
  return Evaluate(model, valid, {.context = o.shape.context, .max_tokens = o.eval_tokens}).loss;
}

}  // namespace

TrainResult Train(const Model& start, std::span<const std::int32_t> train,
                  std::span<const std::int32_t> valid, const TrainOptions& options,
                  const std::filesystem::path& out, const TrainCallbacks& callbacks) {
  CheckStepShape(start.config, options.shape, options.schedule.total);
  CheckVocabulary(train, start.config.vocabulary);
  CheckVocabulary(valid, start.config.vocabulary);
  if (!options.resume) RefuseAnotherRun(out);
  const std::int64_t samples_per_step = options.shape.batch * options.shape.accumulation;
  Batches batches(train, options.shape.context, HashCoordinates(options.seed, {1}), options.starts);
  Optimizer optimizer(start, options.optimizer);
  TrainStep train_step(start.config, options.shape);
  TrainResult result;
  LoopStep last;

  RunLoopParts parts{.settings = Settings(start, train, options)};
  parts.gradients = [&](std::int64_t step) {
    const StepResult r = train_step.Gradients(optimizer, batches, step * samples_per_step);
    last = {.loss = r.loss,
            .gradient_norm = r.gradient_norm,
            .lr = LearningRate(options.schedule, step)};
    last.metrics = {{"loss", r.loss}, {"lr", last.lr}, {"gradient_norm", r.gradient_norm}};
    return last;
  };
  parts.evaluate = [&](Json& line) {
    if (valid.empty()) return false;
    result.valid_loss = ValidationLoss(optimizer.model(), valid, options);
    line["valid_loss"] = *result.valid_loss;
    return false;
  };
  parts.on_step = [&](std::int64_t step, double rate) {
    if (!callbacks.on_step) return;
    callbacks.on_step({step, options.schedule.total, last.loss, result.valid_loss, last.lr,
                       last.gradient_norm, rate});
  };
  parts.should_stop = callbacks.should_stop;
  const RunOutcome outcome =
      RunLoop({.steps = options.schedule.total,
               .tokens_per_step = static_cast<double>(samples_per_step * options.shape.context),
               .eval_every = options.eval_every,
               .checkpoint_every = options.checkpoint_every,
               .checkpoint_seconds = options.checkpoint_seconds,
               .resume = options.resume},
              parts, optimizer, out);
  result.finished = outcome.finished;
  result.step = outcome.step;
  result.loss = last.loss;
  result.seconds = outcome.seconds;
  result.tokens_per_second = outcome.tokens_per_second;
  if (result.finished) {
    SaveModel(optimizer.model(), out);
    RemoveCheckpoints(CheckpointFolder(out));
  }
  return result;
}

}  // namespace clearhead
