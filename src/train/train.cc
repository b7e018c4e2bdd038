#include "train/train.h"

#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "model/evaluate.h"
#include "train/checkpoint.h"
#include "train/health.h"
#include "train/metrics_log.h"
#include "train/run_settings.h"

namespace clearhead {
namespace {
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Whatever changes the numbers of a run; a resumed one must agree.
Json Settings(const Gpt2Config& config, std::span<const std::int32_t> train,
              const TrainOptions& o) {
  Json json = StepSettings(config, train, o.shape);
  json.update({{"steps", o.schedule.total},
               {"warmup", o.schedule.warmup},
               {"lr", o.schedule.peak},
               {"weight_decay", o.optimizer.weight_decay},
               {"clip", o.optimizer.clip_norm},
               {"starts", o.starts.size()},
               {"seed", o.seed}});
  return json;
}

double ValidationLoss(const Gpt2& model, std::span<const std::int32_t> valid,
                      const TrainOptions& o) {
  return Evaluate(model, valid, {.context = o.shape.context, .max_tokens = o.eval_tokens}).loss;
}

}  // namespace

TrainResult Train(const Gpt2& start, std::span<const std::int32_t> train,
                  std::span<const std::int32_t> valid, const TrainOptions& options,
                  const std::filesystem::path& out, const TrainCallbacks& callbacks) {
  const std::filesystem::path checkpoints = out / "checkpoint";
  const Json settings = Settings(start.config, train, options);
  const std::int64_t samples_per_step = options.shape.batch * options.shape.accumulation;
  const double tokens_per_step = static_cast<double>(samples_per_step * options.shape.context);

  Batches batches(train, options.shape.context, HashCoordinates(options.seed, {1}), options.starts);
  Optimizer optimizer(start, options.optimizer);
  LossWatch watch(start.config.vocabulary);
  std::int64_t step = 0;
  if (options.resume) {
    const auto file = FindCheckpoint(checkpoints);
    if (!file) Fail("'{}' holds no checkpoint to resume from", checkpoints.string());
    const CheckpointState state = LoadCheckpoint(*file, settings, optimizer);
    step = state.step;
    watch.Restore(state.run);
  }
  MakeDirectory(out);
  MetricsLog metrics(out / "metrics.jsonl", step);
  TrainStep train_step(start.config, options.shape);
  const auto save = [&] {
    SaveCheckpoint(checkpoints, optimizer,
                   {.step = step, .settings = settings, .run = watch.State()});
  };

  TrainResult result;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_checkpoint = begin, before = begin;
  const std::int64_t first_step = step;
  while (step < options.schedule.total) {
    const StepResult r = train_step.Gradients(optimizer, batches, step * samples_per_step);
    watch.Check(step, r.loss, r.gradient_norm, checkpoints);
    const double lr = LearningRate(options.schedule, step);
    optimizer.Step(lr, r.gradient_norm);
    const Clock::time_point now = Clock::now();
    const double rate = tokens_per_step / Seconds(before, now);
    before = now;

    Json line = {{"step", step},
                 {"loss", r.loss},
                 {"lr", lr},
                 {"gradient_norm", r.gradient_norm},
                 {"tokens_per_second", rate}};
    const bool last = step + 1 == options.schedule.total;
    const bool evaluate =
        !valid.empty() &&
        (last || (options.eval_every > 0 && (step + 1) % options.eval_every == 0));
    if (evaluate) {
      result.valid_loss = ValidationLoss(optimizer.model(), valid, options);
      line["valid_loss"] = *result.valid_loss;
      before = Clock::now();
    }
    metrics.Append(line);
    ++step;
    result.loss = r.loss;
    if (callbacks.on_step) {
      callbacks.on_step(
          {step, options.schedule.total, r.loss, result.valid_loss, lr, r.gradient_norm, rate});
    }
    const bool stop = callbacks.should_stop && callbacks.should_stop();
    const bool due = options.checkpoint_every > 0
                         ? step % options.checkpoint_every == 0
                         : Seconds(last_checkpoint, Clock::now()) > options.checkpoint_seconds;
    if (!last && (stop || due)) {
      save();
      last_checkpoint = before = Clock::now();
    }
    if (stop && !last) break;
  }
  result.step = step;
  result.finished = step == options.schedule.total;
  result.seconds = Seconds(begin, Clock::now());
  result.tokens_per_second =
      static_cast<double>(step - first_step) * tokens_per_step / result.seconds;
  if (result.finished) {
    SaveModel(optimizer.model(), out);
    RemoveCheckpoints(checkpoints);
  }
  return result;
}

}  // namespace clearhead
