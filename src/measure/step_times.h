// SPDX-License-Identifier: MIT
// Whole optimiser steps with everything in them: forward, backward, clipping, AdamW.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "measure/best_seconds.h"
#include "model/model.h"
#include "train/batches.h"
#include "train/sparsify_step.h"
#include "train/step.h"

namespace clearhead {

// The step of `clearhead train`. Not to be copied or moved: a member looks into another.
class TrainingWork {
 public:
  TrainingWork(const TrainingWork&) = delete;
  TrainingWork& operator=(const TrainingWork&) = delete;
  TrainingWork(const Model& model, const StepShape& shape);
  void Run();

 private:
  std::vector<std::int32_t> tokens_;
  Batches batches_;  // over the tokens
  Optimizer optimizer_;
  TrainStep step_;
  std::int64_t batch_, sample_ = 0;
};

// Post-training steps of the gated twin of a model.
class PostTrainingWork {
 public:
  PostTrainingWork(const PostTrainingWork&) = delete;
  PostTrainingWork& operator=(const PostTrainingWork&) = delete;
  // The model, which is the teacher, must outlive it.
  PostTrainingWork(const Model& model, const StepShape& shape);
  void Dense();        // every gate open, no penalty: an ordinary step over the same buffers
  void Gated();        // sampled gates and edge penalty, no teacher
  void WithTeacher();  // the step of `clearhead sparsify`: the same and a frozen dense teacher

 private:
  void Step(const GateRun& gates);

  const Model& dense_;
  StepShape shape_;
  std::vector<std::int32_t> tokens_;
  Batches batches_;  // over the tokens
  Optimizer optimizer_;
  Activations activations_;
  std::vector<std::int32_t> inputs_, targets_;
  PackedWeights packed_;
  PackedBf16 scratch_;
  std::unique_ptr<SparsifyStep> sparsify_;  // made when it is first asked for: it is large
  std::int64_t sample_ = 0, number_ = 0;
};

double TrainTokensPerSecond(const Model& model, const StepShape& shape, const Budget& budget);

// Tokens per second.
struct StepRates {
  double dense, with_teacher;
  std::optional<double> gated;
};
// Gated steps without a teacher only if asked for: nobody trains so, they are for comparisons.
StepRates TimeSteps(const Model& model, const StepShape& shape, const Budget& budget, bool gated);

// Of one token's part in a step: six for each parameter, and the two products of every pair.
double FlopsPerToken(const ModelConfig& config, std::int64_t context);

}  // namespace clearhead
