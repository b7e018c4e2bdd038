// SPDX-License-Identifier: MIT
// --gates hard|sampled|open and --gate-weight, for commands that run gated models.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"
#include "core/error.h"
#include "model/pass.h"

namespace clearhead::cli {

struct GateFlags {
  std::string gates = "hard";
  float weight = 0.0f;
  Option* gates_option = nullptr;
  Option* weight_option = nullptr;

  void Add(Command* command, bool with_weight) {
    gates_option =
        command
            ->add_option(
                "--gates", gates,
                "Gated models: hard gates, sampled as in training, or all open (default: hard)")
            ->check(IsMember({"hard", "sampled", "open"}));
    if (with_weight) {
      weight_option =
          command->add_option("--gate-weight", weight,
                              "Gated models: gradients of loss + WEIGHT * mean gate probability");
    }
  }

  // Refuses gate flags on a model without gates.
  GateRun Resolve(const ModelConfig& config, std::uint64_t seed) const {
    const bool asked =
        gates_option->count() > 0 || (weight_option != nullptr && weight_option->count() > 0);
    if (asked && config.attention != AttentionKind::kGated) {
      Fail("--gates and --gate-weight need a gated model, but this one has softmax attention");
    }
    GateRun run;
    run.open = gates == "open";
    run.mode = gates == "sampled" ? GateMode::kSampled : GateMode::kHard;
    run.noise.seed = seed;
    run.penalty_weight = weight;
    return run;
  }
};

}  // namespace clearhead::cli
