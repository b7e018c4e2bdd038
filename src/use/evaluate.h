// SPDX-License-Identifier: MIT
// Loss of a model on a token stream.
//
// Windowing: the stream is cut into windows of `context` input tokens; the target of each input is
// the token after it, so window w predicts tokens w*context+1 .. (w+1)*context, every token but the
// very first is predicted exactly once, and nothing before its window is seen. The last window may
// be shorter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

struct EvaluateOptions {
  std::int64_t context = 0;          // 0: the model's positions
  std::int64_t max_tokens = 0;       // predictions at most; 0: all
  std::int64_t batch_tokens = 2048;  // tokens per pass: memory against speed
  GateRun gates = {};
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  Communicator* ranks = nullptr;  // groups of windows are shared out among them; null: one alone
};

struct Evaluation {
  double loss = 0.0;        // mean next-token cross-entropy in nats
  std::int64_t tokens = 0;  // predictions
  std::int64_t windows = 0;
  std::int64_t context = 0;
  double seconds = 0.0;
  std::vector<double> window_losses;  // mean loss of each window, in order
  // Gated models, [layer*heads + head]: open gates and sum of gate probabilities over all windows
  // (the latter empty unless gates.sum_probabilities).
  std::vector<std::int64_t> open_edges;
  std::vector<double> gate_probability;
  std::int64_t causal_edges = 0;  // causal pairs of one head over all windows
};

Evaluation Evaluate(const Model& model, std::span<const std::int32_t> tokens,
                    const EvaluateOptions& options);

// All heads together.
struct EdgeTotals {
  std::int64_t open = 0, causal = 0;
  double fraction = 0.0;   // open / causal
  double per_query = 0.0;  // keys that a query of a head reads, on average
};
EdgeTotals TotalEdges(const Evaluation& evaluation);

// ---- The parts of Evaluate, for those who run models over the same windows again ----

// Windows of one length that go through the model together.
struct WindowGroup {
  std::int64_t first_window;
  std::int64_t first;  // input token of the first window; the others follow
  std::int64_t windows;
  std::int64_t length;
};
struct WindowPlan {
  std::int64_t context = 0;
  std::int64_t predictions = 0;
  std::vector<WindowGroup> groups;  // full windows several at a time, then the rest by itself
};

// Refuses a stream without a prediction, a context beyond the positions and ids outside the
// vocabulary.
WindowPlan PlanWindows(const ModelConfig& config, std::span<const std::int32_t> tokens,
                       const EvaluateOptions& options);

// Buffers for the windows of a group.
Activations ActivationsFor(const ModelConfig& config, const WindowGroup& group);

// The pass over a group. Noise of sampled gates belongs to the window, however windows are grouped.
Pass PassOver(const Model& model, const WindowGroup& group, const GateRun& gates);

// Losses of the windows of a plan, whose groups are dealt out to ranks (EvaluateOptions). Every
// rank runs whole groups, so that a window's bits do not depend on their number.
class WindowLosses {
 public:
  // All stay the caller's.
  WindowLosses(const Model& model, std::span<const std::int32_t> tokens, const WindowPlan& plan,
               const EvaluateOptions& options);

  // One of this rank's groups.
  void Run(std::size_t group, Hooks* hooks = nullptr);
  // All of this rank's.
  void RunOwn(Hooks* hooks = nullptr);
  // Of all groups: every rank calls it when it has run its own, and may then begin anew.
  Evaluation Finish();

 private:
  const Model& model_;
  std::span<const std::int32_t> tokens_;
  const WindowPlan& plan_;
  const EvaluateOptions& options_;
  Communicator alone_;
  Communicator& ranks_;
  bool gated_;
  std::vector<double> sums_;  // of each window's losses; 0 for the other ranks' windows
  Evaluation result_;         // the gates' counts so far
  std::optional<Activations> activations_;
};

// Adds the windows of a pass whose losses [R] are in the activations, and their gates.
void AddWindows(const Pass& pass, const Activations& activations, Evaluation* result);

}  // namespace clearhead
