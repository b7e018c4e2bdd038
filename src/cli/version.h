// SPDX-License-Identifier: MIT
// Which program this is. The bodies are written at build time by cmake/version.cmake.
#pragma once

namespace clearhead::cli {

const char* Version();  // "0.2.0-dev"
const char* Commit();   // "abc1234"; "unknown" where the sources were no repository

}  // namespace clearhead::cli
