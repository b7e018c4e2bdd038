// SPDX-License-Identifier: MIT
// Positions of a prompt side by side on a page: as wide as what they show; where a page has no room
// for all of them, gaps stand for those that matter least.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace clearhead {

struct TokenColumn {
  std::int64_t position = -1;  // -1: a gap, positions that are not shown
  double x = 0, width = 0;
  double center() const { return x + width / 2; }
};

inline constexpr double kGapColumn = 14;

// `widths` [T] that the positions need, `order` of positions from the most important down (others
// are not shown). The first `always` of them are shown whatever their widths; each further one if
// it still fits, with the gaps, into `width`. Columns then share the room that is left over.
std::vector<TokenColumn> ArrangeColumns(std::span<const double> widths,
                                        std::span<const std::int64_t> order, std::size_t always,
                                        double x, double width);

// The column of a position, if it is shown.
std::optional<TokenColumn> ColumnOf(std::span<const TokenColumn> columns, std::int64_t position);

}  // namespace clearhead
