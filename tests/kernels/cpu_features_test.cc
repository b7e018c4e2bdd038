// SPDX-License-Identifier: MIT
#include "kernels/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace clearhead {
namespace {

// The values of the first line of /proc/cpuinfo that starts with `key`.
std::string CpuInfoLine(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind(key, 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

TEST(CpuFeatures, AgreeWithTheKernel) {
  std::istringstream words(CpuInfoLine("flags"));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const CpuFeatures& cpu = Cpu();
  EXPECT_EQ(cpu.avx2, flags.contains("avx2"));
  EXPECT_EQ(cpu.fma, flags.contains("fma"));
  EXPECT_EQ(cpu.avx512f, flags.contains("avx512f"));
  EXPECT_EQ(cpu.avx512bf16, flags.contains("avx512_bf16"));
  EXPECT_EQ(cpu.amx_tile, flags.contains("amx_tile"));
  EXPECT_EQ(cpu.amx_bf16, flags.contains("amx_bf16"));
  EXPECT_EQ(cpu.model, CpuInfoLine("model name"));
}

TEST(CpuFeatures, TilesNeedBothFeaturesAndAlwaysHaveAReason) {
  const CpuFeatures& cpu = Cpu();
  EXPECT_TRUE(!cpu.tiles_usable || (cpu.amx_tile && cpu.amx_bf16));
  EXPECT_EQ(cpu.tiles_reason == "AMX bf16: available", cpu.tiles_usable);
  EXPECT_EQ(cpu.tiles_reason.rfind("AMX bf16: ", 0), 0u);
}

TEST(CpuFeatures, NamesListWhatIsPresent) {
  CpuFeatures none;
  EXPECT_TRUE(SimdFeatureNames(none).empty());
  CpuFeatures some;
  some.avx2 = some.amx_bf16 = true;
  EXPECT_EQ(SimdFeatureNames(some), (std::vector<std::string_view>{"avx2", "amx_bf16"}));
}

}  // namespace
}  // namespace clearhead
