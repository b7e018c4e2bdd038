// SPDX-License-Identifier: MIT
#include "core/rank_sums.h"

#include <algorithm>

namespace clearhead {
namespace {

// Columns [share.first, share.last) of rows that are `width` wide, row after row.
void CopyColumns(std::span<const double> rows, std::int64_t width, const RankShare& share,
                 std::vector<double>* columns) {
  columns->clear();
  for (auto row = rows.begin(); row != rows.end(); row += width) {
    columns->insert(columns->end(), row + share.first, row + share.last);
  }
}

// Adds rows of sums.size() values, the first row first.
void AddRows(std::span<const double> rows, std::span<double> sums) {
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
}

}  // namespace

std::vector<double> SumInOrder(Communicator& ranks, std::span<const std::int64_t> items,
                               std::int64_t width, const MakePart& make) {
  const auto N = static_cast<std::size_t>(ranks.size());
  std::vector<double> sums(static_cast<std::size_t>(width));
  if (width == 0) return sums;
  const auto share_of = [&](std::size_t rank) {
    return ranks.Share(width, static_cast<int>(rank));
  };
  // Every rank adds its share of the columns up, over all items.
  const RankShare own = ranks.Share(width);
  const std::span<double> own_sums = std::span(sums).subspan(static_cast<std::size_t>(own.first),
                                                             static_cast<std::size_t>(own.size()));
  std::vector<double> values;
  std::vector<std::vector<double>> sent(N), received(N);
  for (std::size_t first = 0; first < items.size(); first += N) {
    const auto count = [&](std::size_t rank) {
      return first + rank < items.size() ? items[first + rank] : 0;
    };
    const auto me = static_cast<std::size_t>(ranks.rank());
    values.assign(static_cast<std::size_t>(count(me) * width), 0.0);
    if (!values.empty()) make(first + me, values);
    if (ranks.alone()) {
      AddRows(values, sums);
      continue;
    }
    std::vector<std::span<const std::byte>> to(N);
    std::vector<std::span<std::byte>> from(N);
    for (std::size_t r = 0; r < N; ++r) {
      CopyColumns(values, width, share_of(r), &sent[r]);
      received[r].resize(static_cast<std::size_t>(count(r) * own.size()));
      to[r] = std::as_bytes(std::span(sent[r]));
      from[r] = std::as_writable_bytes(std::span(received[r]));
    }
    ranks.Exchange(to, from);
    if (own.size() == 0) continue;
    for (const std::vector<double>& rows : received) AddRows(rows, own_sums);
  }
  if (ranks.alone()) return sums;
  const std::vector<std::span<const std::byte>> to(N, std::as_bytes(own_sums));
  std::vector<std::span<std::byte>> from;
  std::vector<double> all(sums.size());
  for (std::size_t r = 0; r < N; ++r) {
    const RankShare share = share_of(r);
    from.push_back(std::as_writable_bytes(std::span(all).subspan(
        static_cast<std::size_t>(share.first), static_cast<std::size_t>(share.size()))));
  }
  ranks.Exchange(to, from);
  return all;
}

std::vector<float> GatherAll(Communicator& ranks, std::span<const float> mine) {
  std::vector<double> counts(static_cast<std::size_t>(ranks.size()));
  const auto own = static_cast<double>(mine.size());
  ranks.AllGather({&own, 1}, counts);
  std::size_t total = 0;
  for (const double count : counts) total += static_cast<std::size_t>(count);
  std::vector<float> all(total);
  const std::vector<std::span<const std::byte>> to(counts.size(), std::as_bytes(mine));
  std::vector<std::span<std::byte>> from;
  std::size_t at = 0;
  for (const double count : counts) {
    from.push_back(
        std::as_writable_bytes(std::span(all).subspan(at, static_cast<std::size_t>(count))));
    at += static_cast<std::size_t>(count);
  }
  ranks.Exchange(to, from);
  return all;
}

std::vector<std::vector<std::byte>> GatherToFirst(Communicator& ranks,
                                                  std::span<const std::byte> mine) {
  const auto N = static_cast<std::size_t>(ranks.size());
  std::vector<double> sizes(N);
  const auto own = static_cast<double>(mine.size());
  ranks.AllGather({&own, 1}, sizes);
  std::vector<std::vector<std::byte>> all(N);
  std::vector<std::span<const std::byte>> to(N);
  std::vector<std::span<std::byte>> from(N);
  to[0] = mine;
  for (std::size_t r = 0; r < N && ranks.first(); ++r) {
    all[r].resize(static_cast<std::size_t>(sizes[r]));
    from[r] = all[r];
  }
  ranks.Exchange(to, from);
  return all;
}

}  // namespace clearhead
