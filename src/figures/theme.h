// SPDX-License-Identifier: MIT
// How every figure looks: fonts, colours and line widths, in points, in one place.
#pragma once

#include <array>
#include <cstddef>

#include "figures/canvas.h"

namespace clearhead::theme {

// Tried in this order for every text, until one has all its glyphs. A missing family stands for the
// system's nearest one, so the list always yields a font.
inline constexpr std::array kSansFamilies = {"Helvetica", "sans-serif", "DejaVu Sans",
                                             "Noto Sans CJK SC"};
inline constexpr std::array kMonospaceFamilies = {"DejaVu Sans Mono", "monospace", "DejaVu Sans",
                                                  "Noto Sans Mono CJK SC"};
// As a part of the font size; the usual sans fonts differ by 0.01.
inline constexpr double kCapitalHeight = 0.72;

inline constexpr double kTitleSize = 10;
inline constexpr double kLabelSize = 9;
inline constexpr double kTickSize = 8;

inline constexpr Color kPaper = Color::Hex(0xffffff);
inline constexpr Color kInk = Color::Hex(0x222222);
inline constexpr Color kMutedInk = Color::Hex(0x555555);
inline constexpr Color kGrid = Color::Hex(0xe4e4e4);

// Panels of attention maps.
inline constexpr Color kPanelFill = Color::Hex(0xf4f6f9);
inline constexpr Color kPanelLine = Color::Hex(0xaab4c2);
inline constexpr Color kMapLine = Color::Hex(0xc9d0da);
inline constexpr Color kMark = Color::Hex(0xe00000);

// The palette of Okabe and Ito, told apart with every common kind of colour blindness. Its yellow
// is left out (invisible on paper); the order alternates dark and light for grey printers.
inline constexpr std::array kSeries = {
    Color::Hex(0x0072b2),  // blue
    Color::Hex(0xd55e00),  // vermilion
    Color::Hex(0x009e73),  // green
    Color::Hex(0xcc79a7),  // purple
    Color::Hex(0x56b4e9),  // sky
    Color::Hex(0xe69f00),  // orange
    Color::Hex(0x222222),  // ink
};
// Raw values behind their smoothed line.
inline constexpr double kFaintAlpha = 0.3;

inline constexpr double kGridWidth = 0.5;
inline constexpr double kAxisWidth = 0.75;
inline constexpr double kSeriesWidth = 1.4;
inline constexpr double kFaintWidth = 0.6;
inline constexpr double kReferenceWidth = 0.9;
inline constexpr double kReferenceDash = 3;
inline constexpr double kSeriesDash = 5;
inline constexpr double kPointRadius = 2;

}  // namespace clearhead::theme
