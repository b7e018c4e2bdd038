// SPDX-License-Identifier: MIT
// clearhead scatter A [B] --heads ... --out F: how the weights of heads relate.
#include <fmt/format.h>

#include "cli/attention_options.h"
#include "cli/commands.h"
#include "core/error.h"
#include "figures/correlation_figure.h"
#include "figures/scatter_matrix.h"
#include "heads/results_json.h"

namespace clearhead::cli {
namespace {

constexpr std::size_t kMaxHeads = 16;

struct Options {
  CommonOptions common;
  AttentionOptions attention;
  HeadFigureOptions figure;
  bool all = false;
};

std::string RText(const std::optional<double>& r) {
  return r ? fmt::format("{:+.3f}", *r) : std::string("undefined");
}

std::string Text(const ScatterSection& section) {
  std::string text = fmt::format("{}: {} pairs\n", section.label, section.pairs);
  for (std::size_t y = 0; y < section.heads.size(); ++y) {
    for (std::size_t x = 0; x < y; ++x) {
      const ScatterCell& cell = section.Cell(y, x);
      text += fmt::format("  {:<8} {:<8} Pearson {:>9}  Spearman {:>9}\n", ToText(section.heads[x]),
                          ToText(section.heads[y]), RText(cell.pearson), RText(cell.spearman));
    }
  }
  return text;
}

std::string Text(const CorrelationMatrix& matrix) {
  std::string text = fmt::format("{}: {} heads, {} pairs of tokens\n", matrix.label,
                                 matrix.heads.size(), matrix.pairs);
  if (matrix.median_magnitude) {
    text += fmt::format("  median |r| {:.3f}, {:.1f} % of the pairs of heads above 0.5\n",
                        *matrix.median_magnitude, 100 * matrix.share_above_half);
  }
  for (const CorrelatedPair& pair : matrix.strongest) {
    text += fmt::format("  {:<8} {:<8} {:+.4f}\n", ToText(pair.a), ToText(pair.b), pair.r);
  }
  const auto defined = static_cast<std::size_t>(matrix.defined_heads);
  if (defined < matrix.heads.size()) {
    std::vector<std::string> names;
    for (std::size_t h = defined; h < matrix.heads.size(); ++h) {
      names.push_back(ToText(matrix.heads[h]));
    }
    text += fmt::format("  undefined (constant or empty heads): {}\n", fmt::join(names, ", "));
  }
  return text;
}

void Run(const Options& o) {
  CheckFigurePath(o.figure.out);
  const std::vector<OpenedSource> sources = OpenSources(o.attention, o.common.seed, 2);
  CheckSequence(sources, o.figure.sequence);
  const std::vector<std::string> lists =
      o.figure.heads.empty() ? std::vector<std::string>{o.all ? "all" : "top:6"} : o.figure.heads;

  std::vector<ScatterSection> sections;
  std::vector<CorrelationMatrix> matrices;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const AttentionSource source = OneSequence(sources[s].attention, o.figure.sequence);
    if (source.sequences[0].length < 2) {
      Fail("'{}' has one token only; a scatter plot needs at least two", source.label);
    }
    const std::vector<HeadId> heads =
        ChooseHeads(source, ForSource(lists, s, sources.size(), "--heads"));
    if (!o.all && heads.size() > kMaxHeads) {
      Fail(
          "{} heads make {} plots, at most {} heads fit; name fewer, or give --all for the matrix "
          "of correlations",
          heads.size(), heads.size() * heads.size(), kMaxHeads);
    }
    PairWeights pairs = CollectPairs(source, 0, heads);
    if (o.all) {
      matrices.push_back(Correlate(&pairs, source.label));
    } else {
      sections.push_back(Scatter(pairs, source.label));
    }
  }
  if (o.all) {
    DrawCorrelations(matrices, o.figure.out);
  } else {
    DrawScatterMatrix(sections, o.figure.out);
  }
  if (o.common.json) {
    Json list = Json::array();
    for (const ScatterSection& section : sections) list.push_back(ToJson(section));
    for (const CorrelationMatrix& matrix : matrices) list.push_back(ToJson(matrix));
    return PrintJson({{"schema", o.all ? "clearhead.correlation.1" : "clearhead.scatter.1"},
                      {"out", o.figure.out},
                      {"sections", list}});
  }
  std::string text;
  for (const ScatterSection& section : sections) text += Text(section);
  for (const CorrelationMatrix& matrix : matrices) text += Text(matrix);
  Print(text);
}

}  // namespace

void AddScatter(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command =
      AddCommand(app, "scatter",
                 "Scatter-plot matrix of heads: the weights of one head against another's on the "
                 "same (query,\n"
                 "key) pairs; with --all, the correlations of all heads in clustered order",
                 "clearhead scatter gpt2 --prompt 'The cat sat on the mat' --heads L4H11,L5H1,L5H5 "
                 "--out s.pdf",
                 options, Run);
  options->attention.Add(command);
  options->figure.Add(command, "top:6, with --all: all");
  command->add_flag("--all", options->all, "Draw the head x head correlation matrix instead");
}

}  // namespace clearhead::cli
