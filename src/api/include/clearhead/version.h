// SPDX-License-Identifier: MIT
#pragma once

#include <clearhead/export.h>

namespace clearhead::api {

CLEARHEAD_API const char* Version();  // "0.2.0-dev", of the library that runs
CLEARHEAD_API const char* Commit();   // "abc1234"; "unknown" where the sources were no repository

}  // namespace clearhead::api
