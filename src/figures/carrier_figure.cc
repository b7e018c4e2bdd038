// SPDX-License-Identifier: MIT
#include "figures/carrier_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "figures/map_drawing.h"
#include "figures/theme.h"
#include "figures/token_columns.h"

namespace clearhead {
namespace {

// In points of a page that is 8.5 cm wide in print: everything is then 0.7 times as large.
constexpr double kWidth = 340, kEdge = 4, kPadding = 8, kPanelGap = 7, kRadius = 7;
constexpr double kLeftPanel = 146;
constexpr double kTitleSize = 9.5, kTextSize = 8.5, kSmallSize = 7.5, kLine = 12;
constexpr double kMapsSize = 8;  // of "all heads map ...", which would else be cut
constexpr double kMapGap = 6, kMaxSide = 62;
constexpr double kLabelGap = 1.5, kLabelRoom = 9.5;  // over a map
constexpr double kQueryRoom = 17;                    // left of a map: Q and its arrow
constexpr double kKeyRoom = 18;                      // under a map: the arrow and K
constexpr double kBox = 22, kBoxGap = 3, kCorner = 4, kCard = 1.6;
constexpr int kMaxCards = 4;          // behind a box, one for each further layer
constexpr std::size_t kMaxBoxes = 4;  // over a word
constexpr double kMaxColumn = 76, kMinColumn = 22;
constexpr double kChip = 14, kChipGap = 4, kArrowRoom = 30, kOutputArrow = 18;
constexpr int kMaxChipRows = 3;
constexpr double kGamma = 0.6;  // faint weights show
constexpr Color kChipFill = Color::Hex(0xffffff);
constexpr Color kKeyFill = Color::Hex(0xfde3e0), kBoxFill = Color::Hex(0xe3edf7);
constexpr Color kOutputFill = Color::Hex(0xe2f2e9);

std::string LayersText(const CarrierStack& stack) {
  return stack.first_layer == stack.last_layer
             ? fmt::format("layer {}", stack.first_layer)
             : fmt::format("layers {}-{}", stack.first_layer, stack.last_layer);
}

std::string HeadsText(std::size_t count, std::int64_t heads, double share) {
  return fmt::format("{} of {} heads carr{} {:.0f} %", count, heads, count == 1 ? "ies" : "y",
                     100.0 * share);
}

class Builder {
 public:
  explicit Builder(const CarrierFigure& figure)
      : figure_(figure), ruler_(1, 1, "ruler.svg") {}  // never saved

  CarrierLayout Build() {
    scene_.width = kWidth;
    const double inner = kWidth - 2 * kEdge;
    double panels = 0;
    if (figure_.panels.size() == 1) {
      panels = Plan(figure_.panels[0], inner, true).height;
      PlacePanel(0, {kEdge, kEdge, inner, panels}, true);
    } else {
      const double right = kEdge + kLeftPanel + kPanelGap, rest = kWidth - kEdge - right;
      panels = std::max(Plan(figure_.panels[0], kLeftPanel, false).height,
                        Plan(figure_.panels[1], rest, true).height);
      PlacePanel(0, {kEdge, kEdge, kLeftPanel, panels}, false);
      PlacePanel(1, {right, kEdge, rest, panels}, true);
    }
    PlaceSentence(kEdge + panels + kPanelGap);
    return std::move(layout_);
  }

 private:
  double Width(const std::string& text, double size, bool bold = false) const {
    return ruler_.Measure(text, {.size = size, .color = theme::kInk, .bold = bold}).width;
  }

  // Cut to its room, which it is also centred in or starts at.
  void AddText(std::string text, const Rectangle& room, TextStyle style) {
    text = FitText(ruler_, std::move(text), style, room.width);
    style.align_y = AlignY::kMiddle;
    double x = room.x;
    if (style.align_x == AlignX::kCenter) x += room.width / 2;
    if (style.align_x == AlignX::kRight) x += room.width;
    scene_.texts.push_back({std::move(text), {x, room.y + room.height / 2}, style, room});
  }

  // How many maps stand side by side: few maps are large, and every label has room.
  int ColumnsFor(const CarrierPanel& panel, double width, double beside) const {
    const auto count = static_cast<int>(panel.maps.size());
    double label = 20;
    for (const CarrierMap& map : panel.maps) {
      label = std::max(label, Width(ToText(map.map.head), kSmallSize) + 1);
    }
    const auto most = static_cast<int>((width + kMapGap) / (label + beside + kMapGap));
    int columns = count <= 2 ? 2 : count <= 9 ? 3 : count <= 16 ? 4 : count <= 30 ? 5 : 6;
    if (width > 200) columns *= 2;  // one panel over the whole page
    return std::max(1, std::min({columns, most, std::max(count, 2)}));
  }

  struct PanelPlan {
    int columns = 1, rows = 1;
    double side = 0, row = 0;  // of a map; from one row of maps to the next
    int label_lines = 1;
    double header = 0, height = 0;
  };
  PanelPlan Plan(const CarrierPanel& panel, double width, bool arrows) const {
    const double inner = width - 2 * kPadding, beside = arrows ? kQueryRoom : 0;
    PanelPlan plan;
    plan.columns = ColumnsFor(panel, inner, beside);
    const auto count = static_cast<int>(panel.maps.size());
    plan.rows = (count + plan.columns - 1) / plan.columns;
    plan.side = std::floor(
        std::min(kMaxSide, (inner - (plan.columns - 1) * kMapGap) / plan.columns - beside));
    for (const CarrierMap& map : panel.maps) {
      if (Width(ToText(map.map.head), kSmallSize) + 3 + Width(ShareText(map), kSmallSize) >
          plan.side) {
        plan.label_lines = 2;
      }
    }
    plan.row =
        plan.label_lines * kLabelRoom + kLabelGap + plan.side + (arrows ? kKeyRoom : kMapGap - 1);
    plan.header = kPadding - 3 + (arrows ? 3 : 2) * kLine + 2;
    plan.height = plan.header + plan.rows * plan.row + 3;
    return plan;
  }

  // `area` may be higher than the plan: the maps are then in the middle of what is left.
  void PlacePanel(std::size_t number, const Rectangle& area, bool arrows) {
    const CarrierPanel& panel = figure_.panels[number];
    const PanelPlan plan = Plan(panel, area.width, arrows);
    scene_.boxes.push_back({area, kRadius, theme::kPanelFill, {theme::kPanelLine, 0.75}});
    Rectangle line{area.x + kPadding, area.y + kPadding - 3, area.width - 2 * kPadding, kLine};
    AddText(panel.name, line, {.size = kTitleSize, .color = theme::kInk, .bold = true});
    line.y += kLine;
    const TextStyle style{.size = kTextSize, .color = theme::kInk};
    AddText(HeadsText(panel.maps.size(), panel.heads, figure_.share), line, style);
    line.y += kLine;
    if (arrows) {
      const std::string where =
          fmt::format("key pos {} to query pos {}", figure_.key, figure_.query);
      std::string text = where;
      for (const char* who : {panel.maps.size() == 1 ? "it maps " : "all heads map ", "all map "}) {
        if (Width(who + where, kMapsSize) > line.width) continue;
        text = who + where;
        break;
      }
      AddText(text, line, {.size = kMapsSize, .color = theme::kInk});
    }
    const double beside = arrows ? kQueryRoom : 0;
    const double top = area.y + plan.header + (area.height - plan.height) / 2;
    auto& maps = layout_.maps.emplace_back();
    for (std::size_t m = 0; m < panel.maps.size(); ++m) {
      const std::size_t across = m % static_cast<std::size_t>(plan.columns);
      const std::size_t down = m / static_cast<std::size_t>(plan.columns);
      const auto c = static_cast<double>(across), r = static_cast<double>(down);
      const Rectangle at{area.x + kPadding + beside + c * (plan.side + beside + kMapGap),
                         top + r * plan.row + plan.label_lines * kLabelRoom + kLabelGap, plan.side,
                         plan.side};
      maps.push_back(at);
      PlaceLabel(panel.maps[m], at, plan.label_lines);
      if (arrows) PlaceKeyAndQuery(panel.maps[m].map, at);
    }
  }

  static std::string ShareText(const CarrierMap& map) {
    return fmt::format("{:.0f} %", 100.0 * map.share);
  }

  // The head and its share over the map: at its two ends, or one over the other.
  void PlaceLabel(const CarrierMap& map, const Rectangle& at, int lines) {
    const Rectangle upper{at.x, at.y - kLabelGap - lines * kLabelRoom, at.width, kLabelRoom};
    const TextStyle style{.size = kSmallSize, .color = theme::kInk};
    TextStyle muted{.size = kSmallSize, .color = theme::kMutedInk};
    AddText(ToText(map.map.head), upper, style);
    if (lines == 2) {
      AddText(ShareText(map), {at.x, at.y - kLabelGap - kLabelRoom, at.width, kLabelRoom}, muted);
    } else {
      muted.align_x = AlignX::kRight;
      AddText(ShareText(map), upper, muted);
    }
  }

  // Arrows at the map's edges, to the row and the column of the marked cell.
  void PlaceKeyAndQuery(const HeadMap& map, const Rectangle& at) {
    const Rectangle mark = MarkArea(map, at, {figure_.query, figure_.key});
    const double x = mark.x + mark.width / 2, y = mark.y + mark.height / 2;
    const TextStyle letter{
        .size = kSmallSize, .color = theme::kInk, .align_x = AlignX::kCenter, .bold = true};
    scene_.arrows.push_back({{{at.x - 8.5, y}, {at.x - 0.5, y}}, {theme::kInk, 0.9}, 4.5});
    AddText("Q", {at.x - kQueryRoom, y - 5, 8, 10}, letter);
    scene_.arrows.push_back(
        {{{x, at.bottom() + 9}, {x, at.bottom() + 0.5}}, {theme::kInk, 0.9}, 4.5});
    AddText("K", {x - 4, at.bottom() + 8.5, 8, 10}, letter);
  }

  // Boxes over each word, lower layers first; the weakest are left out where there are too many.
  std::map<std::int64_t, std::vector<CarrierStack>> Stacks() const {
    std::map<std::int64_t, std::vector<CarrierStack>> stacks;
    for (const CarrierStack& stack : figure_.stacks) stacks[stack.position].push_back(stack);
    for (auto& [position, boxes] : stacks) {
      std::stable_sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) {
        return std::abs(a.strength) > std::abs(b.strength);
      });
      boxes.resize(std::min(boxes.size(), kMaxBoxes));
      std::stable_sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first_layer, a.last_layer) < std::pair(b.first_layer, b.last_layer);
      });
    }
    return stacks;
  }

  // Which words matter most: the pair, then those under strong groups, then the pair's neighbours.
  std::vector<std::int64_t> Order() const {
    std::vector<std::int64_t> order = {figure_.key, figure_.query};
    std::vector<CarrierStack> stacks = figure_.stacks;
    std::stable_sort(stacks.begin(), stacks.end(), [](const auto& a, const auto& b) {
      return std::abs(a.strength) > std::abs(b.strength);
    });
    for (const CarrierStack& stack : stacks) order.push_back(stack.position);
    std::vector<std::int64_t> rest;
    const auto T = static_cast<std::int64_t>(figure_.tokens.size());
    for (std::int64_t p = figure_.first_position; p < T; ++p) rest.push_back(p);
    std::stable_sort(rest.begin(), rest.end(), [&](std::int64_t a, std::int64_t b) {
      const auto far = [&](std::int64_t p) {
        return std::min(std::abs(p - figure_.key), std::abs(p - figure_.query));
      };
      return far(a) < far(b);
    });
    order.insert(order.end(), rest.begin(), rest.end());
    return order;
  }

  void PlaceSentence(double top) {
    const auto stacks = Stacks();
    const auto T = static_cast<std::int64_t>(figure_.tokens.size());
    std::vector<double> widths(static_cast<std::size_t>(T), kMinColumn);
    std::vector<std::string> words;
    for (const std::string& token : figure_.tokens) words.push_back(TokenLabel(token));
    double highest = 0;
    for (std::int64_t p = 0; p < T; ++p) {
      double& width = widths[p];
      width = std::max(width, Width(words[p], kTextSize, true) + 5);
      const auto boxes = stacks.find(p);
      if (boxes == stacks.end()) continue;
      double height = 0;
      for (const CarrierStack& box : boxes->second) {
        width = std::max({width, Width(TokenLabel(box.name), kSmallSize) + 8 + Cards(box) * kCard,
                          Width(LayersText(box), kSmallSize) + 8 + Cards(box) * kCard});
        height += kBox + kBoxGap + Cards(box) * kCard;
      }
      width = std::min(width, kMaxColumn);
      highest = std::max(highest, height);
    }
    for (double& width : widths) width = std::min(width, kMaxColumn);
    // K, what is carried, and Q side by side.
    if (figure_.key == figure_.query) widths[figure_.key] = std::max(widths[figure_.key], 46.0);
    const std::vector<TokenColumn> columns =
        ArrangeColumns(widths, Order(), 2, kEdge, kWidth - 2 * kEdge);

    // From the top: output, arrow, heads, arrows, stacks, words, positions.
    const double chips = PlaceOutputAndHeads(top, *ColumnOf(columns, figure_.query));
    const double words_top = chips + kArrowRoom + highest;
    for (const TokenColumn& column : columns) {
      const Rectangle word{column.x + 1, words_top, column.width - 2, 12};
      if (column.position < 0) {
        AddText("…", word,
                {.size = kTextSize, .color = theme::kMutedInk, .align_x = AlignX::kCenter});
        continue;
      }
      const std::int64_t p = column.position;
      const bool end = p == figure_.key || p == figure_.query;
      AddText(words[p], word,
              {.size = kTextSize,
               .color = end ? theme::kMark : theme::kInk,
               .align_x = AlignX::kCenter,
               .bold = end});
      AddText(fmt::format("{}", p), {column.x, words_top + 12, column.width, 11},
              {.size = kSmallSize, .color = theme::kMutedInk, .align_x = AlignX::kCenter});
      Rectangle upmost = word;
      if (const auto boxes = stacks.find(p); boxes != stacks.end()) {
        upmost = PlaceStack(boxes->second, column, words_top - 1);
      }
      if (p == figure_.key) layout_.key = upmost;
      if (p == figure_.query) layout_.query = upmost;
    }
    PlaceArrows(*ColumnOf(columns, figure_.key), *ColumnOf(columns, figure_.query));
    scene_.height = words_top + 12 + 11 + kEdge;
  }

  static int Cards(const CarrierStack& box) {
    return static_cast<int>(std::min<std::int64_t>(box.last_layer - box.first_layer, kMaxCards));
  }

  // From `bottom` up; returns the uppermost box with its cards.
  Rectangle PlaceStack(std::span<const CarrierStack> boxes, const TokenColumn& column,
                       double bottom) {
    Rectangle upmost{};
    for (const CarrierStack& stack : boxes) {
      const double cards = Cards(stack) * kCard;
      const bool key = stack.position == figure_.key;
      const double width = std::min(column.width - 3, kMaxColumn);
      const Stroke line{key ? theme::kMark : theme::kSeries[0], 0.75};
      Rectangle front{column.center() - width / 2, bottom - kBox, width - cards, kBox};
      for (int c = Cards(stack); c >= 0; --c) {
        scene_.boxes.push_back({{front.x + c * kCard, front.y - c * kCard, front.width, kBox},
                                kCorner,
                                key ? kKeyFill : kBoxFill,
                                line});
      }
      const TextStyle style{.size = kSmallSize, .color = theme::kInk, .align_x = AlignX::kCenter};
      AddText(TokenLabel(stack.name), {front.x + 2, front.y + 1.5, front.width - 4, 10}, style);
      TextStyle muted = style;
      muted.color = theme::kMutedInk;
      AddText(LayersText(stack), {front.x + 2, front.y + 11, front.width - 4, 10}, muted);
      upmost = {front.x, front.y - cards, width, kBox + cards};
      bottom = upmost.y - kBoxGap;
    }
    return upmost;
  }

  // The output's box over the query and below it the bar of the heads; returns the bar's bottom.
  double PlaceOutputAndHeads(double top, const TokenColumn& query) {
    const std::string word = TokenLabel(figure_.output);
    const double width = std::min(
        std::max({Width(word, kTitleSize, true), Width(figure_.output_note, kSmallSize), 40.0}) +
            14,
        kWidth - 2 * kEdge);
    const double x = std::clamp(query.center() - width / 2, kEdge, kWidth - kEdge - width);
    layout_.output = {x, top, width, 26};
    scene_.boxes.push_back({layout_.output, kCorner, kOutputFill, {theme::kSeries[2], 0.9}});
    AddText(word, {x + 3, top + 2, width - 6, 12},
            {.size = kTitleSize, .color = theme::kInk, .align_x = AlignX::kCenter, .bold = true});
    AddText(figure_.output_note, {x + 3, top + 13.5, width - 6, 10},
            {.size = kSmallSize, .color = theme::kMutedInk, .align_x = AlignX::kCenter});

    const Rectangle bar{kEdge, layout_.output.bottom() + kOutputArrow, kWidth - 2 * kEdge, 0};
    const std::size_t box = scene_.boxes.size();
    scene_.boxes.push_back({bar, kCorner, kKeyFill, {theme::kMark, 0.9}});
    const std::string phrase = fmt::format("modulated at {:.0f} % by", 100.0 * figure_.share);
    const double said = Width(phrase, kTextSize) + 2;
    AddText(phrase, {bar.x + 6, bar.y + 3, said, kChip},
            {.size = kTextSize, .color = theme::kMark});
    double chip_x = bar.x + 6 + said + kChipGap, chip_y = bar.y + 3;
    int row = 1;
    const std::vector<CarrierMap>& maps = figure_.panels.back().maps;
    for (std::size_t m = 0; m < maps.size(); ++m) {
      const std::string rest = fmt::format("and {} more", maps.size() - m);
      std::string name = ToText(maps[m].map.head);
      double needed = Width(name, kSmallSize) + 8;
      if (chip_x + needed > bar.right() - 5) {
        chip_x = bar.x + 6;
        chip_y += kChip + 2;
        ++row;
      }
      // In the last row a place is kept for those that do not fit.
      const double end = chip_x + needed + kChipGap + Width(rest, kSmallSize);
      if (row == kMaxChipRows && m + 1 < maps.size() && end > bar.right() - 5) {
        AddText(rest, {chip_x, chip_y, Width(rest, kSmallSize) + 1, kChip},
                {.size = kSmallSize, .color = theme::kInk});
        break;
      }
      scene_.boxes.push_back(
          {{chip_x, chip_y, needed, kChip}, kCorner, kChipFill, {theme::kMark, 0.6}});
      AddText(std::move(name), {chip_x + 1, chip_y, needed - 2, kChip},
              {.size = kSmallSize, .color = theme::kInk, .align_x = AlignX::kCenter});
      chip_x += needed + kChipGap;
    }
    scene_.boxes[box].area.height = chip_y + kChip + 3 - bar.y;
    layout_.heads = scene_.boxes[box].area;
    return layout_.heads.bottom();
  }

  // Up from the key: what is carried, and K; up from the query: Q; up from the heads: the output.
  void PlaceArrows(const TokenColumn& key, const TokenColumn& query) {
    constexpr double kAside = 9;
    const double bottom = layout_.heads.bottom();
    const bool same = figure_.key == figure_.query;
    const double value_x = key.center(), key_x = value_x - kAside;
    const double query_x = query.center() + (same ? kAside : 0);
    const auto up = [&](double x, double from, double to, Color color, double width, double head) {
      scene_.arrows.push_back({{{x, from}, {x, to}}, {color, width}, head});
    };
    up(value_x, layout_.key.y - 1, bottom + 0.5, theme::kMark, 1.8, 7);
    up(key_x, layout_.key.y - 1, bottom + 0.5, theme::kInk, 0.9, 5);
    up(query_x, layout_.query.y - 1, bottom + 0.5, theme::kInk, 0.9, 5);
    up(query.center(), layout_.heads.y - 1, layout_.output.bottom() + 0.5, theme::kMark, 1.8, 7);
    const TextStyle letter{.size = kTextSize, .color = theme::kInk, .bold = true};
    TextStyle left = letter;
    left.align_x = AlignX::kRight;
    AddText("K", {key_x - 11, bottom + 9, 8, 11}, left);
    AddText("Q", {query_x + 3, bottom + 9, 8, 11}, letter);
  }

  const CarrierFigure& figure_;
  Canvas ruler_;
  CarrierLayout layout_;
  Scene& scene_ = layout_.scene;
};

}  // namespace

CarrierLayout LayoutCarrierFigure(const CarrierFigure& figure) {
  Check(!figure.panels.empty() && figure.panels.size() <= 2, "one or two panels");
  Check(0 <= figure.first_position && figure.first_position <= figure.key &&
            figure.key <= figure.query &&
            figure.query < static_cast<std::int64_t>(figure.tokens.size()),
        "a causal pair of shown positions");
  return Builder(figure).Build();
}

void DrawCarrierFigure(const CarrierFigure& figure, const std::filesystem::path& out) {
  const CarrierLayout layout = LayoutCarrierFigure(figure);
  Canvas canvas(layout.scene.width, layout.scene.height, out, /*png_scale=*/3);
  DrawBoxes(&canvas, layout.scene);
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    for (std::size_t m = 0; m < figure.panels[p].maps.size(); ++m) {
      const HeadMap& map = figure.panels[p].maps[m].map;
      DrawMap(&canvas, map, layout.maps[p][m], kGamma);
      DrawMark(&canvas, map, layout.maps[p][m], {figure.query, figure.key});
    }
  }
  DrawArrows(&canvas, layout.scene);
  DrawTexts(&canvas, layout.scene);
  canvas.Save();
}

}  // namespace clearhead
