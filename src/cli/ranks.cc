// SPDX-License-Identifier: MIT
#include "cli/ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/error.h"

namespace clearhead::cli {
namespace {

constexpr const char* kLibrary = "lib/clearhead/libclearhead_mpi.so";

// Beside the program's bin/, in a build folder and installed.
std::filesystem::path LibraryPath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / kLibrary;
}

std::unique_ptr<Communicator> Join(int started) {
  const std::filesystem::path path = LibraryPath();
  // Global: Open MPI's own parts look for its symbols.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    Fail(
        "{} ranks were started, but this build has no MPI for them ({}); install the package "
        "clearhead-mpi, or build with -DCLEARHEAD_MPI=ON",
        started, why == nullptr ? path.string() : std::string(why));
  }
  MakeTransport make = nullptr;
  void* symbol = ::dlsym(library, kMakeTransport);
  if (symbol == nullptr) Fail("'{}' is of another version; build it again", path.string());
  std::memcpy(&make, &symbol, sizeof(make));
  auto ranks = std::make_unique<Communicator>(std::unique_ptr<Transport>(make()));
  if (ranks->size() != started) {
    Fail(
        "{} ranks were started, but MPI knows of {}: '{}' was built for another MPI than the one "
        "that started them; use its mpirun",
        started, ranks->size(), path.string());
  }
  return ranks;
}

std::unique_ptr<Communicator>& Slot() {
  static std::unique_ptr<Communicator> ranks;
  return ranks;
}

// Set by AloneScope.
Communicator*& Alone() {
  static Communicator* alone = nullptr;
  return alone;
}

}  // namespace

int StartedRanks() {
  // SLURM_NTASKS is set in batch scripts too, where one process runs; the step's number is not.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* text = std::getenv(name);
    int size = 0;
    if (text == nullptr) continue;
    if (std::from_chars(text, text + std::strlen(text), size).ec == std::errc() && size > 1) {
      return size;
    }
  }
  return 1;
}

AloneScope::AloneScope() : outer_(Alone()) { Alone() = &alone_; }

AloneScope::~AloneScope() { Alone() = outer_; }

Communicator& Ranks() {
  if (Alone() != nullptr) return *Alone();
  if (!Slot()) {
    const int started = StartedRanks();
    Slot() = started > 1 ? Join(started) : std::make_unique<Communicator>();
  }
  return *Slot();
}

void EndRanks() { Slot() = std::make_unique<Communicator>(); }

ProgressOutput RankProgress() {
  ProgressOutput output = StandardErrorProgress();
  if (Ranks().alone()) return output;
  output.is_terminal = false;
  output.lines = Ranks().first();
  return output;
}

std::string RankName(const Communicator& ranks) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("rank {} of {} on {}", ranks.rank(), ranks.size(), host.data());
}

}  // namespace clearhead::cli
