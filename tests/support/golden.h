// SPDX-License-Identifier: MIT
// Golden tensors and how far a result is from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/safetensors.h"

namespace clearhead {

struct GoldenTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Every tensor of F32, F16 or BF16 in a safetensors file, as fp32.
inline std::map<std::string, GoldenTensor> ReadGolden(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::map<std::string, GoldenTensor> golden;
  for (const TensorEntry& entry : file.tensors()) {
    if (!IsConvertibleFloat(entry.dtype)) continue;
    GoldenTensor& tensor = golden[entry.name];
    tensor.shape = entry.shape;
    tensor.values.resize(static_cast<std::size_t>(entry.size()));
    ConvertToFloat(entry, tensor.values.data());
  }
  return golden;
}

// The largest |actual - expected|. Values that are equal, infinities included, differ by 0; a NaN
// on either side differs by infinity, so that no tolerance accepts it.
inline double MaxAbsDifference(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size()) throw std::invalid_argument("sizes differ");
  double largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double difference = std::abs(double{actual[i]} - double{expected[i]});
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  }
  return largest;
}

// The largest absolute difference divided by the largest magnitude of the expected values: the
// "rel" of the golden tolerances. If all expected values are 0, any difference is infinite.
inline double MaxRelativeDifference(std::span<const float> actual,
                                    std::span<const float> expected) {
  const double difference = MaxAbsDifference(actual, expected);
  if (difference == 0) return 0;
  double magnitude = 0;
  for (const float value : expected) magnitude = std::max(magnitude, std::abs(double{value}));
  return difference / magnitude;
}

}  // namespace clearhead
