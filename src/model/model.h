// SPDX-License-Identifier: MIT
// A model at rest: configuration and weights, in Hugging Face's directory layout on disk.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "model/config.h"
#include "model/parameters.h"

namespace clearhead {

struct Model {
  ModelConfig config;
  ModelTensors<const float> weights;
  DType stored_as = DType::kF32;  // widest type found in the files
  // Keeps what the weights point to: memory maps, or fp32 copies of 16-bit tensors.
  std::shared_ptr<const void> storage;
};

// Reads config.json and model.safetensors (or the shards of model.safetensors.index.json). F32
// weights are used where the file is mapped; F16 and BF16 are widened once. Missing, unknown,
// doubled and mis-shaped tensors are refused by name.
Model LoadModel(const std::filesystem::path& directory);

// Writes config.json and model.safetensors with the names GPT2LMHeadModel.save_pretrained uses, in
// `dtype` (F32, F16 or BF16). Each file is complete or absent.
void SaveModel(const Model& model, const std::filesystem::path& directory,
               DType dtype = DType::kF32);

// Fresh weights as Hugging Face initialises GPT-2: normal(0, 0.02), residual projections scaled
// down by sqrt(2 layers), biases 0, norms 1; a pure function of (config, seed).
Model RandomModel(const ModelConfig& config, std::uint64_t seed);

// The fresh weights themselves, into a block as BindContiguous lays it out.
void FillRandom(const ModelConfig& config, std::uint64_t seed, float* block);

}  // namespace clearhead
