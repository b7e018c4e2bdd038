// SPDX-License-Identifier: MIT
#include "support/amx_emulator.h"

#include "core/error.h"
#include "kernels/cpu_features.h"

#if defined(__x86_64__)

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace clearhead::testing {
namespace {

constexpr std::size_t kTiles = 8;      // palette 1
constexpr std::size_t kMaxRows = 16;   // rows of a tile
constexpr std::size_t kMaxBytes = 64;  // bytes of a row

struct Tile {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::uint8_t data[kMaxRows][kMaxBytes] = {};
};

struct TileState {
  bool configured = false;
  Tile tiles[kTiles];
};

// Tile registers belong to a thread.
thread_local TileState state;
std::atomic<std::int64_t> instructions = 0;
struct sigaction previous_action;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "amx emulator: %s\n", what);
  std::abort();
}

// --- Arithmetic ----------------------------------------------------------------------------------

float FlushDenormal(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

float FromBf16(const std::uint8_t* bytes) {
  std::uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return FlushDenormal(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
}

// Fused. A product of two bf16 values has 16 bits: inside fp32's range it is exact, and the plain
// sum is rounded once, like the fused one, and faster than the library's.
float MultiplyAdd(float a, float b, float sum) {
  const float product = a * b;
  const float size = std::abs(product);
  const bool exact =
      size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max();
  return FlushDenormal(exact ? product + sum : std::fma(a, b, sum));
}

// C[m,n] += A[m,k pairs] B[k pairs,n]: the products of even k and of odd k are summed apart, then
// together, then to C. Denormals are zero on the way in and out; rounding is to nearest even.
void MultiplyTiles(Tile& c, const Tile& a, const Tile& b) {
  const std::size_t columns = c.row_bytes / 4;
  const std::size_t pairs = a.row_bytes / 4;
  std::array<std::array<float, 32>, kMaxRows> b_values;
  for (std::size_t k = 0; k < pairs; ++k) {
    for (std::size_t n = 0; n < 2 * columns; ++n) b_values[k][n] = FromBf16(b.data[k] + 2 * n);
  }
  for (std::size_t m = 0; m < c.rows; ++m) {
    std::array<float, 32> sums = {};
    for (std::size_t k = 0; k < pairs; ++k) {
      const float even = FromBf16(a.data[m] + 4 * k);
      const float odd = FromBf16(a.data[m] + 4 * k + 2);
      for (std::size_t n = 0; n < columns; ++n) {
        sums[2 * n] = MultiplyAdd(even, b_values[k][2 * n], sums[2 * n]);
        sums[2 * n + 1] = MultiplyAdd(odd, b_values[k][2 * n + 1], sums[2 * n + 1]);
      }
    }
    for (std::size_t n = 0; n < columns; ++n) {
      float value;
      std::memcpy(&value, c.data[m] + 4 * n, sizeof value);
      value = FlushDenormal(FlushDenormal(value) + FlushDenormal(sums[2 * n] + sums[2 * n + 1]));
      std::memcpy(c.data[m] + 4 * n, &value, sizeof value);
    }
  }
}

// --- Instructions --------------------------------------------------------------------------------

void Release() { state = TileState{}; }

void LoadConfig(const std::uint8_t* config) {
  Release();
  if (config[0] == 0) return;
  Require(config[0] == 1, "LDTILECFG of a palette other than 1");
  Require(config[1] == 0, "LDTILECFG with a start row");
  for (std::size_t i = 2; i < 16; ++i) Require(config[i] == 0, "LDTILECFG with reserved bytes set");
  for (std::size_t i = 0; i < 16; ++i) {
    std::uint16_t row_bytes;
    std::memcpy(&row_bytes, config + 16 + 2 * i, sizeof row_bytes);
    const std::size_t rows = config[48 + i];
    if (i >= kTiles) {
      Require(row_bytes == 0 && rows == 0, "LDTILECFG of a tile beyond the eighth");
      continue;
    }
    Require(row_bytes <= kMaxBytes && rows <= kMaxRows, "LDTILECFG of a tile beyond 16 x 64 bytes");
    Require((row_bytes == 0) == (rows == 0), "LDTILECFG of a tile with rows or bytes but not both");
    state.tiles[i].rows = rows;
    state.tiles[i].row_bytes = row_bytes;
  }
  state.configured = true;
}

Tile& UsableTile(std::size_t index) {
  Require(state.configured, "a tile instruction before LDTILECFG on this thread");
  Require(index < kTiles, "a tile beyond the eighth");
  Require(state.tiles[index].rows > 0, "a tile that LDTILECFG left out");
  return state.tiles[index];
}

void ZeroTile(std::size_t index) {
  Tile& tile = UsableTile(index);
  std::memset(tile.data, 0, sizeof tile.data);
}

void LoadTile(std::size_t index, const std::uint8_t* address, std::int64_t stride) {
  Tile& tile = UsableTile(index);
  std::memset(tile.data, 0, sizeof tile.data);
  for (std::size_t row = 0; row < tile.rows; ++row) {
    std::memcpy(tile.data[row], address + static_cast<std::int64_t>(row) * stride, tile.row_bytes);
  }
}

void StoreTile(std::size_t index, std::uint8_t* address, std::int64_t stride) {
  const Tile& tile = UsableTile(index);
  for (std::size_t row = 0; row < tile.rows; ++row) {
    std::memcpy(address + static_cast<std::int64_t>(row) * stride, tile.data[row], tile.row_bytes);
  }
}

void MultiplyTiles(std::size_t c_index, std::size_t a_index, std::size_t b_index) {
  Require(c_index != a_index && c_index != b_index && a_index != b_index,
          "TDPBF16PS with the same tile twice");
  Tile& c = UsableTile(c_index);
  const Tile& a = UsableTile(a_index);
  const Tile& b = UsableTile(b_index);
  Require(c.row_bytes % 4 == 0 && a.row_bytes % 4 == 0 && b.row_bytes % 4 == 0,
          "TDPBF16PS on rows that are not whole pairs");
  Require(c.rows == a.rows && c.row_bytes == b.row_bytes && a.row_bytes / 4 == b.rows,
          "TDPBF16PS on tiles whose shapes do not fit");
  MultiplyTiles(c, a, b);
}

// --- Decoding ------------------------------------------------------------------------------------

std::uint64_t Register(const ucontext_t& context, std::size_t number) {
  static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// The fields of a VEX instruction with three prefix bytes (C4 ..), the only form of AMX:
//   C4 | ~R ~X ~B mmmmm | W ~vvvv L pp | opcode | mod reg rm | [SIB] | [displacement]
struct Instruction {
  int prefix;           // pp: 0 none, 1 66, 2 F3, 3 F2
  int opcode;           // in map 0F38
  std::size_t operand;  // vvvv
  bool memory;          // mod != 3
  std::size_t reg, rm;
  bool has_sib;
  std::uint64_t base;    // address without the index
  std::uint64_t stride;  // index << scale
  int length;
};

std::uint8_t* Pointer(std::uint64_t address) {
  return reinterpret_cast<std::uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
}

template <typename T>
T ReadCode(const std::uint8_t* code) {
  T value;
  std::memcpy(&value, code, sizeof value);
  return value;
}

Instruction Decode(const ucontext_t& context) {
  const auto start = static_cast<std::uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  const std::uint8_t* code = Pointer(start);
  Require(code[0] == 0xc4 && (code[1] & 0x1f) == 2, "an illegal instruction that is not AMX");
  Require((code[2] & 0x84) == 0, "an AMX instruction with VEX.W or VEX.L set");
  const std::size_t x = code[1] & 0x40 ? 0 : 8;
  const std::size_t b = code[1] & 0x20 ? 0 : 8;

  Instruction in = {};
  in.prefix = code[2] & 3;
  in.operand = (~code[2] >> 3) & 15;
  in.opcode = code[3];
  const int mod = code[4] >> 6;
  in.reg = ((code[4] >> 3) & 7) | (code[1] & 0x80 ? 0u : 8u);
  in.rm = code[4] & 7;
  in.memory = mod != 3;
  in.length = 5;
  if (!in.memory) {
    in.rm |= b;
    return in;
  }

  bool rip_relative = false;
  bool displacement_only = false;
  if (in.rm == 4) {
    in.has_sib = true;
    const std::size_t sib = code[in.length++];
    const std::size_t index = ((sib >> 3) & 7) | x;
    if (index != 4) in.stride = Register(context, index) << (sib >> 6);
    displacement_only = (sib & 7) == 5 && mod == 0;
    if (!displacement_only) in.base = Register(context, (sib & 7) | b);
  } else if (in.rm == 5 && mod == 0) {
    rip_relative = true;
  } else {
    in.base = Register(context, in.rm | b);
  }
  std::int64_t displacement = 0;
  if (mod == 1) {
    displacement = static_cast<int>(ReadCode<std::int8_t>(code + in.length));
    in.length += 1;
  } else if (mod == 2 || rip_relative || displacement_only) {
    displacement = ReadCode<std::int32_t>(code + in.length);
    in.length += 4;
  }
  if (rip_relative) in.base = start + static_cast<std::uint64_t>(in.length);
  in.base += static_cast<std::uint64_t>(displacement);
  return in;
}

void Execute(const Instruction& in) {
  enum Prefix { kNone, k66, kF3, kF2 };
  std::uint8_t* address = Pointer(in.base);
  const auto stride = static_cast<std::int64_t>(in.stride);
  if (in.opcode == 0x49 && in.operand == 0) {
    if (in.prefix == kNone && in.memory && in.reg == 0 && in.stride == 0)
      return LoadConfig(address);
    if (in.prefix == kNone && !in.memory && in.reg == 0 && in.rm == 0) return Release();
    if (in.prefix == kF2 && !in.memory && in.rm == 0) return ZeroTile(in.reg);
  }
  if (in.opcode == 0x4b && in.operand == 0 && in.memory && in.has_sib) {
    if (in.prefix == kF2 || in.prefix == k66) return LoadTile(in.reg, address, stride);
    if (in.prefix == kF3) return StoreTile(in.reg, address, stride);
  }
  if (in.opcode == 0x5c && in.prefix == kF3 && !in.memory) {
    return MultiplyTiles(in.reg, in.rm, in.operand);
  }
  Require(false, "an AMX instruction it does not know");
}

void OnIllegalInstruction(int, siginfo_t*, void* raw_context) {
  auto& context = *static_cast<ucontext_t*>(raw_context);
  const Instruction instruction = Decode(context);
  Execute(instruction);
  context.uc_mcontext.gregs[REG_RIP] += instruction.length;
  instructions.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

TilesForTest::TilesForTest() {
  if (Cpu().tiles_usable) return;
  struct sigaction action = {};
  action.sa_sigaction = OnIllegalInstruction;
  action.sa_flags = SA_SIGINFO;
  Check(::sigaction(SIGILL, &action, &previous_action) == 0, "sigaction failed");
  emulated_.emplace();
}

TilesForTest::~TilesForTest() {
  if (emulated()) ::sigaction(SIGILL, &previous_action, nullptr);
}

bool TilesForTest::Possible() { return true; }
std::int64_t TilesForTest::EmulatedInstructions() { return instructions.load(); }

}  // namespace clearhead::testing

#else

namespace clearhead::testing {

TilesForTest::TilesForTest() { Check(false, "tiles can be emulated on x86-64 only"); }
TilesForTest::~TilesForTest() = default;
bool TilesForTest::Possible() { return false; }
std::int64_t TilesForTest::EmulatedInstructions() { return 0; }

}  // namespace clearhead::testing

#endif
