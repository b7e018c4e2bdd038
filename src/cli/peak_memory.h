// SPDX-License-Identifier: MIT
// How much memory a run took.
#pragma once

#include <cstdint>
#include <vector>

#include "core/communicator.h"

namespace clearhead::cli {

// The largest resident memory of every rank's process so far, in bytes. Every rank calls it.
std::vector<std::int64_t> PeakMemory(Communicator& ranks);

}  // namespace clearhead::cli
