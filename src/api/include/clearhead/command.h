// SPDX-License-Identifier: MIT
// Everything that the program does, from code: heads, circuits, features, traces, figures, train,
// sparsify, ... `clearhead COMMAND --help` describes the options; with --json the answer is the
// document of docs/formats.md. Figures and models go where --out says.
//
//   Command({"heads", "tale", "--text", "book.txt", "--json"})
//
// Nothing of the process is touched: no signal, no stream, no environment.
#pragma once

#include <clearhead/control.h>
#include <clearhead/error.h>

#include <string>
#include <vector>

namespace clearhead::api {

// What the program would print on stdout. `words` are those after "clearhead".
CLEARHEAD_API std::string Command(const std::vector<std::string>& words,
                                  const Control& control = {});

}  // namespace clearhead::api
