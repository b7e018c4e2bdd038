// SPDX-License-Identifier: MIT
// Checkpoints: everything a run needs to go on as if nothing had happened, in one file that is
// complete or absent: weights, both moments, step counter, and the settings of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/json.h"
#include "train/training_run.h"

namespace clearhead {

struct CheckpointState {
  std::int64_t step = 0;  // optimiser steps done; the data position follows from it
  Json settings;          // what the run was started with
  Json health;            // the loop's own: running average of the loss
  Json run;               // TrainingRun::State()
};

// Writes folder/checkpoint-<step>.safetensors, then removes older ones. All ranks call it; the
// first collects the moments part by part and writes.
void SaveCheckpoint(const std::filesystem::path& folder, ParameterBlock& parameters,
                    const CheckpointState& state, bool writes = true);

// The newest checkpoint in the folder, if any.
std::optional<std::filesystem::path> FindCheckpoint(const std::filesystem::path& folder);

// Fills run.parameters(). Refuses a file of another model or with settings other than `settings`,
// naming the first that differs.
CheckpointState LoadCheckpoint(const std::filesystem::path& file, const Json& settings,
                               TrainingRun& run);

// With what killed runs left half-written.
void RemoveCheckpoints(const std::filesystem::path& folder);

}  // namespace clearhead
