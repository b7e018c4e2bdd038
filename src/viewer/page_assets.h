// SPDX-License-Identifier: MIT
// The page itself, built from web/ and kept in the program.
#pragma once

#include <string_view>

namespace clearhead {

std::string_view PageHtml();
std::string_view PageScript();
std::string_view PageStyle();

}  // namespace clearhead
