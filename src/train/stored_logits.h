// SPDX-License-Identifier: MIT
// A teacher's logits, computed once and kept in a safetensors file:
//   ids     I32 [N,T]
//   logits  F32, F16 or BF16 [N,T,V]   after each token of each sequence
// as `clearhead capture` writes them, or any other program that ran the dense model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/safetensors.h"
#include "model/config.h"

namespace clearhead {

class StoredLogits {
 public:
  // Throws Error where the file does not fit the model: shapes, types, ids outside the vocabulary.
  StoredLogits(const std::filesystem::path& path, const ModelConfig& config);

  std::int64_t sequences() const { return sequences_; }
  std::int64_t length() const { return length_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }  // [N,T]

  // Logits [count, V] after the tokens from `token` on, counted through the whole file.
  void Read(std::int64_t token, std::int64_t count, float* out) const;

 private:
  SafetensorsFile file_;
  const TensorEntry* logits_;
  std::int64_t sequences_, length_, vocabulary_;
  std::vector<std::int32_t> ids_;
};

}  // namespace clearhead
