// SPDX-License-Identifier: MIT
#include "train/training_run.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

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

// All ranks must have been given the same: each reads its own files.
void CheckAgreement(Communicator& ranks, const Json& settings, std::int64_t step) {
  constexpr std::uint64_t kExact = (std::uint64_t{1} << 53) - 1;
  const double mine[] = {static_cast<double>(std::hash<std::string>()(ToText(settings)) & kExact),
                         static_cast<double>(step)};
  std::vector<double> all(2 * static_cast<std::size_t>(ranks.size()));
  ranks.AllGather(mine, all);
  for (std::size_t i = 2; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    if (i % 2 == 1) {
      Fail(
          "rank {} sees a checkpoint of step {}, rank 0 one of step {}; --out must be one folder "
          "for all",
          i / 2, all[i], all[1]);
    }
    Fail(
        "rank {} was given another model, text or option than rank 0, or another precision by its "
        "CPU; start all with the same command and files (--precision says which is used)",
        i / 2);
  }
}

// What the ranks decide together after a step. The clock is the first one's.
struct Decision {
  bool stop = false, save = false;
};
Decision Decide(Communicator& ranks, const Decision& mine) {
  const double flags[] = {mine.stop ? 1.0 : 0.0, mine.save ? 1.0 : 0.0};
  std::vector<double> all(2 * static_cast<std::size_t>(ranks.size()));
  ranks.AllGather(flags, all);
  Decision decision{.save = all[1] != 0.0};
  for (std::size_t i = 0; i < all.size(); i += 2) decision.stop |= all[i] != 0.0;
  return decision;
}

std::string OnRank(Communicator& ranks, ParameterBlock& parameters, const RunStep& step) {
  if (ranks.alone() || (std::isfinite(step.loss) && std::isfinite(step.gradient_norm))) return "";
  const int rank = step.broken_rank >= 0 ? step.broken_rank : parameters.RankOfBrokenGradients();
  return fmt::format(" on rank {} of {}", rank, ranks.size());
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

namespace {

RunOutcome RunOnRanks(TrainingRun& run, const RunOptions& options, Communicator& ranks,
                      const std::filesystem::path& out, const std::function<bool()>& should_stop) {
  const std::filesystem::path checkpoints = CheckpointFolder(out);
  Json settings = run.Settings();
  if (!ranks.alone() && options.together.wire != DType::kF32) {
    settings["wire"] = DTypeName(options.together.wire);  // it changes the numbers
  }
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
  CheckAgreement(ranks, settings, step);  // nobody writes before all have looked
  std::optional<MetricsLog> metrics;
  if (ranks.first()) {
    MakeDirectory(out);
    metrics.emplace(out / "metrics.jsonl", step);
  }

  const Clock::time_point begin = Clock::now();
  Clock::time_point last_checkpoint = begin, before = begin;
  const auto save = [&] {
    if (metrics) metrics->Sync();  // the lines of a checkpoint's steps are on the disk before it
    SaveCheckpoint(
        checkpoints, run.parameters(),
        {.step = step, .settings = settings, .health = watch.State(), .run = run.State()},
        ranks.first());
    last_checkpoint = before = Clock::now();
  };

  const std::int64_t first_step = step;
  while (step < run.steps()) {
    const RunStep done = run.Gradients(step);
    watch.Check(step, done.loss, done.gradient_norm, checkpoints,
                OnRank(ranks, run.parameters(), done));
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
    if (metrics) metrics->Append(line);
    if (due) save();
    run.OnStep(step, rate);
    due = options.checkpoint_every > 0
              ? step % options.checkpoint_every == 0
              : Seconds(last_checkpoint, Clock::now()) > options.checkpoint_seconds;
    const Decision all = Decide(ranks, {.stop = should_stop && should_stop(), .save = due});
    if (!last && (all.stop || all.save)) save();
    if (all.stop && !last) break;
  }
  RunOutcome outcome{.finished = step == run.steps(), .step = step};
  outcome.seconds = Seconds(begin, Clock::now());
  outcome.tokens_per_second =
      static_cast<double>(step - first_step) * run.tokens_per_step() / outcome.seconds;
  return outcome;
}

}  // namespace

RunOutcome RunTraining(TrainingRun& run, const RunOptions& options,
                       const std::filesystem::path& out, const std::function<bool()>& should_stop) {
  Communicator one;
  Communicator& ranks = options.together.ranks == nullptr ? one : *options.together.ranks;
  try {
    return RunOnRanks(run, options, ranks, out, should_stop);
  } catch (const RankFailed&) {
    throw;
  } catch (...) {
    ranks.Leave(1);  // while the memory of messages under way is there
    throw;
  }
}

}  // namespace clearhead
