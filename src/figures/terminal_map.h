// SPDX-License-Identifier: MIT
// Attention maps as text: a look at the heads without leaving the terminal.
#pragma once

#include <span>
#include <string>

namespace clearhead {

struct TerminalMapOptions {
  int width = 80;      // columns of the terminal
  bool ascii = false;  // shades and tokens in plain ASCII
};

// maps: [H][T][T] row-major, attention of query i (down) to key j (to the right), 0 to 1.
// labels: H names such as "L0H3"; tokens: T, any bytes. Draws the maps side by side, as many as fit
// into the width, each under its label, two characters a cell; below them the meaning of the
// shades. The future (j > i) is blank, a closed cell of the past a dot, NaN a question mark.
//   Short sequences: the tokens stand at the left of the first map of each line.
//   Long ones (more cells than 32, or than the width holds): k x k positions share a cell, which
//   shows the largest of them, so that a single open edge stays visible; the last line tells k.
std::string TerminalMaps(std::span<const float> maps, std::span<const std::string> labels,
                         std::span<const std::string> tokens,
                         const TerminalMapOptions& options = {});

}  // namespace clearhead
