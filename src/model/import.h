// SPDX-License-Identifier: MIT
// Models in other projects' files. llama2.c's: the legacy form without a magic number (7 int32 and
// fp32 tensors) and version 1 (magic "ak42", a header of 256 bytes). llama.cpp's: GGUF with a Llama
// in fp32, F16, BF16 or Q8_0.
#pragma once

#include <filesystem>

#include "model/model.h"

namespace clearhead {

// Reads one file. Sizes that do not fit together, truncated files and other versions are refused in
// one line. The weights are copies: the file may go.
Model ImportModel(const std::filesystem::path& file);

}  // namespace clearhead
