// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "core/threads.h"
#include "kernels/sparse_rows.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Four rows of a table. They lie anywhere, and the next four are asked for line by line while these
// are worked on: the hardware's own prefetching begins anew in every row.
struct FourRows {
  const float *r0, *r1, *r2, *r3;
};

FourRows RowsAt(const std::int32_t* rows, std::int64_t i, std::int64_t count,
                TableOf<const float> table) {
  const auto row = [&](std::int64_t at) {
    return table.data + rows[std::min(at, count - 1)] * table.stride;
  };
  return {row(i), row(i + 1), row(i + 2), row(i + 3)};
}

void AskFor(const FourRows& next, std::int64_t i) {
  hwy::Prefetch(next.r0 + i);
  hwy::Prefetch(next.r1 + i);
  hwy::Prefetch(next.r2 + i);
  hwy::Prefetch(next.r3 + i);
}

// d[i] = vector . row i, four rows at a time: the vector is read once for all of them. A row's sum
// is made in the same order whether it comes alone or among four.
void DotFour(std::int64_t length, const float* vector, const FourRows& x, const FourRows& next,
             float* d) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  auto a0 = hn::Zero(tag), a1 = hn::Zero(tag), a2 = hn::Zero(tag), a3 = hn::Zero(tag);
  auto b0 = hn::Zero(tag), b1 = hn::Zero(tag), b2 = hn::Zero(tag), b3 = hn::Zero(tag);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= length; i += 2 * lanes) {
    AskFor(next, i);
    if (2 * lanes > 16) AskFor(next, i + lanes);
    const auto low = hn::LoadU(tag, vector + i), high = hn::LoadU(tag, vector + i + lanes);
    a0 = hn::MulAdd(low, hn::LoadU(tag, x.r0 + i), a0);
    a1 = hn::MulAdd(low, hn::LoadU(tag, x.r1 + i), a1);
    a2 = hn::MulAdd(low, hn::LoadU(tag, x.r2 + i), a2);
    a3 = hn::MulAdd(low, hn::LoadU(tag, x.r3 + i), a3);
    b0 = hn::MulAdd(high, hn::LoadU(tag, x.r0 + i + lanes), b0);
    b1 = hn::MulAdd(high, hn::LoadU(tag, x.r1 + i + lanes), b1);
    b2 = hn::MulAdd(high, hn::LoadU(tag, x.r2 + i + lanes), b2);
    b3 = hn::MulAdd(high, hn::LoadU(tag, x.r3 + i + lanes), b3);
  }
  d[0] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(a0, b0)));
  d[1] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(a1, b1)));
  d[2] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(a2, b2)));
  d[3] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(a3, b3)));
  for (; i < length; ++i) {
    d[0] += vector[i] * x.r0[i];
    d[1] += vector[i] * x.r1[i];
    d[2] += vector[i] * x.r2[i];
    d[3] += vector[i] * x.r3[i];
  }
}

float Dot(std::int64_t length, const float* vector, const float* row) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  auto a = hn::Zero(tag), b = hn::Zero(tag);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= length; i += 2 * lanes) {
    a = hn::MulAdd(hn::LoadU(tag, vector + i), hn::LoadU(tag, row + i), a);
    b = hn::MulAdd(hn::LoadU(tag, vector + i + lanes), hn::LoadU(tag, row + i + lanes), b);
  }
  float sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(a, b)));
  for (; i < length; ++i) sum += vector[i] * row[i];
  return sum;
}

// y += a[0] x.r0 + a[1] x.r1 + a[2] x.r2 + a[3] x.r3, in this order.
void AddFour(std::int64_t length, const float* a, const FourRows& x, const FourRows& next,
             float* y) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto a0 = hn::Set(tag, a[0]), a1 = hn::Set(tag, a[1]), a2 = hn::Set(tag, a[2]),
             a3 = hn::Set(tag, a[3]);
  std::int64_t i = 0;
  for (; i + lanes <= length; i += lanes) {
    AskFor(next, i);
    auto sum = hn::MulAdd(a0, hn::LoadU(tag, x.r0 + i), hn::LoadU(tag, y + i));
    sum = hn::MulAdd(a1, hn::LoadU(tag, x.r1 + i), sum);
    sum = hn::MulAdd(a2, hn::LoadU(tag, x.r2 + i), sum);
    hn::StoreU(hn::MulAdd(a3, hn::LoadU(tag, x.r3 + i), sum), tag, y + i);
  }
  for (; i < length; ++i) {
    y[i] += a[0] * x.r0[i] + a[1] * x.r1[i] + a[2] * x.r2[i] + a[3] * x.r3[i];
  }
}

void AddOne(std::int64_t length, float a, const float* x, float* y) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto factor = hn::Set(tag, a);
  std::int64_t i = 0;
  for (; i + lanes <= length; i += lanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(tag, x + i), hn::LoadU(tag, y + i)), tag, y + i);
  }
  for (; i < length; ++i) y[i] += a * x[i];
}

// DotFour and AddFour over one reading of the four rows (the same sums in whole vectors).
void DotAndAddFour(std::int64_t length, const float* vector, const float* a, const FourRows& x,
                   const FourRows& next, float* d, float* y) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto a0 = hn::Set(tag, a[0]), a1 = hn::Set(tag, a[1]), a2 = hn::Set(tag, a[2]),
             a3 = hn::Set(tag, a[3]);
  auto s0 = hn::Zero(tag), s1 = hn::Zero(tag), s2 = hn::Zero(tag), s3 = hn::Zero(tag);
  auto t0 = hn::Zero(tag), t1 = hn::Zero(tag), t2 = hn::Zero(tag), t3 = hn::Zero(tag);
  const auto part = [&](std::int64_t i, auto& d0, auto& d1, auto& d2, auto& d3) {
    AskFor(next, i);
    const auto v = hn::LoadU(tag, vector + i);
    const auto x0 = hn::LoadU(tag, x.r0 + i), x1 = hn::LoadU(tag, x.r1 + i);
    const auto x2 = hn::LoadU(tag, x.r2 + i), x3 = hn::LoadU(tag, x.r3 + i);
    d0 = hn::MulAdd(v, x0, d0);
    d1 = hn::MulAdd(v, x1, d1);
    d2 = hn::MulAdd(v, x2, d2);
    d3 = hn::MulAdd(v, x3, d3);
    auto sum = hn::MulAdd(a0, x0, hn::LoadU(tag, y + i));
    sum = hn::MulAdd(a1, x1, sum);
    sum = hn::MulAdd(a2, x2, sum);
    hn::StoreU(hn::MulAdd(a3, x3, sum), tag, y + i);
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= length; i += 2 * lanes) {
    part(i, s0, s1, s2, s3);
    part(i + lanes, t0, t1, t2, t3);
  }
  d[0] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(s0, t0)));
  d[1] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(s1, t1)));
  d[2] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(s2, t2)));
  d[3] = hn::GetLane(hn::SumOfLanes(tag, hn::Add(s3, t3)));
  for (; i < length; ++i) {
    d[0] += vector[i] * x.r0[i];
    d[1] += vector[i] * x.r1[i];
    d[2] += vector[i] * x.r2[i];
    d[3] += vector[i] * x.r3[i];
    y[i] += a[0] * x.r0[i] + a[1] * x.r1[i] + a[2] * x.r2[i] + a[3] * x.r3[i];
  }
}

void DotsAndAdds(std::int64_t count, const std::int32_t* rows, std::int64_t length,
                 const float* vector, const float* factor, TableOf<const float> table, float* d,
                 float* sum) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    DotAndAddFour(length, vector, factor + i, RowsAt(rows, i, count, table),
                  RowsAt(rows, i + 4, count, table), d + i, sum);
  }
  for (; i < count; ++i) {
    const float* row = table.data + rows[i] * table.stride;
    d[i] = Dot(length, vector, row);
    AddOne(length, factor[i], row, sum);
  }
}

void Dots(std::int64_t count, const std::int32_t* rows, std::int64_t length, const float* vector,
          TableOf<const float> table, float* d) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    DotFour(length, vector, RowsAt(rows, i, count, table), RowsAt(rows, i + 4, count, table),
            d + i);
  }
  for (; i < count; ++i) d[i] = Dot(length, vector, table.data + rows[i] * table.stride);
}

void AddRows(std::int64_t count, const std::int32_t* rows, const float* factor, std::int64_t length,
             TableOf<const float> table, float* sum) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    AddFour(length, factor + i, RowsAt(rows, i, count, table), RowsAt(rows, i + 4, count, table),
            sum);
  }
  for (; i < count; ++i) AddOne(length, factor[i], table.data + rows[i] * table.stride, sum);
}

// Calls keep(i) for what of x lies above (the threshold is 0 where `threshold` is null), ascending.
template <typename Keep>
HWY_INLINE void ForAbove(std::int64_t count, const float* x, const float* threshold,
                         const Keep& keep) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto zero = hn::Zero(tag);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto limit = threshold == nullptr ? zero : hn::LoadU(tag, threshold + i);
    const auto mask = hn::Gt(hn::LoadU(tag, x + i), limit);
    if (hn::AllFalse(tag, mask)) continue;  // nearly always
    std::uint8_t bytes[hn::MaxLanes(tag) / 8 + 8] = {};
    hn::StoreMaskBits(tag, mask, bytes);
    for (std::int64_t byte = 0; 8 * byte < lanes; ++byte) {
      for (std::uint32_t bits = bytes[byte]; bits != 0; bits &= bits - 1) {
        keep(i + 8 * byte + std::countr_zero(bits));
      }
    }
  }
  for (; i < count; ++i) {
    if (x[i] > (threshold == nullptr ? 0.0f : threshold[i])) keep(i);
  }
}

// Writes what of x lies above and tells how many.
std::int64_t Above(std::int64_t count, const float* x, const float* threshold, std::int32_t* column,
                   float* value) {
  std::int64_t above = 0;
  ForAbove(count, x, threshold, [&](std::int64_t at) {
    column[above] = static_cast<std::int32_t>(at);
    value[above++] = x[at];
  });
  return above;
}

// The same of a part of a matrix, behind what was found before.
void AboveInPart(const MatrixPart& part, const float* threshold, FoundEntries& found) {
  std::int64_t above = found.count;
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const float* x = part.x + r * part.stride;
    ForAbove(part.columns, x, threshold + part.first_column, [&](std::int64_t at) {
      found.row[above] = static_cast<std::int32_t>(part.first_row + r);
      found.column[above] = static_cast<std::int32_t>(part.first_column + at);
      found.value[above++] = x[at];
    });
  }
  found.count = above;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(Dots);
HWY_EXPORT(DotsAndAdds);
HWY_EXPORT(AddRows);
HWY_EXPORT(Above);
HWY_EXPORT(AboveInPart);

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
  // Each share into lists of its own, in one pass over x while it is in the cache.
  struct Share {
    std::vector<std::int32_t> column;
    std::vector<float> value;  // both longer than what they hold
    std::int64_t size = 0;
  };
  std::vector<Share> shares(static_cast<std::size_t>((rows + kShare - 1) / kShare));
  out.begin.assign(static_cast<std::size_t>(rows) + 1, 0);
  InShares(rows, [&](std::int64_t first, std::int64_t last) {
    Share& share = shares[static_cast<std::size_t>(first / kShare)];
    for (std::int64_t r = first; r < last; ++r) {
      const auto room = static_cast<std::size_t>(share.size + columns);
      if (share.column.size() < room) {
        share.column.resize(2 * room);
        share.value.resize(2 * room);
      }
      out.begin[r + 1] = HWY_DYNAMIC_DISPATCH(Above)(columns, x + r * columns, threshold,
                                                     share.column.data() + share.size,
                                                     share.value.data() + share.size);
      share.size += out.begin[r + 1];
    }
  });
  MakeRoom(out);
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const std::int64_t at = out.begin[static_cast<std::int64_t>(s) * kShare];
    std::copy_n(shares[s].column.begin(), shares[s].size, out.column.begin() + at);
    std::copy_n(shares[s].value.begin(), shares[s].size, out.value.begin() + at);
  }
}

void FindAbove(const MatrixPart& part, const float* threshold, FoundEntries& found) {
  const auto room = static_cast<std::size_t>(found.count + part.rows * part.columns);
  if (found.row.size() < room) {
    found.row.resize(2 * room);
    found.column.resize(2 * room);
    found.value.resize(2 * room);
  }
  HWY_DYNAMIC_DISPATCH(AboveInPart)(part, threshold, found);
}

void SortByRow(const FoundEntries& found, std::int64_t rows, SparseRows& out) {
  out.begin.assign(static_cast<std::size_t>(rows) + 1, 0);
  for (std::int64_t e = 0; e < found.count; ++e) ++out.begin[found.row[e] + 1];
  MakeRoom(out);
  std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1);
  for (std::int64_t e = 0; e < found.count; ++e) {
    const std::int64_t at = next[found.row[e]]++;
    out.column[at] = found.column[e];
    out.value[at] = found.value[e];
  }
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
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t begin = entries.begin[r];
      HWY_DYNAMIC_DISPATCH(AddRows)
      (entries.begin[r + 1] - begin, entries.column.data() + begin, entries.value.data() + begin,
       length, table, y.data + r * y.stride);
    }
  });
}

void DotsWithRows(std::span<const std::int32_t> rows, std::int64_t length, const float* vector,
                  TableOf<const float> table, float* dots) {
  HWY_DYNAMIC_DISPATCH(Dots)
  (static_cast<std::int64_t>(rows.size()), rows.data(), length, vector, table, dots);
}

void DotsAndSums(std::span<const std::int32_t> rows, std::int64_t length, const float* vector,
                 const float* factor, TableOf<const float> table, float* dots, float* sum) {
  HWY_DYNAMIC_DISPATCH(DotsAndAdds)
  (static_cast<std::int64_t>(rows.size()), rows.data(), length, vector, factor, table, dots, sum);
}

void AddScaledRows(std::span<const std::int32_t> rows, const float* factor, std::int64_t length,
                   TableOf<const float> table, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddRows)
  (static_cast<std::int64_t>(rows.size()), rows.data(), factor, length, table, sum);
}

}  // namespace clearhead
#endif  // HWY_ONCE
