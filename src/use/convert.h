// SPDX-License-Identifier: MIT
// A model folder stored again with another type of weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace clearhead {

struct Conversion {
  DType from = DType::kF32;  // widest type found
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;         // of the new model.safetensors
  std::vector<std::string> files;  // written, in this order
};

// `from` is a model folder, or a file that ImportModel reads (its config.json is then made, and
// `tokenizer`, if it is not empty, copied beside it as tokenizer.bin; else a GGUF file's own is
// written there, if it is SentencePiece's).
//
// Writes model.safetensors with weights in `dtype` (F32, F16, BF16), copies of the tokenizer's and
// generation's files, and last config.json, whose other fields stay as they are, gates included.
// Each file is complete or absent. Throws Error if `to` holds a model already, or if a weight is
// too large for `dtype`.
Conversion ConvertModel(const std::filesystem::path& from, const std::filesystem::path& to,
                        DType dtype, const std::filesystem::path& tokenizer = {});

}  // namespace clearhead
