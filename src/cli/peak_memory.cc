// SPDX-License-Identifier: MIT
#include "cli/peak_memory.h"

#include <sys/resource.h>

namespace clearhead::cli {

std::vector<std::int64_t> PeakMemory(Communicator& ranks) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double own = 1024.0 * static_cast<double>(usage.ru_maxrss);
  std::vector<double> all(static_cast<std::size_t>(ranks.size()));
  ranks.AllGather({&own, 1}, all);
  return {all.begin(), all.end()};
}

}  // namespace clearhead::cli
