// SPDX-License-Identifier: MIT
// clearhead grid A [B ...] --out F: attention maps of many heads on one page.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "cli/attention_options.h"
#include "cli/commands.h"
#include "core/error.h"
#include "figures/head_grid.h"
#include "heads/head_report.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  AttentionOptions attention;
  HeadFigureOptions figure;
  std::string mark, order = "given";
  int columns = 0;
  double gamma = 1.0;
  bool ticks = false, color_bar = false;
};

// "8:5" = query 8, key 5.
GridMark ParseMark(const std::string& text, std::int64_t length) {
  GridMark mark;
  const char* end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, mark.query);
  if (error != std::errc() || colon == end || *colon != ':') {
    FailUsage("--mark '{}' is not QUERY:KEY such as 8:5", text);
  }
  const auto [rest, second] = std::from_chars(colon + 1, end, mark.key);
  if (second != std::errc() || rest != end || mark.query < 0 || mark.key < 0) {
    FailUsage("--mark '{}' is not QUERY:KEY such as 8:5", text);
  }
  if (mark.query >= length) {
    Fail("--mark {}: the input has {} tokens, so the last query is {}", text, length, length - 1);
  }
  if (mark.key > mark.query) {
    Fail("--mark {}: key {} is in the future of query {}", text, mark.key, mark.query);
  }
  return mark;
}

// By rank of importance, or by kind and then layer.
void Sort(const std::string& order, const AttentionSource& source, std::vector<HeadId>* heads) {
  if (order == "given") return;
  std::map<HeadId, std::int64_t> rank;  // nothing for "layer": heads are ordered by layer
  if (order != "layer") {
    const ModelReport report = AnalyseHeads(source);
    const std::vector<HeadId> by_importance = ByImportance(report);
    for (std::size_t i = 0; i < by_importance.size(); ++i) {
      rank[by_importance[i]] = static_cast<std::int64_t>(i);
    }
    if (order == "type") {
      for (const HeadResult& head : report.heads) {
        rank[head.statistics.head] = static_cast<std::int64_t>(head.name.kind);
      }
    }
  }
  std::sort(heads->begin(), heads->end(),
            [&](HeadId a, HeadId b) { return std::pair(rank[a], a) < std::pair(rank[b], b); });
}

Json PanelJson(const AttentionSource& source, const GridPanel& panel, int columns) {
  Json heads = Json::array();
  for (const HeadMap& map : panel.maps) heads.push_back(ToText(map.head));
  const auto count = static_cast<int>(panel.maps.size());
  return {{"label", panel.title},
          {"layers", source.layers},
          {"heads_per_layer", source.heads},
          {"length", panel.maps[0].length},
          {"tokens_per_cell", panel.maps[0].block},
          {"rows", (count + columns - 1) / columns},
          {"columns", std::min(columns, count)},
          {"heads", heads}};
}

void Run(const Options& o) {
  CheckFigurePath(o.figure.out);
  const std::vector<std::string> lists =
      o.figure.heads.empty() ? std::vector<std::string>{"all"} : o.figure.heads;
  std::vector<AttentionSource> sources;
  {
    const std::vector<OpenedSource> opened = OpenSources(o.attention, o.common.seed, 16);
    CheckSequence(opened, o.figure.sequence);
    for (const OpenedSource& source : opened) {
      sources.push_back(OneSequence(source.attention, o.figure.sequence));
    }
  }

  HeadGrid grid{.columns = o.columns, .gamma = o.gamma, .ticks = o.ticks, .color_bar = o.color_bar};
  std::vector<std::vector<HeadId>> heads;
  std::vector<std::size_t> counts;
  std::int64_t longest = 0;
  bool whole_layers = true;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const AttentionSource& source = sources[s];
    const std::int64_t length = source.sequences[0].length;
    longest = std::max(longest, length);
    if (!o.mark.empty()) grid.mark = ParseMark(o.mark, length);
    const std::string& list = ForSource(lists, s, sources.size(), "--heads");
    heads.push_back(ChooseHeads(source, list));
    Sort(o.order, source, &heads.back());
    counts.push_back(heads.back().size());
    whole_layers &= list == "all" && (o.order == "given" || o.order == "layer") &&
                    source.heads == sources[0].heads;
    GridPanel& panel = grid.panels.emplace_back();
    panel.title = source.label;
    if (!o.ticks) continue;
    if (length > kMaxTicks) {
      Fail("--ticks: the input has {} tokens, and at most {} can be written beside a map", length,
           kMaxTicks);
    }
    for (std::int64_t t = 0; t < length; ++t) panel.tokens.push_back(source.token(0, t));
  }
  // A row per layer, where rows of that length fit a page.
  const std::int64_t per_layer = sources[0].heads;
  if (grid.columns == 0 && whole_layers && per_layer >= 3 && per_layer <= 16) {
    grid.columns = static_cast<int>(per_layer);
  }
  const GridLayout layout = LayoutGrid(grid, counts, longest);
  grid.columns = layout.columns;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    grid.panels[s].maps = CollectMaps(sources[s], 0, heads[s], layout.max_cells);
  }
  DrawHeadGrid(grid, o.figure.out);

  Json panels = Json::array();
  std::size_t maps = 0;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    panels.push_back(PanelJson(sources[s], grid.panels[s], grid.columns));
    maps += counts[s];
  }
  if (o.common.json) {
    return PrintJson({{"schema", "clearhead.grid.1"}, {"out", o.figure.out}, {"panels", panels}});
  }
  Print(fmt::format("{}: {} maps of {} in {} columns\n", o.figure.out, maps,
                    sources.size() == 1 ? "one model" : fmt::format("{} models", sources.size()),
                    grid.columns));
}

}  // namespace

void AddGrid(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "grid",
      "Draw the attention maps of many heads on one page, a panel per model.\n"
      "Queries run down, keys run right; white is 0, dark blue is 1.",
      "clearhead grid gpt2 sparse-gpt2 --prompt 'The opposite of \"large\" is \"' --label GPT2 "
      "--label 'Sparse GPT2' --out heads.pdf",
      options, Run);
  options->attention.Add(command);
  options->figure.Add(command, "all");
  command
      ->add_option("--order", options->order,
                   "given | layer | importance | type (default: as the heads are given)")
      ->check(IsMember({"given", "layer", "importance", "type"}));
  command->add_option("--columns", options->columns, "Maps in a row (default: a balanced page)")
      ->check(Range(1, 64));
  command
      ->add_option("--gamma", options->gamma,
                   "Colour of weight^GAMMA; below 1 shows faint weights (default: 1)")
      ->check(Range(0.05, 20.0));
  command->add_option("--mark", options->mark, "Red square at QUERY:KEY of every map");
  command->add_flag("--ticks", options->ticks, "Write the tokens beside and below the maps");
  command->add_flag("--color-bar", options->color_bar, "Add a scale of colours");
}

}  // namespace clearhead::cli
