// SPDX-License-Identifier: MIT
// What `train` and `sparsify` share on the command line: how long to run, and where sequences
// start.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/common.h"
#include "core/error.h"
#include "train/step.h"

namespace clearhead::cli {

struct RunLength {
  std::int64_t tokens = 0, steps = -1;

  void Add(Command* command) {
    command->add_option("--tokens", tokens, "Tokens to train on, e.g. 20M")
        ->transform(NumberWithUnit({{"k", 1000}, {"M", 1000000}, {"G", 1000000000}}))
        ->check(Range(std::int64_t{1}, std::int64_t{1} << 40));
    command->add_option("--steps", steps, "Optimiser steps, instead of --tokens")
        ->check(Range(std::int64_t{0}, std::int64_t{1} << 40));
  }

  std::int64_t Steps(const StepShape& shape) const {
    const std::int64_t per_step = TokensPerStep(shape);
    if (steps >= 0) {
      TokensPerStep(shape, steps);  // all of them can be counted
      return steps;
    }
    if (tokens > 0) return tokens / per_step + (tokens % per_step != 0 ? 1 : 0);
    FailUsage("say how long to train: --tokens N or --steps N");
  }
};

// The tokens that begin a line: the first, and those after a token that ends in a newline.
inline std::vector<std::int64_t> LineStarts(const Tokenizer& tokenizer,
                                            std::span<const std::int32_t> tokens) {
  std::vector<std::int64_t> starts = {0};
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokenizer.TokenBytes(tokens[i]).ends_with('\n')) {
      starts.push_back(static_cast<std::int64_t>(i + 1));
    }
  }
  return starts;
}

}  // namespace clearhead::cli
