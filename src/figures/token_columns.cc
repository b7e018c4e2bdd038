// SPDX-License-Identifier: MIT
#include "figures/token_columns.h"

#include <algorithm>
#include <set>

namespace clearhead {
namespace {

// Columns of the shown positions with a gap wherever some are missing between two; what is missing
// at the ends needs none: positions are numbered.
std::vector<TokenColumn> WithGaps(std::span<const double> widths,
                                  const std::set<std::int64_t>& shown) {
  std::vector<TokenColumn> columns;
  for (const std::int64_t p : shown) {
    if (!columns.empty() && columns.back().position != p - 1) {
      columns.push_back({.position = -1, .x = 0, .width = kGapColumn});
    }
    columns.push_back({.position = p, .x = 0, .width = widths[p]});
  }
  return columns;
}

double WidthOf(std::span<const TokenColumn> columns) {
  double sum = 0;
  for (const TokenColumn& column : columns) sum += column.width;
  return sum;
}

}  // namespace

std::vector<TokenColumn> ArrangeColumns(std::span<const double> widths,
                                        std::span<const std::int64_t> order, std::size_t always,
                                        double x, double width) {
  std::set<std::int64_t> shown;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool added = shown.insert(order[i]).second;
    if (i < always || !added) continue;
    if (WidthOf(WithGaps(widths, shown)) > width) shown.erase(order[i]);
  }
  std::vector<TokenColumn> columns = WithGaps(widths, shown);
  const double rest = std::max(0.0, width - WidthOf(columns));
  for (TokenColumn& column : columns) {
    if (column.position >= 0) column.width += rest / static_cast<double>(shown.size());
    column.x = x;
    x += column.width;
  }
  return columns;
}

std::optional<TokenColumn> ColumnOf(std::span<const TokenColumn> columns, std::int64_t position) {
  const auto it = std::find_if(columns.begin(), columns.end(),
                               [&](const TokenColumn& c) { return c.position == position; });
  return it == columns.end() ? std::nullopt : std::optional(*it);
}

}  // namespace clearhead
