// SPDX-License-Identifier: MIT
// Fused forward and backward over blocks of queries, for dense and gated attention alike: what
// happens to a row of scores is the template argument. Compiled once per instruction set (Highway).
#if defined(CLEARHEAD_ATTENTION_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_ATTENTION_FUSED_INL_H_
#undef CLEARHEAD_ATTENTION_FUSED_INL_H_
#else
#define CLEARHEAD_ATTENTION_FUSED_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "core/threads.h"
#include "kernels/attention.h"
#include "kernels/attention_block-inl.h"
#include "kernels/attention_product-inl.h"
#include "kernels/attention_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

struct RowPlace {
  std::int64_t b, h, query, position;
};

// What a row function makes of a row of scores besides the weights it leaves in place.
struct ForwardRow {
  float max = 0;          // weights are exp(s - max), unnormalised
  float sum = 0;          // of all weights, gated away or not
  std::int64_t open = 0;  // weights that may be nonzero
  float probability = 0;  // sum of the gate probabilities
};

struct BlockStatistics {
  std::int64_t open = 0;
  double probability = 0;
};

// What a sparse product costs per nonzero weight, in units of the dense one per weight. The sparse
// sum reads its rows of values from the second-level cache, where the dense one has them in the
// first.
constexpr std::int64_t kSparseSumCost = 5;
constexpr std::int64_t kSparseScatterCost = 4;

// Floats of scratch that forward and backward take from a thread.
inline std::int64_t ForwardScratch(const AttentionShape& shape) {
  const std::int64_t width = RoundUp(shape.head_size, kPanel);
  const std::int64_t padded_keys = RoundUp(shape.keys, kPanel);
  return padded_keys * (shape.head_size + width) +
         kQueryBlock * (2 * width + WeightStride(shape.keys)) + 5 * 16;
}
inline std::int64_t BackwardScratch(const AttentionShape& shape) {
  const std::int64_t width = RoundUp(shape.head_size, kPanel);
  const std::int64_t padded_keys = RoundUp(shape.keys, kKeyTile);
  return padded_keys * (2 * shape.head_size + 3 * width) +
         kQueryBlock * (5 * width + 2 * WeightStride(kKeyTile)) + 12 * 16;
}

// Forward of query blocks [first_block, last_block) of one sequence and head. RowFunction has
//   static constexpr bool kSparse               whether weights are often zero
//   ForwardRow operator()(RowPlace, float* row) const
// `statistics` (one per block of this sequence and head) may be null.
template <class RowFunction>
void ForwardBlocks(const AttentionShape& shape, const AttentionInput& input,
                   const RowFunction& function, HeadRows<float> z, float* log_sum_exp,
                   BlockStatistics* statistics, std::int64_t b, std::int64_t h,
                   std::int64_t first_block, std::int64_t last_block) {
  const std::int64_t depth = shape.head_size;
  const std::int64_t width = RoundUp(depth, kPanel);
  const std::int64_t last_query = std::min(last_block * kQueryBlock, shape.queries);
  const std::int64_t keys = last_query + (shape.keys - shape.queries);  // that these blocks see
  const std::int64_t padded_keys = RoundUp(keys, kPanel);
  const std::int64_t row_stride = WeightStride(keys);
  const std::int64_t panel_stride = padded_keys * kPanel;

  ScratchParts parts(ThreadScratch<float, TaskScratch>(ForwardScratch(shape)));
  float* k_panels = parts.Take(padded_keys * depth);
  float* v_panels = parts.Take(padded_keys * width);
  float* q_rows = parts.Take(kQueryBlock * width);
  float* z_rows = parts.Take(kQueryBlock * width);
  float* weights = parts.Take(kQueryBlock * row_stride);
  std::int32_t* columns = ThreadScratch<std::int32_t, TaskScratch>(shape.keys);
  PackTransposed(Slice(shape, input.k, b, h), keys, depth, k_panels);
  const HeadSlice<const float> v = Slice(shape, input.v, b, h);
  const bool single = shape.queries == 1;
  if (!single) PackPanels(v, keys, depth, 1.0f, panel_stride, v_panels);

  const HeadSlice<const float> q = Slice(shape, input.q, b, h);
  const HeadSlice<float> out = Slice(shape, z, b, h);
  for (std::int64_t i = first_block; i < last_block; ++i) {
    const std::int64_t first = i * kQueryBlock;
    const CausalBlock block = BlockAt(shape, first, 0, shape.keys);
    PackRows({q.row(first), q.row_stride}, block.rows, depth, shape.scale,
             RoundUp(block.rows, kTileRows), width, q_rows);
    ScoreProduct(block, depth, q_rows, width, k_panels, weights, row_stride);

    ForwardRow rows[kQueryBlock];
    BlockStatistics block_statistics;
    for (std::int64_t m = 0; m < block.rows; ++m) {
      const std::int64_t position = block.Visible(m) - 1;
      rows[m] = function(RowPlace{b, h, first + m, position}, weights + m * row_stride);
      block_statistics.open += rows[m].open;
      block_statistics.probability += rows[m].probability;
    }
    if (statistics != nullptr) statistics[i] = block_statistics;

    std::fill(z_rows, z_rows + RoundUp(block.rows, kTileRows) * width, 0.0f);
    bool summed[kQueryBlock / kTileRows] = {};
    if (single) {
      RowSum(weights, keys, v.data, v.row_stride, depth, z_rows);
      summed[0] = true;
    }
    for (std::int64_t m = 0; RowFunction::kSparse && !single && m < block.rows; m += kTileRows) {
      std::int64_t open = 0, pairs = 0;
      const std::int64_t end = std::min(m + kTileRows, block.rows);
      for (std::int64_t n = m; n < end; ++n) open += rows[n].open, pairs += block.Visible(n);
      if (open * kSparseSumCost >= pairs) continue;
      summed[m / kTileRows] = true;
      for (std::int64_t n = m; n < end; ++n) {
        const float* row = weights + n * row_stride;
        const std::int64_t count = ListNonzero(row, block.Visible(n), columns);
        SparseWeightedSum(row, columns, count, v_panels, panel_stride, width, z_rows + n * width);
      }
    }
    // Dense tiles key tile by key tile: a panel of values then stays in the first-level cache.
    for (std::int64_t key = 0; key < block.Visible(block.rows - 1); key += kKeyTile) {
      WeightedSum(BlockAt(shape, first, key, kKeyTile), weights + key, row_stride,
                  v_panels + key * kPanel, panel_stride, width, z_rows, summed);
    }
    for (std::int64_t m = 0; m < block.rows; ++m) {
      UnpackRows(z_rows + m * width, width, 1, depth, 1.0f / rows[m].sum,
                 {out.row(first + m), out.row_stride});
      if (log_sum_exp != nullptr) {
        log_sum_exp[(b * shape.heads + h) * shape.queries + first + m] =
            rows[m].max + std::log(rows[m].sum);
      }
    }
  }
}

// `statistics` has QueryBlocks(shape) entries per sequence and head, or is null.
template <class RowFunction>
void FusedForward(const AttentionShape& shape, const AttentionInput& input,
                  const RowFunction& function, HeadRows<float> z, float* log_sum_exp,
                  BlockStatistics* statistics) {
  PrepareScratch<float, TaskScratch>(ForwardScratch(shape));
  PrepareScratch<std::int32_t, TaskScratch>(shape.keys);
  ForHeadParts(shape, [&](std::int64_t b, std::int64_t h, std::int64_t first_block,
                          std::int64_t last_block) {
    BlockStatistics* of_head =
        statistics == nullptr ? nullptr : statistics + (b * shape.heads + h) * QueryBlocks(shape);
    ForwardBlocks(shape, input, function, z, log_sum_exp, of_head, b, h, first_block, last_block);
  });
}

// Backward of one sequence and head: dk and dv are sums over all queries, so this is one task, in
// one order. RowFunction has
//   static constexpr bool kSparse
//   std::int64_t operator()(RowPlace, std::int64_t key, std::int64_t count, float log_sum_exp,
//                           float output_dot, float* scores, float* r) const
// which turns the scores of keys [key, key + count) into the (gated) weights and r = dz_i . v_j
// into ds, both with a zero tail, and returns the number of weights that may be nonzero. output_dot
// is D_i.
template <class RowFunction>
void BackwardHead(const AttentionShape& shape, const AttentionInput& input,
                  const RowFunction& function, const AttentionOutput& output,
                  HeadRows<const float> dz, const AttentionGradients& gradients, std::int64_t b,
                  std::int64_t h) {
  const std::int64_t depth = shape.head_size;
  const std::int64_t width = RoundUp(depth, kPanel);
  const std::int64_t padded_keys = RoundUp(shape.keys, kKeyTile);
  const std::int64_t row_stride = WeightStride(kKeyTile);
  const std::int64_t k_panel_stride = padded_keys * kPanel;
  constexpr std::int64_t kBlockPanelStride = kQueryBlock * kPanel;

  ScratchParts parts(ThreadScratch<float, TaskScratch>(BackwardScratch(shape)));
  float* k_transposed = parts.Take(padded_keys * depth);
  float* v_transposed = parts.Take(padded_keys * depth);
  float* k_panels = parts.Take(padded_keys * width);
  float* dk = parts.Take(padded_keys * width);
  float* dv = parts.Take(padded_keys * width);
  float* q_rows = parts.Take(kQueryBlock * width);
  float* q_panels = parts.Take(kQueryBlock * width);
  float* dz_rows = parts.Take(kQueryBlock * width);
  float* dz_panels = parts.Take(kQueryBlock * width);
  float* dq = parts.Take(kQueryBlock * width);
  float* weights = parts.Take(kQueryBlock * row_stride);
  float* ds = parts.Take(kQueryBlock * row_stride);
  std::int32_t columns[kKeyTile];

  PackTransposed(Slice(shape, input.k, b, h), shape.keys, depth, k_transposed);
  PackTransposed(Slice(shape, input.v, b, h), shape.keys, depth, v_transposed);
  PackPanels(Slice(shape, input.k, b, h), shape.keys, depth, 1.0f, k_panel_stride, k_panels);
  std::fill(dk, dk + padded_keys * width, 0.0f);
  std::fill(dv, dv + padded_keys * width, 0.0f);

  const HeadSlice<const float> q = Slice(shape, input.q, b, h);
  const HeadSlice<const float> z = Slice(shape, output.z, b, h);
  const HeadSlice<const float> dz_in = Slice(shape, dz, b, h);
  const HeadSlice<float> dq_out = Slice(shape, gradients.dq, b, h);
  const float* log_sum_exp = output.log_sum_exp + (b * shape.heads + h) * shape.queries;
  for (std::int64_t first = 0; first < shape.queries; first += kQueryBlock) {
    const CausalBlock whole = BlockAt(shape, first, 0, shape.keys);
    const std::int64_t padded_rows = RoundUp(whole.rows, kTileRows);
    const HeadSlice<const float> q_block{q.row(first), q.row_stride};
    const HeadSlice<const float> dz_block{dz_in.row(first), dz_in.row_stride};
    PackRows(q_block, whole.rows, depth, shape.scale, padded_rows, width, q_rows);
    PackPanels(q_block, whole.rows, depth, shape.scale, kBlockPanelStride, q_panels);
    PackRows(dz_block, whole.rows, depth, 1.0f, padded_rows, width, dz_rows);
    PackPanels(dz_block, whole.rows, depth, 1.0f, kBlockPanelStride, dz_panels);
    float output_dot[kQueryBlock];
    for (std::int64_t m = 0; m < whole.rows; ++m) {
      output_dot[m] = DotOf(z.row(first + m), dz_block.row(m), depth);
    }
    std::fill(dq, dq + padded_rows * width, 0.0f);

    for (std::int64_t key = 0; key < whole.Visible(whole.rows - 1); key += kKeyTile) {
      const CausalBlock block = BlockAt(shape, first, key, kKeyTile);
      ScoreProduct(block, depth, q_rows, width, k_transposed + key * depth, weights, row_stride);
      ScoreProduct(block, depth, dz_rows, width, v_transposed + key * depth, ds, row_stride);
      std::int64_t open = 0, pairs = 0;
      for (std::int64_t m = 0; m < block.rows; ++m) {
        const std::int64_t position = whole.Visible(m) - 1;
        open += function(RowPlace{b, h, first + m, position}, key, block.Visible(m),
                         log_sum_exp[first + m], output_dot[m], weights + m * row_stride,
                         ds + m * row_stride);
        pairs += block.Visible(m);
      }
      WeightedSum(block, ds, row_stride, k_panels + key * kPanel, k_panel_stride, width, dq);
      TransposedWeightedSum(block, ds, row_stride, q_panels, kBlockPanelStride, width,
                            dk + key * width);
      if (RowFunction::kSparse && open * kSparseScatterCost < pairs) {
        for (std::int64_t m = 0; m < block.rows; ++m) {
          const float* row = weights + m * row_stride;
          const std::int64_t count = ListNonzero(row, block.Visible(m), columns);
          SparseScatterSum(row, columns, count, dz_rows + m * width, width, dv + key * width);
        }
      } else {
        TransposedWeightedSum(block, weights, row_stride, dz_panels, kBlockPanelStride, width,
                              dv + key * width);
      }
    }
    UnpackRows(dq, width, whole.rows, depth, shape.scale, {dq_out.row(first), dq_out.row_stride});
  }
  UnpackRows(dk, width, shape.keys, depth, 1.0f, Slice(shape, gradients.dk, b, h));
  UnpackRows(dv, width, shape.keys, depth, 1.0f, Slice(shape, gradients.dv, b, h));
}

template <class RowFunction>
void FusedBackward(const AttentionShape& shape, const AttentionInput& input,
                   const RowFunction& function, const AttentionOutput& output,
                   HeadRows<const float> dz, const AttentionGradients& gradients) {
  PrepareScratch<float, TaskScratch>(BackwardScratch(shape));
  ParallelFor(shape.batch * shape.heads, [&](std::int64_t task) {
    BackwardHead(shape, input, function, output, dz, gradients, task / shape.heads,
                 task % shape.heads);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_ATTENTION_FUSED_INL_H_
