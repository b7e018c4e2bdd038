// SPDX-License-Identifier: MIT
// Gzip: zlib, wrapped once.
#pragma once

#include <string>
#include <string_view>

namespace clearhead {

// A gzip file of the text; equal text gives equal bytes.
std::string Gzip(std::string_view text);

}  // namespace clearhead
