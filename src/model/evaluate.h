// Loss of a model on a token stream.
//
// Windowing: the stream is cut into windows of `context` input tokens; the target of each input is
// the token after it, so window w predicts tokens w*context+1 .. (w+1)*context, every token but the
// very first is predicted exactly once, and nothing before its window is seen. The last window may
// be shorter.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/pass.h"

namespace clearhead {

struct EvaluateOptions {
  std::int64_t context = 0;          // 0: the model's positions
  std::int64_t max_tokens = 0;       // predictions at most; 0: all
  std::int64_t batch_tokens = 2048;  // tokens per pass: memory against speed
  GateRun gates = {};
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct Evaluation {
  double loss = 0.0;        // mean next-token cross-entropy in nats
  std::int64_t tokens = 0;  // predictions
  std::int64_t windows = 0;
  std::int64_t context = 0;
  double seconds = 0.0;
  std::vector<double> window_losses;  // mean loss of each window, in order
  // Gated models, [layer*heads + head]: open gates and sum of gate probabilities over all windows.
  std::vector<std::int64_t> open_edges;
  std::vector<double> gate_probability;
  std::int64_t causal_edges = 0;  // causal pairs of one head over all windows
};

Evaluation Evaluate(const Gpt2& model, std::span<const std::int32_t> tokens,
                    const EvaluateOptions& options);

}  // namespace clearhead
