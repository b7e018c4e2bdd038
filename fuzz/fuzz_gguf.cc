// SPDX-License-Identifier: MIT
// Any bytes: GgufFile throws Error, or every tensor it gives is wholly inside the bytes; a model
// made of it has no more values than the file has room for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/gguf.h"
#include "model/families/gguf_llama.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace clearhead;
  try {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
    const GgufFile file = GgufFile::FromBytes(bytes, "fuzz");
    for (const GgufTensor& tensor : file.tensors()) {
      if (file.Find(tensor.name) != &tensor) std::abort();
      if (tensor.bytes.empty()) continue;
      if (tensor.bytes.data() < bytes.data() ||
          tensor.bytes.data() + tensor.bytes.size() > bytes.data() + size)
        std::abort();
      std::vector<float> values(static_cast<std::size_t>(tensor.size()));
      ConvertToFloat(tensor, values.data());
    }
    const Model model = ImportGguf(file);
    if (static_cast<std::size_t>(model.config.ParameterCount()) > size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
