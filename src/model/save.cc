// SPDX-License-Identifier: MIT
#include "model/save.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"

namespace clearhead {
namespace {

// The 16-bit types end earlier than fp32, bf16 by half of its last step only.
void CheckFits(const TensorToWrite& tensor, std::int64_t size) {
  if (tensor.dtype == DType::kF32) return;
  const auto narrow = [&](float value) {
    return tensor.dtype == DType::kF16 ? HalfToFloat(FloatToHalf(value))
                                       : BFloat16ToFloat(FloatToBFloat16(value));
  };
  const float* end = tensor.data + size;
  const float* found = std::find_if(tensor.data, end, [&](float value) {
    return std::isfinite(value) && !std::isfinite(narrow(value));
  });
  if (found == end) return;
  Fail("the tensor '{}' has the value {} at {}, which {} cannot hold (largest: {}); store it as {}",
       tensor.name, *found, found - tensor.data, DTypeName(tensor.dtype),
       tensor.dtype == DType::kF16 ? "65504" : "3.39e38",
       tensor.dtype == DType::kF16 ? "BF16 or F32" : "F32");
}

}  // namespace

std::string_view ConfigName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

void SaveWeights(const Model& model, const std::filesystem::path& file,
                 std::optional<DType> dtype) {
  std::vector<TensorToWrite> tensors;
  std::vector<Buffer<float>> widened;
  ModelWeights weights = model.weights;
  VisitParameters(model.config, weights, [&](const ParameterSpec& spec, const Weight& weight) {
    const std::int64_t size = spec.shape.size();
    TensorToWrite tensor{.name = LibraryName(model.config, spec),
                         .dtype = dtype.value_or(weight.dtype),
                         .shape = {}};
    for (int axis = 0; axis < spec.shape.rank(); ++axis) tensor.shape.push_back(spec.shape[axis]);
    if (!weight.is_f32() && tensor.dtype == weight.dtype) {
      tensor.raw = {weight.data, static_cast<std::size_t>(size * DTypeSize(weight.dtype))};
    } else if (weight.is_f32()) {
      tensor.data = weight.f32();
      CheckFits(tensor, size);
    } else {
      Buffer<float>& values = widened.emplace_back(size);
      weight.CopyTo(0, size, values.data());
      tensor.data = values.data();
      CheckFits(tensor, size);
    }
    tensors.push_back(std::move(tensor));
  });
  WriteSafetensors(file, tensors, {{"format", "pt"}});
}

void SaveModel(const Model& model, const std::filesystem::path& directory,
               std::optional<DType> dtype) {
  MakeDirectory(directory);
  SaveWeights(model, directory / "model.safetensors", dtype);
  WriteJsonFile(directory / "config.json",
                ToJson(model.config, ConfigName(dtype.value_or(DType::kF32))));
}

}  // namespace clearhead
