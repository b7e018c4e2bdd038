// SPDX-License-Identifier: MIT
// A model in training: what is trained of it as a block of parameters in fp32; frozen parameters
// stay where the start model has them and cost nothing. A part may be trained through thin factors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "model/model.h"
#include "train/lora.h"
#include "train/parameter_block.h"
#include "train/trained_part.h"

namespace clearhead {

struct OptimizerOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;      // of matrices; biases and norms never decay
  bool decay_everything = false;  // torch.optim.AdamW's default, for comparison
  float clip_norm = 1.0f;         // largest global gradient norm; 0 switches clipping off
  TrainedPart part = {};          // without weight decay if it is not everything
  // Rates as shares of the step's, which is that of what makes queries and keys (a matrix that
  // makes values too goes with them): of the gates' biases, and of everything else.
  float gate_bias_rate = 10.0f;
  float rest_rate = 1.0f;
};

class Optimizer {
 public:
  // Starts from the weights of `start`; those that are trained are copied.
  Optimizer(const Model& start, const OptimizerOptions& options,
            const TrainingRanks& together = {});

  // The model being trained.
  const Model& model() const { return model_; }
  // Where backward adds to; null where frozen.
  ModelValues& gradients() { return gradient_tensors_; }

  // What backward says as it goes (model/run.h), in the last pass of a step: gradients set off to
  // the other ranks.
  void Completed(std::int64_t layer);

  // Norm of the accumulated gradients of what is trained, of all ranks.
  double GradientNorm();

  // Clips by `norm` (as returned above), steps, and clears the gradients.
  void Step(double lr, double norm);

  // Everything a checkpoint must hold: the trained weights, or LoRA's factors.
  ParameterBlock& parameters() { return block_; }
  // To be called when they have been filled from a checkpoint.
  void Restored();
  // Of values of the whole model those that are trained: checkpoints once held all of them. False
  // if they cannot be told from `whole`.
  bool PickTrained(std::span<const float> whole, std::span<float> out) const;

 private:
  struct Part {  // a trained tensor in the whole model's values and in ours
    std::int64_t from, to, size;
  };
  OptimizerOptions options_;
  Model model_;
  std::int64_t whole_size_ = 0;
  std::vector<Part> parts_;
  ParameterBlock block_;
  // With LoRA the block holds its factors, and these the merged matrices and their gradients.
  std::optional<Lora> lora_;
  Buffer<float> merged_, d_merged_;
  ModelValues weight_tensors_, gradient_tensors_;  // null where frozen
};

}  // namespace clearhead
