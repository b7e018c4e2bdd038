// SPDX-License-Identifier: MIT
#include "text/token_file.h"

#include <cstring>

#include "core/error.h"
#include "core/safetensors.h"

namespace clearhead {

bool IsTokenFile(const std::filesystem::path& path) { return path.extension() == ".safetensors"; }

std::vector<std::int32_t> ReadTokenFile(const std::filesystem::path& path,
                                        std::int64_t vocabulary) {
  const SafetensorsFile file(path);
  const TensorEntry* found = file.Find("ids");
  if (found == nullptr) {
    Fail(
        "{}: there is no tensor 'ids'; expected a file of tokens, as clearhead write makes, or "
        "text",
        file.source());
  }
  const TensorEntry& entry = *found;
  if (entry.dtype != DType::kI32 || entry.shape.empty() || entry.shape.size() > 2) {
    Fail("{}: 'ids' is {} with {} dimensions, expected I32, [tokens] or [sequences, length]",
         file.source(), DTypeName(entry.dtype), entry.shape.size());
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(entry.size()));
  if (!ids.empty()) std::memcpy(ids.data(), entry.bytes.data(), entry.bytes.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      Fail("{}: token {} is {}, but the tokenizer has {} tokens; it is the file of another model",
           file.source(), i, ids[i], vocabulary);
    }
  }
  return ids;
}

void WriteTokenFile(const std::filesystem::path& path, std::span<const std::int32_t> ids) {
  const std::vector<TensorToWrite> tensors = {{.name = "ids",
                                               .dtype = DType::kI32,
                                               .shape = {static_cast<std::int64_t>(ids.size())},
                                               .data = nullptr,
                                               .raw = std::as_bytes(ids)}};
  WriteSafetensors(path, tensors);
}

}  // namespace clearhead
