// SPDX-License-Identifier: MIT
#include "train/training_run.h"

#include <chrono>

#include "core/error.h"
#include "core/file.h"
#include "train/checkpoint.h"
#include "train/health.h"
#include "train/metrics_log.h"

namespace clearhead {
namespace {
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void RefuseAnotherRun(const std::filesystem::path& out) {
  if (const auto file = FindCheckpoint(CheckpointFolder(out))) {
    Fail(
        "'{}' holds the checkpoint of an unfinished run; go on with the same command and --resume, "
        "or start anew in another folder",
        file->string());
  }
  std::error_code ignored;
  if (std::filesystem::exists(out / "metrics.jsonl", ignored)) {
    Fail(
        "'{}' holds the metrics.jsonl of another run, which left no checkpoint for --resume; "
        "choose another folder, or remove that file",
        out.string());
  }
}

RunOutcome RunTraining(TrainingRun& run, const RunOptions& options,
                       const std::filesystem::path& out, const std::function<bool()>& should_stop) {
  const std::filesystem::path checkpoints = CheckpointFolder(out);
  const Json settings = run.Settings();
  LossWatch watch(run.loss_of_guessing());
  std::int64_t step = 0;
  if (options.resume) {
    const auto file = FindCheckpoint(checkpoints);
    if (!file) Fail("'{}' holds no checkpoint to resume from", checkpoints.string());
    const CheckpointState state = LoadCheckpoint(*file, settings, run);
    watch.Restore(state.health);
    run.Restore(state.run, file->string());
    step = state.step;
  } else {
    RefuseAnotherRun(out);
  }
  MakeDirectory(out);
  MetricsLog metrics(out / "metrics.jsonl", step);

  const Clock::time_point begin = Clock::now();
  Clock::time_point last_checkpoint = begin, before = begin;
  const auto save = [&] {
    metrics.Sync();  // the lines of a checkpoint's steps are on the disk before it
    SaveCheckpoint(
        checkpoints, run.parameters(),
        {.step = step, .settings = settings, .health = watch.State(), .run = run.State()});
    last_checkpoint = before = Clock::now();
  };

  const std::int64_t first_step = step;
  while (step < run.steps()) {
    const RunStep done = run.Gradients(step);
    watch.Check(step, done.loss, done.gradient_norm, checkpoints);
    run.Update(done.lr, done.gradient_norm);
    const Clock::time_point now = Clock::now();
    const double rate = run.tokens_per_step() / Seconds(before, now);
    before = now;

    Json line = {{"step", step}};
    line.update(done.metrics);
    line["tokens_per_second"] = rate;
    ++step;
    const bool last = step == run.steps();
    bool due = false;
    if (last || (options.eval_every > 0 && step % options.eval_every == 0)) {
      due = run.Evaluate(line);
      before = Clock::now();
    }
    metrics.Append(line);
    if (due) save();
    run.OnStep(step, rate);
    const bool stop = should_stop && should_stop();
    due = options.checkpoint_every > 0
              ? step % options.checkpoint_every == 0
              : Seconds(last_checkpoint, Clock::now()) > options.checkpoint_seconds;
    if (!last && (stop || due)) save();
    if (stop && !last) break;
  }
  RunOutcome outcome{.finished = step == run.steps(), .step = step};
  outcome.seconds = Seconds(begin, Clock::now());
  outcome.tokens_per_second =
      static_cast<double>(step - first_step) * run.tokens_per_step() / outcome.seconds;
  return outcome;
}

}  // namespace clearhead
