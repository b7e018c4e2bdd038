// SPDX-License-Identifier: MIT
#include "figures/terminal_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

constexpr int kMaxCells = 32;  // a side
constexpr int kMaxTokenColumns = 12;
constexpr int kGap = 2;  // columns between maps

// A cell shows the last shade whose bound it reaches.
constexpr std::array<float, 4> kBounds = {0.05f, 0.2f, 0.4f, 0.7f};

struct Shades {
  std::string_view closed;
  std::array<std::string_view, 4> levels;
  std::string_view space;    // for a space in a token
  std::string_view cut;      // the end of a token that is too long
  std::string_view foreign;  // for what cannot be shown
};
constexpr Shades kUnicode = {"· ", {"░░", "▒▒", "▓▓", "██"}, "·", "…", "\ufffd"};
constexpr Shades kAscii = {". ", {"::", "++", "##", "@@"}, "_", "~", "?"};

std::uint32_t CodePoint(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  std::uint32_t code = byte(0) & (0x7fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3fu);
  return code;
}

// Columns of a character on a terminal: the wide blocks of East Asian scripts and emoji, the common
// combining marks; all others take one.
int Columns(std::uint32_t code) {
  struct Block {
    std::uint32_t first, last;
  };
  static constexpr std::array<Block, 7> kNothing = {{{0x300, 0x36f},
                                                     {0x483, 0x489},
                                                     {0x591, 0x5bd},
                                                     {0x64b, 0x65f},
                                                     {0x200b, 0x200f},
                                                     {0x20d0, 0x20ff},
                                                     {0xfe00, 0xfe0f}}};
  static constexpr std::array<Block, 9> kWide = {{{0x1100, 0x115f},
                                                  {0x2e80, 0x303e},
                                                  {0x3041, 0xa4cf},
                                                  {0xac00, 0xd7a3},
                                                  {0xf900, 0xfaff},
                                                  {0xfe30, 0xfe6f},
                                                  {0xff00, 0xff60},
                                                  {0x1f300, 0x1faff},
                                                  {0x20000, 0x3fffd}}};
  const auto holds = [code](const Block& block) {
    return block.first <= code && code <= block.last;
  };
  if (std::any_of(kNothing.begin(), kNothing.end(), holds)) return 0;
  return std::any_of(kWide.begin(), kWide.end(), holds) ? 2 : 1;
}

// Control characters would move the cursor, or worse; directional marks would turn the line around.
bool IsUnsafe(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x200b && code <= 0x200f) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

struct Label {
  std::string text;
  int columns = 0;
};

// The text on one line of at most `max_columns` columns, safe to print; `space` stands for a space.
Label SafeLabel(std::string_view text, std::string_view space, int max_columns, bool ascii) {
  const Shades& shades = ascii ? kAscii : kUnicode;
  Label label;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Part part = NextUtf8Part(text, i);
    const std::string_view character = text.substr(i, part.length);
    const std::uint32_t code = part.well_formed ? CodePoint(character) : 0;
    std::string_view shown = character;
    int columns = 1;
    if (character == " ") {
      shown = space;
    } else if (character == "\n") {
      shown = "\\n";
      columns = 2;
    } else if (!part.well_formed || IsUnsafe(code) || (ascii && code >= 0x80)) {
      shown = shades.foreign;
    } else {
      columns = Columns(code);
    }
    // One column is kept for the mark of the cut, unless this is the end.
    const int room = max_columns - (i + part.length < text.size() ? 1 : 0);
    if (label.columns + columns > room) {
      label.text += shades.cut;
      ++label.columns;
      break;
    }
    label.text += shown;
    label.columns += columns;
    i += part.length;
  }
  return label;
}

// The largest value of a block of the causal triangle; NaN if one is there. `map`: [T][T].
float BlockValue(std::span<const float> map, std::size_t length, std::size_t pool, std::size_t row,
                 std::size_t column) {
  float largest = 0;
  for (std::size_t i = row * pool; i < std::min(length, (row + 1) * pool); ++i) {
    for (std::size_t j = column * pool; j < std::min(i + 1, (column + 1) * pool); ++j) {
      const float value = map[i * length + j];
      if (std::isnan(value)) return value;
      largest = std::max(largest, value);
    }
  }
  return largest;
}

std::string_view CellText(float value, const Shades& shades) {
  if (std::isnan(value)) return "??";
  std::string_view text = shades.closed;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    if (value >= kBounds[i]) text = shades.levels[i];
  }
  return text;
}

void EndLine(std::string* text) {
  while (!text->empty() && text->back() == ' ') text->pop_back();
  *text += '\n';
}

void AddSpaces(int count, std::string* text) {
  if (count > 0) text->append(static_cast<std::size_t>(count), ' ');
}

}  // namespace

std::string TerminalMaps(std::span<const float> maps, std::span<const std::string> labels,
                         std::span<const std::string> tokens, const TerminalMapOptions& options) {
  const std::size_t heads = labels.size(), length = tokens.size();
  Check(maps.size() == heads * length * length, "maps need [H][T][T] values");
  if (heads == 0 || length == 0) return "";
  const Shades& shades = options.ascii ? kAscii : kUnicode;

  const std::size_t most_cells =
      static_cast<std::size_t>(std::clamp(options.width / 2, 1, kMaxCells));
  const std::size_t pool = (length + most_cells - 1) / most_cells;
  const std::size_t cells = (length + pool - 1) / pool;
  const int map_columns = static_cast<int>(2 * cells);

  std::vector<Label> rows;
  int margin = 0;
  if (pool == 1) {
    for (const std::string& token : tokens) {
      rows.push_back(SafeLabel(token, shades.space, kMaxTokenColumns, options.ascii));
      margin = std::max(margin, rows.back().columns + 1);
    }
    if (margin + map_columns > options.width) {
      rows.clear();
      margin = 0;
    }
  }
  // A map is as wide as its label at least, so that labels never run into each other.
  std::vector<Label> names;
  int column_width = map_columns;
  for (const std::string& label : labels) {
    names.push_back(SafeLabel(label, " ", options.width, options.ascii));
    column_width = std::max(column_width, names.back().columns);
  }
  const auto per_line = static_cast<std::size_t>(
      std::max(1, (options.width - margin + kGap) / (column_width + kGap)));

  std::string text;
  for (std::size_t first = 0; first < heads; first += per_line) {
    const std::size_t last = std::min(heads, first + per_line);
    AddSpaces(margin, &text);
    for (std::size_t h = first; h < last; ++h) {
      text += names[h].text;
      AddSpaces(column_width + kGap - names[h].columns, &text);
    }
    EndLine(&text);
    for (std::size_t row = 0; row < cells; ++row) {
      if (!rows.empty()) {
        text += rows[row].text;
        AddSpaces(margin - rows[row].columns, &text);
      }
      for (std::size_t h = first; h < last; ++h) {
        const std::span<const float> map = maps.subspan(h * length * length, length * length);
        for (std::size_t column = 0; column <= row; ++column) {
          text += CellText(BlockValue(map, length, pool, row, column), shades);
        }
        AddSpaces(column_width + kGap - static_cast<int>(2 * (row + 1)), &text);
      }
      EndLine(&text);
    }
    text += '\n';
  }
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    text += fmt::format("{}{} from {}", i == 0 ? "" : "  ", shades.levels[i], kBounds[i]);
  }
  if (pool > 1) text += fmt::format("  (a cell: the largest of {0} x {0})", pool);
  EndLine(&text);
  return text;
}

}  // namespace clearhead
