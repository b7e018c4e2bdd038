// SPDX-License-Identifier: MIT
// Which heads carry one word into another, as one picture: at the left the maps of the heads that
// it takes in the first model, at the right those of the second (if there is one) with the marked
// cell, below them the prompt with stacks of feature groups over its words, and the arrow from the
// stack over the key through these heads to the output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace clearhead {

struct CarrierMap {
  std::string label;           // L3H4
  std::vector<float> weights;  // [T,T]
};

struct CarrierPanel {
  std::string title;  // "tale: 6 of 48 heads"
  std::vector<CarrierMap> maps;
};

// A group of features over a word.
struct CarrierStack {
  std::int64_t position = 0, first_layer = 0, last_layer = 0;
  std::string name;
};

struct CarrierFigure {
  std::vector<std::string> tokens;  // [T]
  std::int64_t query = 0, key = 0;
  std::vector<CarrierPanel> panels;  // one or two
  std::vector<CarrierStack> stacks;  // of the last panel's model
  std::string arrow;                 // "modulated at 80 % by these 3 heads"
  std::string output;                // "small"
  std::string output_note;           // "output"
};

// Writes .svg, .pdf or .png.
void DrawCarrierFigure(const CarrierFigure& figure, const std::filesystem::path& out);

}  // namespace clearhead
