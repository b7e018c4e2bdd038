// SPDX-License-Identifier: MIT
// This process as one of the ranks that mpirun or srun started, or alone.
//
// A process is a rank for its whole life, so there is one communicator, as there is one standard
// output. Commands that share work hand it to the library; all others run on the first rank alone.
#pragma once

#include <string>

#include "core/communicator.h"
#include "core/progress.h"

namespace clearhead::cli {

// Made when first asked for. Throws Error if several ranks were started and this build, or the
// system, has no MPI for them: each would take itself for the only one.
Communicator& Ranks();
// Ends it: MPI's own end, which waits for the other ranks. Ranks() is then one rank alone.
void EndRanks();

// While one lives, Ranks() is one rank alone: a command of the first rank waits for no other, nor
// do the commands that it runs.
class AloneScope {
 public:
  AloneScope();
  ~AloneScope();
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  Communicator alone_;
  Communicator* outer_;
};

// How many ranks the environment speaks of: Open MPI, MPICH and its kin, Slurm.
int StartedRanks();

// Where a command's progress goes: one line on the terminal, lines from the first of several ranks,
// nothing from the others.
ProgressOutput RankProgress();

// "rank 3 of 8 on node7"
std::string RankName(const Communicator& ranks);

}  // namespace clearhead::cli
