// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/threads.h"
#include "kernels/sparse_rows.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// y += a x
void AddScaled(std::int64_t count, float a, const float* x, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, a);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] += a * x[i];
}

float Dot(std::int64_t count, const float* x, const float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), sum1);
    sum2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * lanes), hn::LoadU(d, y + i + 2 * lanes), sum2);
    sum3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * lanes), hn::LoadU(d, y + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= count; i += lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// How many of x lie above; the threshold is 0 where `threshold` is null.
std::int64_t CountAbove(std::int64_t count, const float* x, const float* threshold) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::int64_t above = 0, i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto limit = threshold == nullptr ? zero : hn::LoadU(d, threshold + i);
    above += static_cast<std::int64_t>(hn::CountTrue(d, hn::Gt(hn::LoadU(d, x + i), limit)));
  }
  for (; i < count; ++i) above += x[i] > (threshold == nullptr ? 0.0f : threshold[i]) ? 1 : 0;
  return above;
}

void FillAbove(std::int64_t count, const float* x, const float* threshold, std::int32_t* column,
               float* value) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::int64_t i = 0;
  const auto keep = [&](std::int64_t at) {
    if (!(x[at] > (threshold == nullptr ? 0.0f : threshold[at]))) return;
    *column++ = static_cast<std::int32_t>(at);
    *value++ = x[at];
  };
  for (; i + lanes <= count; i += lanes) {
    const auto limit = threshold == nullptr ? zero : hn::LoadU(d, threshold + i);
    if (hn::AllFalse(d, hn::Gt(hn::LoadU(d, x + i), limit))) continue;  // nearly always
    for (std::int64_t at = i; at < i + lanes; ++at) keep(at);
  }
  for (; i < count; ++i) keep(i);
}

// Rows of a table lie anywhere: the first lines of the next one are asked for while this one is
// worked on; the hardware fetches the rest.
void AskFor(const float* row) {
  for (int line = 0; line < 4; ++line) hwy::Prefetch(row + 16 * line);
}

void DecodeRange(const SparseRows& entries, std::int64_t first, std::int64_t last,
                 std::int64_t length, TableOf<const float> table, TableOf<float> y) {
  const std::int64_t end = entries.begin[last];
  for (std::int64_t r = first; r < last; ++r) {
    for (std::int64_t e = entries.begin[r]; e < entries.begin[r + 1]; ++e) {
      if (e + 1 < end) AskFor(table.data + entries.column[e + 1] * table.stride);
      AddScaled(length, entries.value[e], table.data + entries.column[e] * table.stride,
                y.data + r * y.stride);
    }
  }
}

void ValuesRange(const SparseRows& entries, std::int64_t first, std::int64_t last,
                 std::int64_t length, TableOf<const float> table, TableOf<const float> dy,
                 float* d_value) {
  const std::int64_t end = entries.begin[last];
  for (std::int64_t r = first; r < last; ++r) {
    for (std::int64_t e = entries.begin[r]; e < entries.begin[r + 1]; ++e) {
      if (e + 1 < end) AskFor(table.data + entries.column[e + 1] * table.stride);
      d_value[e] =
          Dot(length, dy.data + r * dy.stride, table.data + entries.column[e] * table.stride);
    }
  }
}

void TableRange(const SparseColumns& entries, std::int64_t first, std::int64_t last,
                const float* value, std::int64_t length, TableOf<const float> dy,
                TableOf<float> d_table) {
  const std::int64_t end = entries.begin[last];
  for (std::int64_t f = first; f < last; ++f) {
    for (std::int64_t i = entries.begin[f]; i < entries.begin[f + 1]; ++i) {
      if (i + 1 < end) AskFor(dy.data + entries.row[i + 1] * dy.stride);
      AddScaled(length, value[entries.entry[i]], dy.data + entries.row[i] * dy.stride,
                d_table.data + f * d_table.stride);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(CountAbove);
HWY_EXPORT(FillAbove);
HWY_EXPORT(DecodeRange);
HWY_EXPORT(ValuesRange);
HWY_EXPORT(TableRange);

namespace {
// Rows and columns differ in their numbers of entries: shares smaller than one per thread.
constexpr std::int64_t kShare = 16;

template <typename Body>
void InShares(std::int64_t count, const Body& body) {
  ParallelFor((count + kShare - 1) / kShare, [&](std::int64_t share) {
    body(share * kShare, std::min(count, (share + 1) * kShare));
  });
}

// begin[r + 1] holds the entries of row r; makes room for all of them.
void MakeRoom(SparseRows& out) {
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.column.resize(static_cast<std::size_t>(out.begin.back()));
  out.value.resize(out.column.size());
}

}  // namespace

void SelectAbove(std::int64_t rows, std::int64_t columns, const float* x, const float* threshold,
                 SparseRows& out) {
  out.begin.assign(static_cast<std::size_t>(rows) + 1, 0);
  InShares(rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      out.begin[r + 1] = HWY_DYNAMIC_DISPATCH(CountAbove)(columns, x + r * columns, threshold);
    }
  });
  MakeRoom(out);
  InShares(rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      HWY_DYNAMIC_DISPATCH(FillAbove)
      (columns, x + r * columns, threshold, out.column.data() + out.begin[r],
       out.value.data() + out.begin[r]);
    }
  });
}

void SelectLargest(std::int64_t rows, std::int64_t columns, std::int64_t k, const float* x,
                   SparseRows& out) {
  const std::int64_t kept = std::min(k, columns);
  out.begin.assign(static_cast<std::size_t>(rows) + 1, kept);
  out.begin[0] = 0;
  MakeRoom(out);
  InShares(rows, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = x + r * columns;
      std::iota(order.begin(), order.end(), 0);
      const auto end = order.begin() + kept;
      std::nth_element(order.begin(), end, order.end(), [row](std::int32_t a, std::int32_t b) {
        return row[a] != row[b] ? row[a] > row[b] : a < b;
      });
      std::sort(order.begin(), end);
      for (std::int64_t i = 0; i < kept; ++i) {
        out.column[out.begin[r] + i] = order[static_cast<std::size_t>(i)];
        out.value[out.begin[r] + i] = row[order[static_cast<std::size_t>(i)]];
      }
    }
  });
}

void AppendRows(const SparseRows& from, SparseRows& to) {
  const std::int64_t before = to.size();
  to.column.insert(to.column.end(), from.column.begin(), from.column.end());
  to.value.insert(to.value.end(), from.value.begin(), from.value.end());
  for (std::int64_t r = 0; r < from.rows(); ++r) to.begin.push_back(before + from.begin[r + 1]);
}

void ByColumn(const SparseRows& rows, std::int64_t columns, SparseColumns& out) {
  out.begin.assign(static_cast<std::size_t>(columns) + 1, 0);
  for (const std::int32_t column : rows.column) ++out.begin[column + 1];
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.row.resize(rows.column.size());
  out.entry.resize(rows.column.size());
  std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1);
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    for (std::int64_t e = rows.begin[r]; e < rows.begin[r + 1]; ++e) {
      const std::int64_t at = next[rows.column[e]]++;
      out.row[at] = static_cast<std::int32_t>(r);
      out.entry[at] = e;
    }
  }
}

void DecodeRows(const SparseRows& entries, std::int64_t length, TableOf<const float> table,
                TableOf<float> y) {
  InShares(entries.rows(), [&](std::int64_t first, std::int64_t last) {
    HWY_DYNAMIC_DISPATCH(DecodeRange)(entries, first, last, length, table, y);
  });
}

void DecodeBackwardValues(const SparseRows& entries, std::int64_t length,
                          TableOf<const float> table, TableOf<const float> dy, float* d_value) {
  InShares(entries.rows(), [&](std::int64_t first, std::int64_t last) {
    HWY_DYNAMIC_DISPATCH(ValuesRange)(entries, first, last, length, table, dy, d_value);
  });
}

void DecodeBackwardTable(const SparseColumns& entries, std::span<const float> value,
                         std::int64_t length, TableOf<const float> dy, TableOf<float> d_table) {
  const auto columns = static_cast<std::int64_t>(entries.begin.size()) - 1;
  InShares(columns, [&](std::int64_t first, std::int64_t last) {
    HWY_DYNAMIC_DISPATCH(TableRange)(entries, first, last, value.data(), length, dy, d_table);
  });
}

}  // namespace clearhead
#endif  // HWY_ONCE
