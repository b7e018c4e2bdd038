// SPDX-License-Identifier: MIT
#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace clearhead {
namespace {

#if defined(__x86_64__)

struct Registers {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros where the CPU has no such leaf.
Registers CpuId(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

constexpr bool Bit(std::uint64_t word, int bit) { return ((word >> bit) & 1) != 0; }

// XCR0: the register states that the operating system saves. Needs OSXSAVE.
std::uint64_t SavedStates() {
  std::uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

std::string ModelName() {
  char name[49] = {};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Registers r = CpuId(0x80000002u + i, 0);
    std::memcpy(name + std::size_t{16} * i, &r, sizeof r);
  }
  std::string model(name);
  model.erase(0, model.find_first_not_of(' '));
  model.erase(model.find_last_not_of(' ') + 1);
  return model.empty() ? "unnamed x86-64 CPU" : model;
}

// Linux gives the 8 KiB of tile state only to processes that ask.
bool RequestTileState() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, newer than Debian's headers
  constexpr long kTileData = 18;               // the XCR0 bit of the tiles
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures Detect() {
  CpuFeatures found;
  found.model = ModelName();
  const Registers basic = CpuId(1, 0);
  const Registers extended = CpuId(7, 0);
  const std::uint64_t saved = Bit(basic.ecx, 27) ? SavedStates() : 0;
  const bool saves_ymm = (saved & 0x6) == 0x6;
  const bool saves_zmm = saves_ymm && (saved & 0xe0) == 0xe0;
  const bool saves_tiles = Bit(saved, 17) && Bit(saved, 18);
  const bool cpu_has_amx = Bit(extended.edx, 24) && Bit(extended.edx, 22);

  found.fma = saves_ymm && Bit(basic.ecx, 12);
  found.avx2 = saves_ymm && Bit(extended.ebx, 5);
  found.avx512f = saves_zmm && Bit(extended.ebx, 16);
  found.avx512bf16 = found.avx512f && Bit(CpuId(7, 1).eax, 5);
  found.amx_tile = saves_tiles && Bit(extended.edx, 24);
  found.amx_bf16 = saves_tiles && Bit(extended.edx, 22);

  // Leaf 0x1D, the tile palette, is not asked: hypervisors hide it although the tiles work. Palette
  // 1 (8 tiles of 16 rows x 64 bytes) is architectural.
  if (!cpu_has_amx) {
    found.tiles_reason = "AMX bf16: this CPU has no AMX";
  } else if (!saves_tiles) {
    found.tiles_reason = "AMX bf16: the operating system does not save the tile state";
  } else if (!RequestTileState()) {
    found.tiles_reason = "AMX bf16: the operating system refuses the tile state";
  } else {
    found.tiles_usable = true;
    found.tiles_reason = "AMX bf16: available";
  }
  return found;
}

#else

CpuFeatures Detect() {
  CpuFeatures found;
  found.model = "not an x86-64 CPU";
  found.tiles_reason = "AMX bf16: only x86-64 CPUs have AMX";
  return found;
}

#endif

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures features = Detect();
  return features;
}

std::vector<std::string_view> SimdFeatureNames(const CpuFeatures& features) {
  std::vector<std::string_view> names;
  if (features.avx2) names.emplace_back("avx2");
  if (features.fma) names.emplace_back("fma");
  if (features.avx512f) names.emplace_back("avx512f");
  if (features.avx512bf16) names.emplace_back("avx512bf16");
  if (features.amx_tile) names.emplace_back("amx_tile");
  if (features.amx_bf16) names.emplace_back("amx_bf16");
  return names;
}

}  // namespace clearhead
