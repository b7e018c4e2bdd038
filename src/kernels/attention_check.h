// SPDX-License-Identifier: MIT
// What every attention kernel demands of its shape.
#pragma once

#include "core/error.h"
#include "kernels/attention.h"

namespace clearhead {

inline void CheckShape(const AttentionShape& shape) {
  Check(shape.batch >= 0 && shape.heads >= 1 && shape.head_size >= 1, "attention without heads");
  Check(shape.queries >= 0 && shape.queries <= shape.keys, "more queries than keys");
}

}  // namespace clearhead
