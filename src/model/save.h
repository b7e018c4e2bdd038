// SPDX-License-Identifier: MIT
// The parts of saving a model that SaveModel and ConvertModel share.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "model/model.h"

namespace clearhead {

// Writes all weights in `dtype` (F32, F16 or BF16), to nearest, ties to even; without one each as
// the model holds it. Throws Error naming the tensor if a finite value would become infinite; then
// nothing is written.
void SaveWeights(const Model& model, const std::filesystem::path& file, std::optional<DType> dtype);

// As config.json spells the stored type: "bfloat16".
std::string_view ConfigName(DType dtype);

}  // namespace clearhead
