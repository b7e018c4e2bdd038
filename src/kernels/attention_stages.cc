// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_stages.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "core/threads.h"
#include "kernels/attention_block-inl.h"
#include "kernels/attention_check.h"
#include "kernels/attention_product-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/attention_stages.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

// Turns a scratch row of scores into exp(s - max), 0 past `count`; returns 1/sum, or 0 for a row of
// -infinity, whose pattern is 0 (as in TransformerLens).
float SoftmaxRow(float* row, std::int64_t count) {
  const FloatTag d;
  const float max = RowMax(row, count);
  const Vector shift = hn::Set(d, max == -HUGE_VALF ? 0.0f : max);
  Vector sum = hn::Zero(d);
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(std::min(kLanes, count - j)));
    const Vector p = hn::IfThenElseZero(valid, FastExp(hn::Sub(hn::LoadU(d, row + j), shift)));
    hn::StoreU(p, d, row + j);
    sum = hn::Add(sum, p);
  }
  const float total = SumOf(sum);
  return total == 0.0f ? 0.0f : 1.0f / total;
}

struct MatrixRow {
  float scale;  // of the first `count` values
  std::int64_t count;
  std::int64_t keys;
  float rest;  // what fills the row from `count` to `keys`
};

void WriteRow(const MatrixRow& how, const float* from, float* to) {
  const FloatTag d;
  const Vector scale = hn::Set(d, how.scale);
  std::int64_t j = 0;
  for (; j + kLanes <= how.count; j += kLanes) {
    hn::StoreU(hn::Mul(scale, hn::LoadU(d, from + j)), d, to + j);
  }
  for (; j < how.count; ++j) to[j] = how.scale * from[j];
  std::fill(to + how.count, to + how.keys, how.rest);
}

// a b^T over blocks of a (queries) and all of b (keys), then `finish(row, count, out)` on every
// row.
template <class Finish>
void PairProduct(const AttentionShape& shape, HeadRows<const float> a, HeadRows<const float> b_rows,
                 float scale, float* matrix, const Finish& finish) {
  ForHeadParts(shape, [&](std::int64_t b, std::int64_t h, std::int64_t first_block,
                          std::int64_t last_block) {
    const std::int64_t depth = shape.head_size;
    const std::int64_t width = RoundUp(depth, kPanel);
    const std::int64_t last_query = std::min(last_block * kQueryBlock, shape.queries);
    const std::int64_t keys = last_query + (shape.keys - shape.queries);
    const std::int64_t row_stride = WeightStride(keys);
    ScratchParts parts(ThreadScratch<float, TaskScratch>(
        RoundUp(keys, kPanel) * depth + kQueryBlock * (width + row_stride) + 3 * 16));
    float* panels = parts.Take(RoundUp(keys, kPanel) * depth);
    float* a_rows = parts.Take(kQueryBlock * width);
    float* rows = parts.Take(kQueryBlock * row_stride);
    PackTransposed(Slice(shape, b_rows, b, h), keys, depth, panels);
    const HeadSlice<const float> a_head = Slice(shape, a, b, h);
    for (std::int64_t i = first_block; i < last_block; ++i) {
      const std::int64_t first = i * kQueryBlock;
      const CausalBlock block = BlockAt(shape, first, 0, shape.keys);
      PackRows({a_head.row(first), a_head.row_stride}, block.rows, depth, scale,
               RoundUp(block.rows, kTileRows), width, a_rows);
      ScoreProduct(block, depth, a_rows, width, panels, rows, row_stride);
      for (std::int64_t m = 0; m < block.rows; ++m) {
        const std::int64_t row = (b * shape.heads + h) * shape.queries + first + m;
        finish(rows + m * row_stride, block.Visible(m), matrix + row * shape.keys);
      }
    }
  });
}

void Scores(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
            float* scores) {
  PairProduct(shape, q, k, shape.scale, scores, [&](float* row, std::int64_t count, float* out) {
    WriteRow({1.0f, count, shape.keys, -std::numeric_limits<float>::infinity()}, row, out);
  });
}

void Pattern(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
             float* pattern) {
  PairProduct(shape, q, k, shape.scale, pattern, [&](float* row, std::int64_t count, float* out) {
    const float scale = SoftmaxRow(row, count);
    WriteRow({scale, count, shape.keys, 0.0f}, row, out);
  });
}

void ApplyBackwardPattern(const AttentionShape& shape, HeadRows<const float> v,
                          HeadRows<const float> dz, float* dpattern) {
  PairProduct(shape, dz, v, 1.0f, dpattern, [&](float* row, std::int64_t count, float* out) {
    WriteRow({1.0f, count, shape.keys, 0.0f}, row, out);
  });
}

// Copies a causal row of a matrix into scratch, with a zero tail.
void LoadRow(const float* from, std::int64_t count, float* to) {
  std::copy(from, from + count, to);
  std::fill(to + count, to + RoundUp(count, kLanes), 0.0f);
  ZeroTail(to, count);
}

template <class Body>
void ForRows(const AttentionShape& shape, const Body& body) {
  ParallelFor(shape.batch * shape.heads * QueryBlocks(shape), [&](std::int64_t task) {
    const std::int64_t head = task / QueryBlocks(shape);
    const std::int64_t first = task % QueryBlocks(shape) * kQueryBlock;
    for (std::int64_t i = first; i < std::min(first + kQueryBlock, shape.queries); ++i) {
      body(head * shape.queries + i, i + 1 + (shape.keys - shape.queries));
    }
  });
}

void Softmax(const AttentionShape& shape, const float* scores, float* pattern) {
  ForRows(shape, [&](std::int64_t row, std::int64_t count) {
    float* scratch = ThreadScratch<float, TaskScratch>(WeightStride(shape.keys));
    LoadRow(scores + row * shape.keys, count, scratch);
    const float scale = SoftmaxRow(scratch, count);
    WriteRow({scale, count, shape.keys, 0.0f}, scratch, pattern + row * shape.keys);
  });
}

// ds = p (dp - sum p dp) on scratch rows; the result replaces dp.
void SoftmaxBackwardRow(const float* p, float* dp, std::int64_t count) {
  const FloatTag d;
  Vector sum = hn::Zero(d);
  for (std::int64_t j = 0; j < count; j += kLanes) {
    sum = hn::MulAdd(hn::LoadU(d, p + j), hn::LoadU(d, dp + j), sum);
  }
  const Vector dot = hn::SumOfLanes(d, sum);
  for (std::int64_t j = 0; j < count; j += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, p + j), hn::Sub(hn::LoadU(d, dp + j), dot)), d, dp + j);
  }
}

void SoftmaxBackward(const AttentionShape& shape, const float* pattern, const float* dpattern,
                     float* dscores) {
  ForRows(shape, [&](std::int64_t row, std::int64_t count) {
    const std::int64_t stride = WeightStride(shape.keys);
    float* p = ThreadScratch<float, TaskScratch>(2 * stride);
    float* dp = p + stride;
    LoadRow(pattern + row * shape.keys, count, p);
    LoadRow(dpattern + row * shape.keys, count, dp);
    SoftmaxBackwardRow(p, dp, count);
    WriteRow({1.0f, count, shape.keys, 0.0f}, dp, dscores + row * shape.keys);
  });
}

// Loads a block of the causal matrix into scratch rows, padded to whole tiles of rows.
void LoadBlock(const AttentionShape& shape, const CausalBlock& block, const float* matrix,
               std::int64_t row_stride, float* rows) {
  for (std::int64_t m = 0; m < RoundUp(block.rows, kTileRows); ++m) {
    if (m < block.rows) {
      LoadRow(matrix + m * shape.keys, block.Visible(m), rows + m * row_stride);
    } else {
      std::fill(rows + m * row_stride, rows + (m + 1) * row_stride, 0.0f);
    }
  }
}

// out_i = scale * sum_j weights_ij values_j
void RowSums(const AttentionShape& shape, const float* weights, HeadRows<const float> values,
             float scale, HeadRows<float> out) {
  ForHeadParts(shape, [&](std::int64_t b, std::int64_t h, std::int64_t first_block,
                          std::int64_t last_block) {
    const std::int64_t depth = shape.head_size;
    const std::int64_t width = RoundUp(depth, kPanel);
    const std::int64_t row_stride = WeightStride(kKeyTile);
    const std::int64_t panel_stride = shape.keys * kPanel;
    ScratchParts parts(ThreadScratch<float, TaskScratch>(
        shape.keys * width + kQueryBlock * (width + row_stride) + 3 * 16));
    float* panels = parts.Take(shape.keys * width);
    float* sums = parts.Take(kQueryBlock * width);
    float* rows = parts.Take(kQueryBlock * row_stride);
    PackPanels(Slice(shape, values, b, h), shape.keys, depth, 1.0f, panel_stride, panels);
    const HeadSlice<float> out_head = Slice(shape, out, b, h);
    for (std::int64_t i = first_block; i < last_block; ++i) {
      const std::int64_t first = i * kQueryBlock;
      const float* matrix = weights + ((b * shape.heads + h) * shape.queries + first) * shape.keys;
      const CausalBlock whole = BlockAt(shape, first, 0, shape.keys);
      std::fill(sums, sums + kQueryBlock * width, 0.0f);
      for (std::int64_t key = 0; key < whole.Visible(whole.rows - 1); key += kKeyTile) {
        const CausalBlock block = BlockAt(shape, first, key, kKeyTile);
        LoadBlock(shape, block, matrix + key, row_stride, rows);
        WeightedSum(block, rows, row_stride, panels + key * kPanel, panel_stride, width, sums);
      }
      UnpackRows(sums, width, whole.rows, depth, scale, {out_head.row(first), out_head.row_stride});
    }
  });
}

// out_j = scale * sum_i weights_ij values_i; one task per sequence and head, in order of the
// queries.
void ColumnSums(const AttentionShape& shape, const float* weights, HeadRows<const float> values,
                float scale, HeadRows<float> out) {
  ParallelFor(shape.batch * shape.heads, [&](std::int64_t task) {
    const std::int64_t b = task / shape.heads, h = task % shape.heads;
    const std::int64_t depth = shape.head_size;
    const std::int64_t width = RoundUp(depth, kPanel);
    const std::int64_t padded_keys = RoundUp(shape.keys, kKeyTile);
    const std::int64_t row_stride = WeightStride(kKeyTile);
    constexpr std::int64_t kPanelStride = kQueryBlock * kPanel;
    ScratchParts parts(ThreadScratch<float, TaskScratch>(
        padded_keys * width + kQueryBlock * (width + row_stride) + 3 * 16));
    float* sums = parts.Take(padded_keys * width);
    float* panels = parts.Take(kQueryBlock * width);
    float* rows = parts.Take(kQueryBlock * row_stride);
    std::fill(sums, sums + padded_keys * width, 0.0f);
    const HeadSlice<const float> in = Slice(shape, values, b, h);
    for (std::int64_t first = 0; first < shape.queries; first += kQueryBlock) {
      const float* matrix = weights + (task * shape.queries + first) * shape.keys;
      const CausalBlock whole = BlockAt(shape, first, 0, shape.keys);
      PackPanels({in.row(first), in.row_stride}, whole.rows, depth, scale, kPanelStride, panels);
      for (std::int64_t key = 0; key < whole.Visible(whole.rows - 1); key += kKeyTile) {
        const CausalBlock block = BlockAt(shape, first, key, kKeyTile);
        LoadBlock(shape, block, matrix + key, row_stride, rows);
        TransposedWeightedSum(block, rows, row_stride, panels, kPanelStride, width,
                              sums + key * width);
      }
    }
    UnpackRows(sums, width, shape.keys, depth, 1.0f, Slice(shape, out, b, h));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {
namespace {
HWY_EXPORT(Scores);
HWY_EXPORT(Pattern);
HWY_EXPORT(Softmax);
HWY_EXPORT(SoftmaxBackward);
HWY_EXPORT(ApplyBackwardPattern);
HWY_EXPORT(RowSums);
HWY_EXPORT(ColumnSums);
}  // namespace

void AttentionScores(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
                     float* scores) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Scores)(shape, q, k, scores);
}

void AttentionScoresBackward(const AttentionShape& shape, HeadRows<const float> q,
                             HeadRows<const float> k, const float* dscores, HeadRows<float> dq,
                             HeadRows<float> dk) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(RowSums)(shape, dscores, k, shape.scale, dq);
  HWY_DYNAMIC_DISPATCH(ColumnSums)(shape, dscores, q, shape.scale, dk);
}

void CausalSoftmax(const AttentionShape& shape, const float* scores, float* pattern) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Softmax)(shape, scores, pattern);
}

void CausalSoftmaxBackward(const AttentionShape& shape, const float* pattern, const float* dpattern,
                           float* dscores) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(SoftmaxBackward)(shape, pattern, dpattern, dscores);
}

void AttentionPattern(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
                      float* pattern) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Pattern)(shape, q, k, pattern);
}

void AttentionApply(const AttentionShape& shape, const float* pattern, HeadRows<const float> v,
                    HeadRows<float> z) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(RowSums)(shape, pattern, v, 1.0f, z);
}

void AttentionApplyBackward(const AttentionShape& shape, const float* pattern,
                            HeadRows<const float> v, HeadRows<const float> dz, float* dpattern,
                            HeadRows<float> dv) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(ApplyBackwardPattern)(shape, v, dz, dpattern);
  HWY_DYNAMIC_DISPATCH(ColumnSums)(shape, pattern, dz, 1.0f, dv);
}

}  // namespace clearhead
#endif  // HWY_ONCE
