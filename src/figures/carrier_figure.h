// SPDX-License-Identifier: MIT
// Which heads carry one word into another, as one picture:
//
//   at the left   the maps of the heads that it takes in the first model, the cell marked
//   at the right  those of the second model, K and Q pointing at the key's column and the query's
//                 row (of one model: over the whole width)
//   below         the prompt with stacks of feature groups over its words; from the stack over the
//                 key an arrow, "modulated at 80 % by" these heads, to the output over the query
//
// The page is made for a column of 8.5 cm: there the smallest letters are 5 points high.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "figures/scene.h"
#include "heads/head_map.h"

namespace clearhead {

struct CarrierMap {
  HeadMap map;
  double share = 0.0;  // of what is carried
};

struct CarrierPanel {
  std::string name;        // of the model
  std::int64_t heads = 0;  // that it has
  std::vector<CarrierMap> maps;
};

// A group of features over a word.
struct CarrierStack {
  std::int64_t position = 0, first_layer = 0, last_layer = 0;
  std::string name;
  double strength = 0.0;  // what is strongest is shown if there is no room for all
};

struct CarrierFigure {
  std::vector<std::string> tokens;   // [T]
  std::int64_t first_position = 0;   // shown; 1 where position 0 only begins the text
  std::int64_t query = 0, key = 0;   // first_position <= key <= query
  double share = 0.8;                // that the heads carry
  std::vector<CarrierPanel> panels;  // one or two
  std::vector<CarrierStack> stacks;  // of the last panel's model
  std::string output;                // "small"
  std::string output_note;           // "output, layer 6"
};

// Cells a side that a drawn map can show: for ReduceMap.
inline constexpr std::int64_t kCarrierMapCells = 128;

struct CarrierLayout {
  Scene scene;
  std::vector<std::vector<Rectangle>> maps;  // [panel][map]
  // What the arrows join. `key` and `query`: the top boxes over the words, or the words.
  Rectangle key{}, query{}, heads{}, output{};
};
CarrierLayout LayoutCarrierFigure(const CarrierFigure& figure);

// Writes .svg, .pdf or .png.
void DrawCarrierFigure(const CarrierFigure& figure, const std::filesystem::path& out);

}  // namespace clearhead
