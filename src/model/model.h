// SPDX-License-Identifier: MIT
// A model at rest: configuration and weights, in Hugging Face's directory layout on disk.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "model/config.h"
#include "model/parameters.h"

namespace clearhead {

struct PackedWeights;

struct Model {
  ModelConfig config;
  ModelWeights weights;
  DType stored_as = DType::kF32;  // widest type found in the files
  // Keeps what the weights point to: memory maps, or fp32 copies of 16-bit tensors.
  std::shared_ptr<const void> storage;
  // The matrices once more as products want them (packed_weights.h), or null. Who changes weights
  // drops it.
  std::shared_ptr<const PackedWeights> packed;
};

// Up to this many parameters 16-bit matrices are widened to fp32 when a model is loaded, which
// makes every later product quicker; larger models are used as they are mapped.
inline constexpr std::int64_t kWidenUpTo = 256'000'000;

// Reads config.json and model.safetensors (or the shards of model.safetensors.index.json). F32
// weights are used where the file is mapped, F16 and BF16 as stated above. Missing, unknown,
// doubled and mis-shaped tensors are refused by name.
Model LoadModel(const std::filesystem::path& directory, std::int64_t widen_up_to = kWidenUpTo);

// Writes config.json and model.safetensors with the names that the library's save_pretrained uses,
// in `dtype` (F32, F16 or BF16); without one every tensor as the model holds it. Each file is
// complete or absent.
void SaveModel(const Model& model, const std::filesystem::path& directory,
               std::optional<DType> dtype = {});

// Fresh weights: normal(0, 0.02), the matrices that write to the stream scaled down by
// sqrt(2 layers), biases 0, norms 1; a pure function of (config, seed).
Model RandomModel(const ModelConfig& config, std::uint64_t seed);

// The fresh weights themselves, into a block as BindContiguous lays it out.
void FillRandom(const ModelConfig& config, std::uint64_t seed, float* block);

}  // namespace clearhead
