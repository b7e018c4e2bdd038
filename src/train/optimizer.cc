// SPDX-License-Identifier: MIT
#include "train/optimizer.h"

#include <algorithm>

#include "core/error.h"

namespace clearhead {
namespace {

float RateOf(Role role, const OptimizerOptions& options) {
  if (role == Role::kGateBias) return options.gate_bias_rate;
  return MakesQueriesOrKeys(role) ? 1.0f : options.rest_rate;
}

// When backward is done with a layer's gradients; of the embeddings it is last.
std::int64_t StageOf(const ModelConfig& config, std::int64_t layer) {
  return config.layers - layer;
}
std::int64_t StageOf(const ModelConfig& config, const ParameterSpec& spec) {
  if (spec.layer != kOutsideBlocks) return StageOf(config, spec.layer);
  const bool embedding =
      spec.role == Role::kTokenEmbedding || spec.role == Role::kPositionEmbedding;
  return StageOf(config, embedding ? -1 : config.layers);
}

}  // namespace

Optimizer::Optimizer(const Model& start, const OptimizerOptions& options,
                     const TrainingRanks& together)
    : options_(options), model_(start) {
  model_.packed = nullptr;  // these weights will change
  const TrainedPart::Kind kind = options.part.kind;
  Check(kind == TrainedPart::Kind::kAll || options.weight_decay == 0.0f,
        "parts of tensors that are frozen must not decay");
  std::vector<ParameterRun> runs;
  std::int64_t size = 0;
  for (const ParameterSpec& spec : ParameterTable(start.config)) {
    if (IsTrained(kind, spec.role)) {
      parts_.push_back({whole_size_, size, spec.shape.size()});
      runs.push_back({spec.shape.size(), spec.decays() || options_.decay_everything,
                      StageOf(start.config, spec), RateOf(spec.role, options_)});
      size += spec.shape.size();
    }
    whole_size_ += spec.shape.size();
  }
  float *weights = nullptr, *gradients = nullptr;
  if (kind == TrainedPart::Kind::kLora) {
    lora_.emplace(start, options.part.rank);
    block_ = ParameterBlock({{lora_->size(), /*decays=*/false}}, together);
    lora_->Fill(block_.values().data());
    merged_ = Buffer<float>(size);
    d_merged_ = Buffer<float>(size);
    std::fill(d_merged_.begin(), d_merged_.end(), 0.0f);
    weights = merged_.data();
    gradients = d_merged_.data();
  } else {
    block_ = ParameterBlock(runs, together);
    weights = block_.values().data();
    gradients = block_.gradients().data();
  }
  weight_tensors_.blocks.resize(start.weights.blocks.size());
  gradient_tensors_.blocks.resize(start.weights.blocks.size());
  VisitParameters(start.config, model_.weights, [&](const ParameterSpec& spec, Weight& weight) {
    if (!IsTrained(kind, spec.role)) return;
    weight.CopyTo(0, spec.shape.size(), weights);
    weight = Weight(weights);
    weight_tensors_(spec.role, spec.layer) = weights;
    gradient_tensors_(spec.role, spec.layer) = gradients;
    weights += spec.shape.size();
    gradients += spec.shape.size();
  });
}

void Optimizer::Completed(std::int64_t layer) {
  // LoRA's gradients are made of the matrices' when all of these are there.
  if (!lora_) block_.Completed(StageOf(model_.config, layer));
}

double Optimizer::GradientNorm() {
  if (lora_) {
    lora_->Project(gradient_tensors_, block_.values().data(), block_.gradients().data());
  }
  block_.SumGradients();
  if (!lora_) ClearFrozenColumns(model_.config, options_.part.kind, gradient_tensors_);
  return block_.GradientNorm();
}

void Optimizer::Step(double lr, double norm) {
  block_.Step({.beta1 = options_.beta1,
               .beta2 = options_.beta2,
               .epsilon = options_.epsilon,
               .weight_decay = options_.weight_decay,
               .clip_norm = options_.clip_norm},
              lr, norm);
  if (lora_) {
    std::fill(d_merged_.begin(), d_merged_.end(), 0.0f);
    lora_->Merge(block_.values().data(), weight_tensors_);
  }
}

void Optimizer::Restored() {
  if (lora_) lora_->Merge(block_.values().data(), weight_tensors_);
}

bool Optimizer::PickTrained(std::span<const float> whole, std::span<float> out) const {
  if (lora_ || static_cast<std::int64_t>(whole.size()) != whole_size_) return false;
  for (const Part& part : parts_) {
    std::copy_n(whole.begin() + part.from, part.size, out.begin() + part.to);
  }
  return true;
}

}  // namespace clearhead
