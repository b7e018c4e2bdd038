// SPDX-License-Identifier: MIT
// Exact patching of every head against running the whole model for every patch.
#pragma once

#include "circuits/patching.h"

namespace clearhead {

struct PatchingTimes {
  std::int64_t prompts = 0, heads = 0;
  double seconds = 0.0, processor_seconds = 0.0;              // all heads
  double rerun_seconds = 0.0, rerun_processor_seconds = 0.0;  // the same by whole runs
  double largest_difference = 0.0;                            // of the effects that both measured

  void Add(const PatchingTimes& other);
  // Processor time is the steadier one on a machine that does other things too.
  double TimesFaster() const { return rerun_processor_seconds / processor_seconds; }
};

// Every `every`-th head is patched by whole runs too. Each of them takes as long as any other, so
// their time is scaled up to all heads; the two plain runs that everything starts from count once
// on both sides.
PatchingTimes TimePatching(const Model& model, const TaskSet& set, std::int64_t every);

// Prompts of random tokens whose twins differ from the second token on, as those of `ioi` do.
TaskSet RandomTwins(const ModelConfig& config, std::int64_t count, std::int64_t length);

}  // namespace clearhead
