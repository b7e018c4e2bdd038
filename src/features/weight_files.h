// SPDX-License-Identifier: MIT
// The files of a transcoder: opened and checked one tensor at a time, then what its weights point
// to. Matrices stay where they are mapped; vectors are small and become fp32 copies.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/safetensors.h"
#include "kernels/weight.h"

namespace clearhead {

class WeightFiles {
 public:
  // Valid as long as this.
  const SafetensorsFile& Open(const std::filesystem::path& path);

  // A matrix where it is mapped. (Values of fp32 that a file has put at an odd address are copied.)
  Weight Mapped(const SafetensorsFile& file, std::string_view name,
                const std::vector<std::int64_t>& shape);
  // A copy in fp32; values that are not finite are refused.
  float* Copied(const SafetensorsFile& file, std::string_view name,
                const std::vector<std::int64_t>& shape);
  float* Zeros(std::int64_t count);

 private:
  std::deque<SafetensorsFile> files_;
  std::deque<Buffer<float>> values_;
};

// The tensor, checked: there, of that shape, of F32, F16 or BF16.
const TensorEntry& CheckedTensor(const SafetensorsFile& file, std::string_view name,
                                 const std::vector<std::int64_t>& shape);

// The extents of a tensor of that rank, all of them from 1 to 2^31 - 1.
std::vector<std::int64_t> ExtentsOf(const SafetensorsFile& file, std::string_view name,
                                    std::size_t rank);

// Refuses tensors with other names: what they would change is not known.
void RefuseOtherTensors(const SafetensorsFile& file, const std::vector<std::string>& known);

}  // namespace clearhead
