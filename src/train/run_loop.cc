// SPDX-License-Identifier: MIT
#include "train/run_loop.h"

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

RunOutcome RunLoop(const RunLoopOptions& options, const RunLoopParts& parts, Optimizer& optimizer,
                   const std::filesystem::path& out) {
  const std::filesystem::path checkpoints = CheckpointFolder(out);
  LossWatch watch(optimizer.model().config.vocabulary);
  std::int64_t step = 0;
  if (options.resume) {
    const auto file = FindCheckpoint(checkpoints);
    if (!file) Fail("'{}' holds no checkpoint to resume from", checkpoints.string());
    CheckpointState state = LoadCheckpoint(*file, parts.settings, optimizer);
    const std::size_t watched = watch.State().size();
    if (state.run.size() < watched) Fail("{}: its state is cut short", file->string());
    const auto rest = state.run.begin() + static_cast<std::ptrdiff_t>(watched);
    watch.Restore({state.run.begin(), rest});
    if (parts.restore) parts.restore({rest, state.run.end()}, file->string());
    step = state.step;
  }
  if (!options.resume) RefuseAnotherRun(out);
  MakeDirectory(out);
  MetricsLog metrics(out / "metrics.jsonl", step);

  const Clock::time_point begin = Clock::now();
  Clock::time_point last_checkpoint = begin, before = begin;
  const auto save = [&] {
    std::vector<double> run = watch.State();
    if (parts.state) {
      const std::vector<double> more = parts.state();
      run.insert(run.end(), more.begin(), more.end());
    }
    metrics.Sync();  // the lines of a checkpoint's steps are on the disk before it
    SaveCheckpoint(checkpoints, optimizer,
                   {.step = step, .settings = parts.settings, .run = std::move(run)});
    last_checkpoint = before = Clock::now();
  };

  const std::int64_t first_step = step;
  while (step < options.steps) {
    const LoopStep done = parts.gradients(step);
    watch.Check(step, done.loss, done.gradient_norm, checkpoints);
    optimizer.Step(done.lr, done.gradient_norm);
    const Clock::time_point now = Clock::now();
    const double rate = options.tokens_per_step / Seconds(before, now);
    before = now;

    Json line = {{"step", step}};
    line.update(done.metrics);
    line["tokens_per_second"] = rate;
    ++step;
    const bool last = step == options.steps;
    bool due = false;
    if (last || (options.eval_every > 0 && step % options.eval_every == 0)) {
      due = parts.evaluate(line);
      before = Clock::now();
    }
    metrics.Append(line);
    if (due) save();
    if (parts.on_step) parts.on_step(step, rate);
    const bool stop = parts.should_stop && parts.should_stop();
    due = options.checkpoint_every > 0
              ? step % options.checkpoint_every == 0
              : Seconds(last_checkpoint, Clock::now()) > options.checkpoint_seconds;
    if (!last && (stop || due)) save();
    if (stop && !last) break;
  }
  RunOutcome outcome{.finished = step == options.steps, .step = step};
  outcome.seconds = Seconds(begin, Clock::now());
  outcome.tokens_per_second =
      static_cast<double>(step - first_step) * options.tokens_per_step / outcome.seconds;
  return outcome;
}

}  // namespace clearhead
