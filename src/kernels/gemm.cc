// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/attention_scratch.h"
#include "kernels/gemm.h"
#include "kernels/gemm_by_panels.h"
#include "kernels/gemm_task.h"
#include "kernels/product_block-inl.h"
#include "kernels/product_layout.h"

// Blocking, from the outside in:
//
//   task    a run of rows and a run of panels of C; threads take tasks one by one
//   depth   up to 2048 of k: a task's rows of A are at most 768 KiB and stay in L2
//   panel   48 columns of B
//   chunk   up to 192 of k (320 with few registers): what a block reads of it is in or near L1; a B
//           that is not packed is copied
//   block   8 rows (6 with few registers): MultiplyBlock, its rows of A come from L2 and its sums
//           stay in registers
//
// Between the chunks of a panel the sums wait in scratch and not in C, whose rows are often a
// multiple of 4 KiB apart: a strip of it would fall into few sets of every cache.
//
// Rows of A are copied to lie one behind the other before many panels are multiplied with them:
// rows that are a multiple of 4 KiB apart would fall into one set of the cache.

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

// to[depth][kPanelColumns] = op(B)[first_k .., first_column ..] in fp32, zeros beyond `columns`.
// `wide` has room for as much again.
void CopyChunk(const WeightOperand& b, std::int64_t first_k, std::int64_t depth,
               std::int64_t first_column, std::int64_t columns, float* wide, float* to) {
  if (columns < kPanelColumns) std::fill(to, to + depth * kPanelColumns, 0.0f);
  if (b.op == Op::kNone && b.weight.is_f32()) {
    const float* from = b.weight.f32() + first_k * b.stride + first_column;
    for (std::int64_t k = 0; k < depth; ++k) {
      std::copy_n(from + k * b.stride, columns, to + k * kPanelColumns);
    }
    return;
  }
  if (b.op == Op::kNone) {
    for (std::int64_t k = 0; k < depth; ++k) {
      b.weight.CopyTo((first_k + k) * b.stride + first_column, columns, to + k * kPanelColumns);
    }
    return;
  }
  if (b.weight.is_f32()) {
    return TransposeCopy(columns, depth, b.weight.f32() + first_column * b.stride + first_k,
                         b.stride, to, kPanelColumns);
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    b.weight.CopyTo((first_column + j) * b.stride + first_k, depth, wide + j * depth);
  }
  TransposeCopy(columns, depth, wide, depth, to, kPanelColumns);
}

// A chunk of a packed panel in fp32.
template <typename Half>
void WidenChunk(const Half* from, std::int64_t depth, float* to) {
  const ProductTag d;
  for (std::int64_t i = 0; i < depth * kPanelColumns; i += kProductLanes) {
    hn::StoreU(LoadWide(from + i), d, to + i);
  }
}

// One chunk of a packed panel for all rows. Few rows take 16-bit weights as they are: they pass
// once.
template <typename T>
void MultiplyPacked(const GemmTask& t, const float* a, std::int64_t a_stride, const T* chunk,
                    std::int64_t depth, const BlockOutput& out) {
  constexpr int kRowBytes = kPanelColumns * sizeof(T);
  const NextChunk next{chunk + depth * kPanelColumns, kRowBytes, (kRowBytes + 63) / 64};
  if constexpr (sizeof(T) < sizeof(float)) {
    if (t.rows > 2 * kBlockRows) {
      WidenChunk(chunk, depth, t.panel_copy);
      return MultiplyPanel(t.rows, depth, a, a_stride, t.panel_copy, next, out);
    }
  }
  MultiplyPanel(t.rows, depth, a, a_stride, chunk, next, out);
}

// A chunk of B: `depth` of k from `k` on, in one panel.
struct Chunk {
  std::int64_t k, depth, panel;
};

// What a B that is not packed will be asked for after `chunk`. (Rows of a transposed one are long
// and few: the hardware's own fetching follows them.)
NextChunk AfterPlain(const GemmTask& t, const Chunk& chunk) {
  if (t.b->op == Op::kTranspose) return {nullptr, 0, 0};
  const bool same_panel = chunk.k + chunk.depth < t.shape->k;
  const std::int64_t k = same_panel ? chunk.k + chunk.depth : 0;
  const std::int64_t panel = same_panel ? chunk.panel : chunk.panel + 1;
  if (panel == t.last_panel) return {nullptr, 0, 0};
  const std::int64_t size = DTypeSize(t.b->weight.dtype);
  const std::byte* from = t.b->weight.data + (k * t.b->stride + panel * kPanelColumns) * size;
  return {from, t.b->stride * size, static_cast<int>(kPanelColumns * size / 64 + 1)};
}

// One chunk of one panel for all rows.
void MultiplyChunk(const GemmTask& t, const float* a, std::int64_t a_stride, const Chunk& chunk,
                   const BlockOutput& out) {
  if (t.packed == nullptr) {
    const std::int64_t column = chunk.panel * kPanelColumns;
    CopyChunk(*t.b, chunk.k, chunk.depth, column, std::min(kPanelColumns, t.shape->n - column),
              t.panel_copy + kLongestChunk * kPanelColumns, t.panel_copy);
    return MultiplyPanel(t.rows, chunk.depth, a, a_stride, t.panel_copy, AfterPlain(t, chunk), out);
  }
  const std::byte* from = t.packed->data() + (chunk.panel * t.shape->k + chunk.k) * kPanelColumns *
                                                 DTypeSize(t.packed->dtype());
  switch (t.packed->dtype()) {
    case DType::kBF16:
      return MultiplyPacked(t, a, a_stride, reinterpret_cast<const hwy::bfloat16_t*>(from),
                            chunk.depth, out);
    case DType::kF16:
      return MultiplyPacked(t, a, a_stride, reinterpret_cast<const hwy::float16_t*>(from),
                            chunk.depth, out);
    default:
      return MultiplyPacked(t, a, a_stride, reinterpret_cast<const float*>(from), chunk.depth, out);
  }
}

// row_copy[chunk][rows][depth of the chunk] = op(A)[rows of the task, first_k ..]
void CopyRows(const GemmTask& t, std::int64_t first_k, std::int64_t depth) {
  const GemmOperand& a = *t.a;
  const std::int64_t chunk = ChunkOf(t.shape->k, kMostChunk);
  for (std::int64_t k = 0; k < depth; k += chunk) {
    const std::int64_t count = std::min(chunk, depth - k);
    float* to = t.row_copy + k * t.rows;
    if (a.op == Op::kTranspose) {
      TransposeCopy(count, t.rows, a.data + (first_k + k) * a.stride + t.first_row, a.stride, to,
                    count);
      continue;
    }
    for (std::int64_t r = 0; r < t.rows; ++r) {
      std::copy_n(a.data + (t.first_row + r) * a.stride + first_k + k, count, to + r * count);
    }
  }
}

// C[rows of the task][columns of a panel] over `deep` of k. Between the chunks the sums wait in
// scratch, one row behind the other; there they stay where they are used and not written.
void MultiplyPanelOf(const GemmTask& t, std::int64_t panel, std::int64_t first_k,
                     std::int64_t deep) {
  const std::int64_t column = panel * kPanelColumns;
  BlockOutput out{.from = nullptr, .from_stride = 0, .to = t.sums, .stride = kPanelColumns};
  out.columns = std::min(kPanelColumns, t.shape->n - column);
  float* c = nullptr;
  if (t.use == nullptr) {
    c = t.out->c + t.first_row * t.out->stride + column;
    if (first_k > 0 || t.out->accumulate) {
      out.from = c;
      out.from_stride = t.out->stride;
    } else if (t.out->bias != nullptr) {
      out.from = t.out->bias + column;
    }
  }
  const std::int64_t chunk = ChunkOf(t.shape->k, kMostChunk);
  std::int64_t k = 0;
  do {
    const std::int64_t depth = std::min(chunk, deep - k);
    if (k + depth == deep && c != nullptr) {
      out.to = c;
      out.stride = t.out->stride;
    }
    const float* a = t.copies_rows ? t.row_copy + k * t.rows
                                   : t.a->data + t.first_row * t.a->stride + first_k + k;
    MultiplyChunk(t, a, t.copies_rows ? depth : t.a->stride, {first_k + k, depth, panel}, out);
    out.from = t.sums;
    out.from_stride = kPanelColumns;
    k += chunk;
  } while (k < deep);
  if (t.use != nullptr) {
    (*t.use)({t.first_row, t.rows, column, out.columns, t.sums, kPanelColumns});
  }
}

void MultiplyTask(const GemmTask& t) {
  const std::int64_t chunk = ChunkOf(t.shape->k, kMostChunk);
  const std::int64_t depth = t.most_depth / chunk * chunk;
  std::int64_t first_k = 0;
  do {  // once for k = 0 too: C is what it starts from
    const std::int64_t deep = std::min(depth, t.shape->k - first_k);
    if (t.copies_rows) CopyRows(t, first_k, deep);
    for (std::int64_t panel = t.first_panel; panel < t.last_panel; ++panel) {
      MultiplyPanelOf(t, panel, first_k, deep);
    }
    first_k += depth;
  } while (first_k < t.shape->k);
}

// A panel of op(B) at `to`, in fp32.
void PackPanel(const WeightOperand& b, std::int64_t k, std::int64_t n, std::int64_t panel,
               float* wide, float* to) {
  const std::int64_t column = panel * kPanelColumns;
  for (std::int64_t first = 0; first < k; first += kMostChunk) {
    CopyChunk(b, first, std::min(kMostChunk, k - first), column,
              std::min(kPanelColumns, n - column), wide, to + first * kPanelColumns);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(MultiplyTask);
HWY_EXPORT(PackPanel);

namespace {

constexpr std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct RowScratch {};
struct PanelScratch {};
struct SumScratch {};

constexpr std::int64_t kRowUnit = 8;           // of the largest block
constexpr std::int64_t kRowsBudget = 3 << 16;  // values of A in L2, which has a panel to hold too
constexpr std::int64_t kMostTaskRows = 512;
constexpr std::int64_t kTasksPerThread = 3;    // so that a late thread is waited for briefly
constexpr double kSerialProducts = 1 << 18;    // up to here sharing out costs more than it saves
constexpr std::int64_t kPanelsWorthACopy = 4;  // of A's rows

// How C is cut into tasks. No choice here changes a bit.
struct Cut {
  std::int64_t row_blocks, groups, panels;
};

Cut CutOf(const GemmShape& s, std::int64_t depth, std::int64_t threads) {
  const std::int64_t fitting = kRowsBudget / std::clamp<std::int64_t>(s.k, 1, depth);
  const std::int64_t most_rows = std::clamp(fitting / kRowUnit * kRowUnit, kRowUnit, kMostTaskRows);
  Cut cut{CeilDivide(s.m, most_rows), 1, CeilDivide(s.n, kPanelColumns)};
  if (threads == 1) return cut;
  // Every task copies its rows: as few groups as give each thread equally many tasks.
  cut.groups = std::max<std::int64_t>(1, CeilDivide(kTasksPerThread * threads, cut.row_blocks));
  while (cut.row_blocks * cut.groups % threads != 0) ++cut.groups;
  cut.groups = std::min(cut.groups, cut.panels);
  return cut;
}

std::int64_t ThreadsFor(const GemmShape& s) {
  const double products =
      static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return products <= kSerialProducts ? 1 : Threads();
}

// Where part `index` of `parts` nearly equal parts of `extent` starts, a multiple of `unit`.
std::int64_t PartStart(std::int64_t extent, std::int64_t unit, std::int64_t parts,
                       std::int64_t index) {
  return std::min(extent, CeilDivide(extent, unit) * index / parts * unit);
}

// `shared` is what all tasks of a product have in common.
void Multiply(const GemmTask& shared) {
  const GemmShape& shape = *shared.shape;
  if (shape.m <= 0 || shape.n <= 0) return;
  const bool serial = shared.use != nullptr;
  const Cut cut = CutOf(shape, shared.most_depth, serial ? 1 : ThreadsFor(shape));
  const std::int64_t deep = std::min(shape.k, shared.most_depth);
  const std::int64_t block_rows =
      CeilDivide(CeilDivide(shape.m, kRowUnit), cut.row_blocks) * kRowUnit;
  const auto multiply = [&](std::int64_t i) {
    const std::int64_t row = i / cut.groups, group = i % cut.groups;
    GemmTask task = shared;
    task.first_row = PartStart(shape.m, kRowUnit, cut.row_blocks, row);
    task.rows = PartStart(shape.m, kRowUnit, cut.row_blocks, row + 1) - task.first_row;
    task.first_panel = PartStart(cut.panels, 1, cut.groups, group);
    task.last_panel = PartStart(cut.panels, 1, cut.groups, group + 1);
    task.copies_rows =
        task.a->op == Op::kTranspose ||
        (task.rows > kRowUnit && task.last_panel - task.first_panel >= kPanelsWorthACopy);
    task.row_copy = ThreadScratch<float, RowScratch>(task.rows * deep);
    task.panel_copy = ThreadScratch<float, PanelScratch>(2 * kLongestChunk * kPanelColumns);
    task.sums = ThreadScratch<float, SumScratch>(task.rows * kPanelColumns);
    HWY_DYNAMIC_DISPATCH(MultiplyTask)(task);
  };
  if (serial) {
    for (std::int64_t i = 0; i < cut.row_blocks * cut.groups; ++i) multiply(i);
    return;
  }
  PrepareScratch<float, RowScratch>(block_rows * deep);
  PrepareScratch<float, PanelScratch>(2 * kLongestChunk * kPanelColumns);
  PrepareScratch<float, SumScratch>(block_rows * kPanelColumns);
  ParallelFor(cut.row_blocks * cut.groups, multiply);
}

void MultiplyInto(const GemmShape& shape, const GemmOperand& a, const WeightOperand* b,
                  const PackedPanels* packed, const GemmOutput& out) {
  Check(!(out.accumulate && out.bias != nullptr), "a product adds to C or starts from a bias");
  Multiply(
      {.shape = &shape, .a = &a, .b = b, .packed = packed, .out = &out, .most_depth = kMostDepth});
}

}  // namespace

void PackedPanels::Pack(const WeightOperand& b, std::int64_t k, std::int64_t n) {
  const std::int64_t panels = CeilDivide(n, kPanelColumns), values = k * kPanelColumns;
  const std::int64_t size = DTypeSize(b.weight.dtype);
  const std::int64_t bytes = panels * values * size;
  if (storage_.size() < bytes) storage_ = Buffer<std::byte>(bytes);
  k_ = k;
  n_ = n;
  dtype_ = b.weight.dtype;
  PrepareScratch<float, PanelScratch>(2 * kLongestChunk * kPanelColumns);
  ParallelFor(panels, [&](std::int64_t panel) {
    float* scratch = ThreadScratch<float, PanelScratch>(2 * kLongestChunk * kPanelColumns);
    std::byte* to = storage_.data() + panel * values * size;
    if (dtype_ == DType::kF32) {
      HWY_DYNAMIC_DISPATCH(PackPanel)
      (b, k, n, panel, scratch, reinterpret_cast<float*>(to));
      return;
    }
    // Widened and narrowed again: both are exact.
    float* wide = ThreadScratch<float, RowScratch>(values);
    HWY_DYNAMIC_DISPATCH(PackPanel)(b, k, n, panel, scratch, wide);
    ConvertFromFloat(wide, values, dtype_, to);
  });
}

void Gemm(const GemmShape& shape, const GemmOperand& a, const WeightOperand& b,
          const GemmOutput& out) {
  MultiplyInto(shape, a, &b, nullptr, out);
}

void Gemm(std::int64_t m, const GemmOperand& a, const PackedPanels& b, const GemmOutput& out) {
  MultiplyInto({m, b.n(), b.k()}, a, nullptr, &b, out);
}

// Without a C that sums could wait in, all of k at a time.
void GemmByPanels(std::int64_t m, const GemmOperand& a, const PackedPanels& b,
                  const std::function<void(const FinishedPanel&)>& use) {
  const GemmShape shape{m, b.n(), b.k()};
  Multiply({.shape = &shape,
            .a = &a,
            .b = nullptr,
            .packed = &b,
            .out = nullptr,
            .use = &use,
            .most_depth = shape.k + kLongestChunk});
}

}  // namespace clearhead
#endif  // HWY_ONCE
