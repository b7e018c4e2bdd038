// SPDX-License-Identifier: MIT
// The table of families: one line each.
#pragma once

#include "model/family.h"

namespace clearhead {

extern const Family kGpt2, kLlama, kMistral, kQwen2, kQwen3, kOlmo, kOlmo2;

inline constexpr const Family* kFamilies[] = {&kGpt2,  &kLlama, &kMistral, &kQwen2,
                                              &kQwen3, &kOlmo,  &kOlmo2};

}  // namespace clearhead
