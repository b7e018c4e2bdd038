// SPDX-License-Identifier: MIT
#include "features/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace clearhead {

const SafetensorsFile& WeightFiles::Open(const std::filesystem::path& path) {
  return files_.emplace_back(path);
}

Weight WeightFiles::Mapped(const SafetensorsFile& file, std::string_view name,
                           const std::vector<std::int64_t>& shape) {
  const TensorEntry& entry = CheckedTensor(file, name, shape);
  if (entry.dtype != DType::kF32 || AlignedFor<float>(entry)) {
    return {entry.bytes.data(), entry.dtype};
  }
  Buffer<float>& values = values_.emplace_back(entry.size());
  ConvertToFloat(entry, values.data());
  return Weight(values.data());
}

float* WeightFiles::Copied(const SafetensorsFile& file, std::string_view name,
                           const std::vector<std::int64_t>& shape) {
  const TensorEntry& entry = CheckedTensor(file, name, shape);
  Buffer<float>& values = values_.emplace_back(entry.size());
  ConvertToFloat(entry, values.data());
  const float* bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad != values.end()) {
    Fail("{}: '{}' has the value {} at {}, expected finite numbers", file.source(), name, *bad,
         bad - values.begin());
  }
  return values.data();
}

float* WeightFiles::Zeros(std::int64_t count) {
  Buffer<float>& values = values_.emplace_back(count);
  std::fill(values.begin(), values.end(), 0.0f);
  return values.data();
}

const TensorEntry& CheckedTensor(const SafetensorsFile& file, std::string_view name,
                                 const std::vector<std::int64_t>& shape) {
  const TensorEntry& entry = file.Get(name);
  if (entry.shape != shape) {
    Fail("{}: '{}' is [{}], expected [{}]", file.source(), name, fmt::join(entry.shape, ","),
         fmt::join(shape, ","));
  }
  if (!IsConvertibleFloat(entry.dtype)) {
    Fail("{}: '{}' is stored as {}, expected F32, F16 or BF16", file.source(), name,
         DTypeName(entry.dtype));
  }
  return entry;
}

std::vector<std::int64_t> ExtentsOf(const SafetensorsFile& file, std::string_view name,
                                    std::size_t rank) {
  const std::vector<std::int64_t>& shape = file.Get(name).shape;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const bool fits = std::all_of(shape.begin(), shape.end(),
                                [](std::int64_t extent) { return extent >= 1 && extent <= kMost; });
  if (shape.size() != rank || !fits) {
    Fail("{}: '{}' is [{}], expected {} extents from 1 on", file.source(), name,
         fmt::join(shape, ","), rank);
  }
  return shape;
}

void RefuseOtherTensors(const SafetensorsFile& file, const std::vector<std::string>& known) {
  for (const TensorEntry& entry : file.tensors()) {
    if (std::find(known.begin(), known.end(), entry.name) == known.end()) {
      Fail("{}: unknown tensor '{}' [{}]; expected {}", file.source(), entry.name,
           fmt::join(entry.shape, ","), fmt::join(known, ", "));
    }
  }
}

}  // namespace clearhead
