// SPDX-License-Identifier: MIT
#include "kernels/bf16_gemm.h"

#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/amx/tile_kernel.h"
#include "kernels/amx/tile_layout.h"
#include "kernels/amx/tile_pack.h"
#include "kernels/cpu_features.h"

// Blocking, for 48 KiB of L1D and 2 MiB of L2 per core. From the outside in:
//
//   share      a thread owns a run of (row block, column group) pairs of C
//   row block  up to 512 rows of A; k is cut into chunks of at most 2048
//   chunk      A[rows, chunk] is converted to bf16 once, into at most 1 MiB that stays in L2
//   group      64 columns of B: two panels, streamed from L3 or memory once per row block
//   piece      192 k of the chunk: two panels x 12 KiB of B, which stay in L1
//   strip      32 rows of A, 12 KiB, from L2 to L1 once per piece, multiplied with both panels
//   block      32 x 32 of C: amx::MultiplyBlock, 6 steps of 64 cycles at best
//
// Bytes per step (4 tile multiplies, 64 cycles, 4 KiB of tile loads):
//   L1 -> tiles   4096 B = 64 B/cycle of the 128 that L1 delivers
//   L2 -> L1      A: 2048 B for every second block = 16 B/cycle
//                 partial sums: 4 KiB in and out per block = 11 B/cycle each way
//   L3 -> L2      B: 2048 B per row block of R rows, used R / 32 times: 1024 / R = 2 B/cycle at R =
//   512
// One panel at a time with k cut at 256 would need 32 + 8 B/cycle from L2, near what it sustains;
// one panel with k uncut would need all 64. L1 holds 2 x 12 KiB of B, 12 KiB of A, 2 x 4 KiB of
// sums = 44 KiB; all five are contiguous, so every L1 set gets its equal share (11 of 12 ways). L2
// holds at most 1 MiB of A, 128 KiB of sums, the same of C, and what is streaming through of B.
//
// Between the pieces of a chunk the sums of a group wait in a contiguous scratch and not in C: rows
// of C are often a multiple of 4 KiB apart, which would fold a whole tile into one L1 set. C itself
// is touched once per chunk: read by the first piece (when accumulating), written by the last. Its
// lines are fetched into L2 while the group before is computed.

namespace clearhead {
namespace {

using amx::kBlockValues;
using amx::kStepK;
using amx::kStepValues;
using amx::kStripLanes;

constexpr std::int64_t kMaxStrips = 512 / kStripLanes;  // of a row block
constexpr std::int64_t kMinStrips = 128 / kStripLanes;  // fewer would not pay for streaming B
constexpr std::int64_t kMaxChunkSteps = 2048 / kStepK;
constexpr std::int64_t kMaxPieceSteps = 192 / kStepK;
constexpr std::int64_t kPackedRowsBudget = (std::int64_t{1} << 20) / sizeof(std::uint16_t);
constexpr std::int64_t kGroupPanels = 2;
static_assert(kPackedRowsBudget / (kMaxChunkSteps * kStepValues) >= kMinStrips);

constexpr std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// k = 0 is one step of zeros: C = bias, without special cases below.
std::int64_t StepCount(std::int64_t k) { return std::max<std::int64_t>(CeilDivide(k, kStepK), 1); }

std::atomic<int> emulated_tiles = 0;

// [first, last) of the part-th of `parts` nearly equal parts.
struct Range {
  std::int64_t first, last;
  std::int64_t size() const { return last - first; }
};
Range Part(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return {count * part / parts, count * (part + 1) / parts};
}

class TileSession {
 public:
  TileSession() { amx::ConfigureTiles(); }
  ~TileSession() { amx::ReleaseTiles(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

// Grows, never shrinks; one per thread, so that a training step allocates only the first time.
struct Scratch {
  Buffer<std::uint16_t> a;
  Buffer<float> sums;

  void Reserve(std::int64_t a_values, std::int64_t sum_values) {
    if (a.size() < a_values) a = Buffer<std::uint16_t>(a_values);
    if (sums.size() < sum_values) sums = Buffer<float>(sum_values);
  }
};

struct Blocking {
  std::int64_t steps;       // of k
  std::int64_t chunks;      // of k
  std::int64_t row_strips;  // of m
  std::int64_t row_blocks;
  std::int64_t panels;  // of n
  std::int64_t groups;

  Range Chunk(std::int64_t i) const { return Part(steps, chunks, i); }
  Range RowBlock(std::int64_t i) const { return Part(row_strips, row_blocks, i); }
};

// No choice here changes a bit of C: each sum runs over the steps in order, and stands in fp32
// between steps whether it waits in a tile, in the scratch or in C. So the rows may follow the
// number of threads.
Blocking ChooseBlocking(std::int64_t m, std::int64_t n, std::int64_t k) {
  Blocking b;
  b.steps = StepCount(k);
  b.chunks = CeilDivide(b.steps, kMaxChunkSteps);
  const std::int64_t chunk_k = CeilDivide(b.steps, b.chunks) * kStepK;
  const std::int64_t fitting = std::min(kMaxStrips, kPackedRowsBudget / (chunk_k * kStripLanes));
  b.row_strips = CeilDivide(m, kStripLanes);
  const std::int64_t share = std::max(kMinStrips, CeilDivide(b.row_strips, Threads()));
  b.row_blocks = CeilDivide(b.row_strips, std::min(fitting, share));
  b.panels = CeilDivide(n, kStripLanes);
  b.groups = CeilDivide(b.panels, kGroupPanels);
  return b;
}

// A[strips, chunk] as bf16, in the order the blocks read it: [piece][strip][step].
void PackRows(const Bf16GemmArgs& args, Range strips, Range chunk, std::int64_t pieces,
              std::uint16_t* out) {
  const amx::PackSource source{args.a, args.lda, !args.a_transposed, args.m, args.b->k()};
  const auto pack = [&](std::int64_t strip, Range piece, std::int64_t step) {
    const std::int64_t at = piece.first * strips.size() + strip * piece.size() + step - piece.first;
    amx::PackStep(source, amx::TileOrder::kRows, (strips.first + strip) * kStripLanes,
                  (chunk.first + step) * kStepK, out + at * kStepValues);
  };
  // Along the rows of the source, whichever way they run, so that memory is read in long stretches.
  if (args.a_transposed) {
    for (std::int64_t p = 0; p < pieces; ++p) {
      const Range piece = Part(chunk.size(), pieces, p);
      for (std::int64_t step = piece.first; step < piece.last; ++step) {
        for (std::int64_t strip = 0; strip < strips.size(); ++strip) pack(strip, piece, step);
      }
    }
  } else {
    for (std::int64_t strip = 0; strip < strips.size(); ++strip) {
      for (std::int64_t p = 0; p < pieces; ++p) {
        const Range piece = Part(chunk.size(), pieces, p);
        for (std::int64_t step = piece.first; step < piece.last; ++step) pack(strip, piece, step);
      }
    }
  }
}

// The part of C under one block, with what the sums start from.
struct OutputBlock {
  float* c;
  std::int64_t ldc;
  std::int64_t rows, columns;  // inside C, at most 32
  bool accumulate;
  const float* bias;  // at the block's first column, or null

  bool full() const { return rows == kStripLanes && columns == kStripLanes; }
};

// Writes what the sums of a block start from to sums[32,32].
void FillStart(const OutputBlock& output, float* sums) {
  std::fill_n(sums, kBlockValues, 0.0f);
  for (std::int64_t i = 0; i < output.rows; ++i) {
    float* row = sums + i * kStripLanes;
    if (output.accumulate) std::copy_n(output.c + i * output.ldc, output.columns, row);
    if (output.bias == nullptr) continue;
    for (std::int64_t j = 0; j < output.columns; ++j) row[j] += output.bias[j];
  }
}

void SetStart(const OutputBlock& output, float* sums, amx::TileBlock& block) {
  if (!output.accumulate && output.bias == nullptr) {
    block.in = nullptr;
    block.in_stride = 0;
  } else if (output.full() && output.bias == nullptr) {
    block.in = output.c;
    block.in_stride = output.ldc;
  } else if (output.full() && !output.accumulate) {
    block.in = output.bias;
    block.in_stride = 0;
  } else {
    FillStart(output, sums);
    block.in = sums;
    block.in_stride = kStripLanes;
  }
}

// What one pass over a group's columns works on: `strips` strips of packed A, one chunk of k.
struct GroupPass {
  const Bf16GemmArgs& args;
  const Blocking& blocking;
  Range strips;
  Range chunk;
  std::int64_t pieces;
  bool first_chunk;
  const Scratch& packed;
  float* sums;  // [strip][panel of the group][32][32]
};

OutputBlock OutputAt(const GroupPass& pass, std::int64_t strip, std::int64_t panel) {
  const Bf16GemmArgs& args = pass.args;
  const std::int64_t row = (pass.strips.first + strip) * kStripLanes;
  const std::int64_t column = panel * kStripLanes;
  OutputBlock output;
  output.c = args.c + row * args.ldc + column;
  output.ldc = args.ldc;
  output.rows = std::min(kStripLanes, args.m - row);
  output.columns = std::min(kStripLanes, args.b->n() - column);
  output.accumulate = args.accumulate || !pass.first_chunk;
  output.bias = pass.first_chunk && args.bias != nullptr ? args.bias + column : nullptr;
  return output;
}

// C[strips, 64 columns] over one chunk. `next_group` is computed after this one (or equals it).
void MultiplyGroup(const GroupPass& pass, std::int64_t group, std::int64_t next_group) {
  const Blocking& blocking = pass.blocking;
  const std::int64_t first_panel = group * kGroupPanels;
  const std::int64_t panels = std::min(kGroupPanels, blocking.panels - first_panel);
  const auto panel_chunk = [&](std::int64_t panel) {
    return pass.args.b->data() + (panel * blocking.steps + pass.chunk.first) * kStepValues;
  };
  for (std::int64_t p = 0; p < pass.pieces; ++p) {
    const Range piece = Part(pass.chunk.size(), pass.pieces, p);
    const bool last = p + 1 == pass.pieces;
    const std::uint16_t* a_piece =
        pass.packed.a.data() + piece.first * pass.strips.size() * kStepValues;
    for (std::int64_t strip = 0; strip < pass.strips.size(); ++strip) {
      for (std::int64_t q = 0; q < panels; ++q) {
        const std::int64_t panel = first_panel + q;
        const OutputBlock output = OutputAt(pass, strip, panel);
        float* sums = pass.sums + (strip * kGroupPanels + q) * kBlockValues;
        const bool direct = last && output.full();

        amx::TileBlock block;
        block.a = a_piece + strip * piece.size() * kStepValues;
        block.b = panel_chunk(panel) + piece.first * kStepValues;
        block.steps = piece.size();
        if (p == 0) {
          SetStart(output, sums, block);
        } else {
          block.in = sums;
          block.in_stride = kStripLanes;
        }
        block.out = direct ? output.c : sums;
        block.out_stride = direct ? output.ldc : kStripLanes;

        // The strips of a piece share the next piece of B among them, the pieces of a chunk the 32
        // rows of the next group's C. Where a share is empty, lines already in L1 are named again.
        const std::int64_t fetching_steps = piece.size() - 1;
        const std::int64_t b_offset = strip * fetching_steps * 128;  // of 256 bytes
        const std::int64_t next_panel =
            last ? std::min(next_group * kGroupPanels + q, blocking.panels - 1) : panel;
        const std::uint16_t* next_piece =
            panel_chunk(next_panel) + (last ? 0 : piece.last * kStepValues);
        block.next_b = b_offset < piece.size() * kStepValues ? next_piece + b_offset : block.b;
        const std::int64_t c_row = p * fetching_steps * 2;
        const bool fetch_c = next_group != group && c_row < output.rows;
        block.next_c = fetch_c ? output.c + c_row * output.ldc + kGroupPanels * kStripLanes
                               : reinterpret_cast<const float*>(block.b);
        block.next_c_stride = fetch_c ? output.ldc : 0;
        amx::MultiplyBlock(block);

        if (last && !direct) {
          for (std::int64_t i = 0; i < output.rows; ++i) {
            std::copy_n(sums + i * kStripLanes, output.columns, output.c + i * output.ldc);
          }
        }
      }
    }
  }
}

// Pairs (row block, group), row block by row block: a thread converts each A chunk once per row
// block of its run.
void MultiplyShare(const Bf16GemmArgs& args, const Blocking& blocking, Range pairs) {
  thread_local Scratch scratch;
  const TileSession session;
  for (std::int64_t pair = pairs.first; pair < pairs.last;) {
    const std::int64_t row_block = pair / blocking.groups;
    const std::int64_t block_end = std::min(pairs.last, (row_block + 1) * blocking.groups);
    const Range groups{pair - row_block * blocking.groups, block_end - row_block * blocking.groups};
    const Range strips = blocking.RowBlock(row_block);
    for (std::int64_t c = 0; c < blocking.chunks; ++c) {
      const Range chunk = blocking.Chunk(c);
      const std::int64_t pieces = CeilDivide(chunk.size(), kMaxPieceSteps);
      scratch.Reserve(strips.size() * chunk.size() * kStepValues,
                      strips.size() * kGroupPanels * kBlockValues);
      PackRows(args, strips, chunk, pieces, scratch.a.data());
      const GroupPass pass{args,   blocking, strips,  chunk,
                           pieces, c == 0,   scratch, scratch.sums.data()};
      for (std::int64_t group = groups.first; group < groups.last; ++group) {
        MultiplyGroup(pass, group, std::min(group + 1, groups.last - 1));
      }
    }
    pair = block_end;
  }
}

}  // namespace

void PackedBf16::Pack(const float* b, std::int64_t k, std::int64_t n, std::int64_t ldb,
                      bool transposed) {
  Check(k >= 0 && n >= 0 && ldb >= (transposed ? k : n), "bf16 pack: bad shape");
  const std::int64_t steps = StepCount(k);
  const std::int64_t panels = CeilDivide(n, kStripLanes);
  const std::int64_t values = panels * steps * kStepValues;
  if (storage_.size() < values) storage_ = Buffer<std::uint16_t>(values);
  k_ = k;
  n_ = n;
  const amx::PackSource source{b, ldb, transposed, n, k};
  std::uint16_t* out = storage_.data();
  const auto pack = [&](std::int64_t panel, std::int64_t step) {
    amx::PackStep(source, amx::TileOrder::kPairs, panel * kStripLanes, step * kStepK,
                  out + (panel * steps + step) * kStepValues);
  };
  // Shares follow the rows of the source, so that each thread reads its own stretch of memory.
  if (transposed) {
    ParallelRanges(panels, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t panel = first; panel < last; ++panel) {
        for (std::int64_t step = 0; step < steps; ++step) pack(panel, step);
      }
    });
  } else {
    ParallelRanges(steps, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t step = first; step < last; ++step) {
        for (std::int64_t panel = 0; panel < panels; ++panel) pack(panel, step);
      }
    });
  }
}

void Bf16Gemm(const Bf16GemmArgs& args) {
  Check(Bf16GemmAvailable(), "Bf16Gemm where the tiles are not usable");
  Check(args.b != nullptr, "bf16 product: no B");
  const std::int64_t k = args.b->k();
  const std::int64_t n = args.b->n();
  Check(args.m >= 0 && args.lda >= (args.a_transposed ? args.m : k) && args.ldc >= n,
        "bf16 product: bad shape");
  if (args.m == 0 || n == 0) return;
  const Blocking blocking = ChooseBlocking(args.m, n, k);
  ParallelRanges(blocking.row_blocks * blocking.groups,
                 [&](int, std::int64_t first, std::int64_t last) {
                   MultiplyShare(args, blocking, {first, last});
                 });
}

bool Bf16GemmAvailable() { return Cpu().tiles_usable || emulated_tiles.load() > 0; }

std::string_view Bf16GemmReason() {
  if (emulated_tiles.load() > 0) return "AMX bf16: emulated by a test";
  return Cpu().tiles_reason;
}

namespace internal {
ScopedEmulatedTiles::ScopedEmulatedTiles() { ++emulated_tiles; }
ScopedEmulatedTiles::~ScopedEmulatedTiles() { --emulated_tiles; }
}  // namespace internal

}  // namespace clearhead
