// SPDX-License-Identifier: MIT
// --eval-every, --checkpoint-every, --resume and --wire of everything that trains.
#pragma once

#include <cstdint>
#include <string>

#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "train/training_run.h"

namespace clearhead::cli {

// `evaluated`: when it is validated if --eval-every is not given.
inline void AddRunOptions(Command* command, RunOptions* run, std::string* wire,
                          const std::string& evaluated) {
  const auto positive = Range(std::int64_t{1}, std::int64_t{1} << 40);
  command
      ->add_option("--eval-every", run->eval_every,
                   "Steps between validations (default: " + evaluated + ")")
      ->check(positive);
  command
      ->add_option("--checkpoint-every", run->checkpoint_every,
                   "Steps between checkpoints (default: every five minutes)")
      ->check(positive);
  command->add_flag("--resume", run->resume, "Go on from the last checkpoint in --out");
  command
      ->add_option("--wire", *wire,
                   "Gradients between ranks: fp32, or bf16 for half the bytes (default: fp32)")
      ->check(IsMember({"fp32", "bf16"}));
}

// The ranks that mpirun or srun started.
inline TrainingRanks RanksOfRun(const std::string& wire) {
  return {.ranks = &Ranks(), .wire = wire == "bf16" ? DType::kBF16 : DType::kF32};
}

}  // namespace clearhead::cli
