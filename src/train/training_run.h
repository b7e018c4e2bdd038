// SPDX-License-Identifier: MIT
// What every kind of training shares: steps, health, metrics, validation, checkpoints, stops. A
// kind of training is a TrainingRun; RunTraining does the rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "core/json.h"
#include "train/parameter_block.h"

namespace clearhead {

struct RunOptions {
  std::int64_t eval_every = 0;         // steps; 0: as the kind of training thinks best
  std::int64_t eval_tokens = 1 << 16;  // validation predictions at most
  std::int64_t checkpoint_every = 0;   // steps; 0: every checkpoint_seconds
  double checkpoint_seconds = 300.0;
  bool resume = false;
  TrainingRanks together = {};  // the ranks of the run; the first alone writes files
};

struct RunStep {
  double loss = 0.0;
  double gradient_norm = 0.0;
  double lr = 0.0;
  int broken_rank = -1;  // of several ranks the first whose loss is no finite number
  Json metrics;          // the line of metrics.jsonl, without "step" and "tokens_per_second"
};

class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  virtual std::int64_t steps() const = 0;
  virtual double tokens_per_step() const = 0;
  // The loss of a model that knows nothing: worse than this is broken.
  virtual double loss_of_guessing() const = 0;
  // Whatever changes the numbers of a run; a resumed one must agree.
  virtual Json Settings() const = 0;

  virtual ParameterBlock& parameters() = 0;
  // Gradients of step `step`. The loop decides whether they reach the parameters, by Update.
  virtual RunStep Gradients(std::int64_t step) = 0;
  virtual void Update(double lr, double norm) = 0;
  // Validation of the parameters as they are, added to the line. True: write a checkpoint with it.
  virtual bool Evaluate(Json& line) = 0;

  // What else a checkpoint must hold, by name, and its way back once parameters() are filled
  // (`source` names the file).
  virtual Json State() const { return Json::object(); }
  virtual void Restore(const Json& /*state*/, const std::string& /*source*/) {}
  // Older checkpoints hold numbers without names, and of a part of a model the whole of it.
  virtual Json StateOfNumbers(std::span<const double>) const { return Json::object(); }
  virtual bool PickTrained(std::span<const float> /*whole*/, std::span<float> /*out*/) const {
    return false;
  }

  virtual void OnStep(std::int64_t /*steps_done*/, double /*tokens_per_second*/) {}
};

struct RunOutcome {
  bool finished = false;  // false: stopped by should_stop, checkpoint written
  std::int64_t step = 0;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
};

// Throws Error on a NaN or a loss explosion, naming step and cause, with the last good checkpoint
// in place. A finished run's checkpoints stay until RemoveCheckpoints(CheckpointFolder(out)): its
// result must be saved first. `should_stop` is asked after every step and may be null.
RunOutcome RunTraining(TrainingRun& run, const RunOptions& options,
                       const std::filesystem::path& out, const std::function<bool()>& should_stop);

// Throws Error where `out` holds what another run left, a checkpoint or its metrics, and says how
// to go on with it or start anew. RunTraining refuses that by itself; this is for asking before any
// work.
void RefuseAnotherRun(const std::filesystem::path& out);

inline std::filesystem::path CheckpointFolder(const std::filesystem::path& out) {
  return out / "checkpoint";
}

}  // namespace clearhead
