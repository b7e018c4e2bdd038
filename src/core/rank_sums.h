// SPDX-License-Identifier: MIT
// Sums over items that ranks share out: windows of a text, prompts of a task. Items come in parts
// that are run together; part p belongs to rank p mod N (Communicator::Owns). Whoever makes an
// item's values, they are added in the order of the items, so that sums have the same bits for any
// number of ranks, and for any way to cut the items into parts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/communicator.h"

namespace clearhead {

// Fills the values [items of the part, width], which are 0 before.
using MakePart = std::function<void(std::size_t part, std::span<double> values)>;

// The sum over all items, [width], on every rank. `items`: how many each part has. A rank holds one
// part's values and its share of the others' at a time, so that a text of any length fits.
std::vector<double> SumInOrder(Communicator& ranks, std::span<const std::int64_t> items,
                               std::int64_t width, const MakePart& make);

// Every rank's values, one rank after another, on every rank; they need not be equally many.
std::vector<float> GatherAll(Communicator& ranks, std::span<const float> mine);

// Every rank's bytes on the first one, by rank; elsewhere nothing.
std::vector<std::vector<std::byte>> GatherToFirst(Communicator& ranks,
                                                  std::span<const std::byte> mine);

}  // namespace clearhead
