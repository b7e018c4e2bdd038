# Writes OUTPUT, the one file that knows version and commit; run at each build, it touches the file only when
# they changed, so that a commit recompiles nothing else.
#   cmake -DVERSION=0.2.0 -DSOURCE=... -DOUTPUT=version.cc -P version.cmake
set(commit unknown)
find_program(GIT git)
# The repository must be this folder's own, not one that a copy of the sources happens to lie in.
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=7 HEAD
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
// Made by cmake/version.cmake.
#include "cli/version.h"

namespace clearhead::cli {
const char* Version() { return "@VERSION@"; }
const char* Commit() { return "@commit@"; }
}  // namespace clearhead::cli
]] @ONLY)
