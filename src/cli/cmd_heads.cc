// SPDX-License-Identifier: MIT
// clearhead heads A [B]: what every head does, in numbers and in words.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/attention_options.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/progress.h"
#include "heads/head_controls.h"
#include "heads/head_list.h"
#include "heads/results_json.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  AttentionOptions attention;
  std::string heads = "all", sort = "layer";
  std::vector<std::string> kinds;
  bool csv = false, explain = false, controls = false;
};

using SortKey = double (*)(const HeadResult&);
const std::map<std::string, SortKey>& SortKeys() {
  static const std::map<std::string, SortKey> keys = {
      {"score", [](const HeadResult& h) { return h.name.score; }},
      {"margin", [](const HeadResult& h) { return h.name.margin; }},
      {"first", [](const HeadResult& h) { return h.statistics.first; }},
      {"previous", [](const HeadResult& h) { return h.statistics.previous; }},
      {"self", [](const HeadResult& h) { return h.statistics.self; }},
      {"peak", [](const HeadResult& h) { return h.statistics.mean_peak; }},
      {"keys", [](const HeadResult& h) { return h.statistics.effective_keys; }},
      {"edges", [](const HeadResult& h) { return h.statistics.open_edges_per_query; }},
      {"induction", [](const HeadResult& h) { return h.statistics.induction.mass; }},
      {"duplicate", [](const HeadResult& h) { return h.statistics.duplicate_token.mass; }},
      {"importance", [](const HeadResult& h) { return h.statistics.importance; }}};
  return keys;
}

// The heads that the flags ask for, in their order.
std::vector<const HeadResult*> Choose(const Options& o, const ModelReport& report) {
  std::vector<const HeadResult*> shown;
  const auto ids = ParseHeadList(o.heads, report.layers, report.heads_per_layer,
                                 [&] { return ByImportance(report); });
  for (const HeadId id : ids) {
    const HeadResult& head =
        report.heads[static_cast<std::size_t>(id.layer * report.heads_per_layer + id.head)];
    const std::string kind(KindName(head.name.kind));
    if (o.kinds.empty() || std::find(o.kinds.begin(), o.kinds.end(), kind) != o.kinds.end()) {
      shown.push_back(&head);
    }
  }
  if (o.sort == "name") {
    std::stable_sort(shown.begin(), shown.end(), [](const HeadResult* a, const HeadResult* b) {
      return a->name.kind < b->name.kind;
    });
  } else if (o.sort != "layer") {
    const SortKey key = SortKeys().at(o.sort);
    std::stable_sort(shown.begin(), shown.end(),
                     [&](const HeadResult* a, const HeadResult* b) { return key(*a) > key(*b); });
  }
  return shown;
}

// `controls`: of every head of the report, or nothing.
std::string Table(const Options& o, const ModelReport& report,
                  const std::vector<HeadControl>& controls) {
  const std::vector<const HeadResult*> shown = Choose(o, report);
  std::size_t widest = 4;
  for (const HeadResult* head : shown) widest = std::max(widest, head->name.name.size());
  widest = std::min<std::size_t>(widest, 48);
  std::string text = fmt::format("{}: {} layers of {} heads, {} tokens in {} sequence{}\n",
                                 report.label, report.layers, report.heads_per_layer, report.tokens,
                                 report.sequences, report.sequences == 1 ? "" : "s");
  text +=
      fmt::format("{:<8} {:<{}} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7}", "head", "name",
                  widest, "score", "margin", "first", "prev", "self", "peak", "keys", "edges/q");
  text += controls.empty() ? "\n" : fmt::format(" {:>9} {:>12}\n", "shuffled", "random, most");
  for (const HeadResult* head : shown) {
    const HeadStatistics& s = head->statistics;
    text += fmt::format(
        "{:<8} {:<{}} {:>5.2f} {:>6.2f} {:>6.3f} {:>6.3f} {:>6.3f} {:>6.3f} {:>6.1f} {:>7.2f}",
        ToText(s.head), head->name.name.substr(0, widest), widest, head->name.score,
        head->name.margin, s.first, s.previous, s.self, s.mean_peak, s.effective_keys,
        s.open_edges_per_query);
    if (!controls.empty()) {
      const HeadControl& c = controls[static_cast<std::size_t>(head - report.heads.data())];
      text += fmt::format(" {:>9.2f} {:>5.2f}, {:>5.2f}", c.shuffled, c.random_mean, c.random_most);
    }
    text += "\n";
    if (o.explain) text += "         " + head->name.sentence + "\n";
  }
  return text;
}

std::string SummaryText(const ModelReport& report) {
  const ModelSummary& m = report.summary;
  std::vector<std::string> kinds;
  for (int kind = 0; kind < kHeadKinds; ++kind) {
    const std::int64_t count = m.kinds[static_cast<std::size_t>(kind)];
    if (count > 0) {
      kinds.push_back(fmt::format("{} {}", count, KindName(static_cast<HeadKind>(kind))));
    }
  }
  return fmt::format(
      "diagonal-dominant heads {:.1f} %, mean diagonal {:.4f}, mean peak {:.4f}\n"
      "first-token mass {:.4f} on average, above one half in {:.1f} % of heads\n"
      "open edges {:.2f} per query and head, {:.3f} % of causal pairs\n"
      "names: {}\n",
      100 * m.diagonal_dominant, m.diagonal_intensity, m.peak_intensity, m.sink_mass,
      100 * m.sink_heads, m.open_edges_per_query, 100 * m.edge_fraction, fmt::join(kinds, ", "));
}

std::string CompositionText(const Composition& c) {
  std::string text = fmt::format("composition (random baseline {:.4f}):", c.baseline);
  for (int kind = 0; kind < kCompositionKinds; ++kind) {
    const CompositionCount& count = c.counts[static_cast<std::size_t>(kind)];
    text += fmt::format("{} {} {} of {} pairs at twice the baseline, mean excess {:+.4f}",
                        kind == 0 ? "" : ";", CompositionName(static_cast<CompositionKind>(kind)),
                        count.strong, count.pairs, count.mean_excess);
  }
  text += "\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(5, c.strongest.size()); ++i) {
    const CompositionPair& pair = c.strongest[i];
    text += fmt::format("  {} {} -> {}  {:.3f} above the baseline\n", CompositionName(pair.kind),
                        ToText(pair.from), ToText(pair.to), pair.score - c.baseline);
  }
  return text;
}

std::string PText(const std::optional<double>& p) {
  if (!p) return "no p-value";
  return *p < 0.0005 ? fmt::format("p = {:.1e}", *p) : fmt::format("p = {:.3f}", *p);
}

std::string ComparisonText(const ModelComparison& c) {
  const auto line = [](const char* what, const ValueChange& change, double scale,
                       const char* unit) {
    return fmt::format("{:<28} {:>9.4f}{} -> {:>9.4f}{}  {}\n", what, scale * change.before, unit,
                       scale * change.after, unit, PText(change.p));
  };
  std::string text = fmt::format("{} -> {} ({})\n", c.before, c.after,
                                 c.paired ? "p-values: each head against itself, signs flipped"
                                          : "p-values: heads dealt out anew");
  text += line("open edges per query", c.open_edges_per_query, 1, "");
  text += line("diagonal intensity", c.diagonal_intensity, 1, "");
  text += line("peak intensity", c.peak_intensity, 1, "");
  text += line("first-token mass", c.sink_mass, 1, "");
  text += line("diagonal-dominant heads", c.diagonal_dominant, 100, " %");
  if (c.connections_removed) {
    text += fmt::format("connections removed {:.2f} %", *c.connections_removed);
  }
  if (c.diagonal_intensity_lost) {
    text += fmt::format(", diagonal intensity lost {:.2f} %", *c.diagonal_intensity_lost);
  }
  text += fmt::format(
      "\nsinks eliminated {} of {} (first-token mass above one half before, not "
      "after); {} after\n",
      c.sinks_eliminated, c.sinks_before, c.sinks_after);
  const auto renamed = std::count_if(c.heads.begin(), c.heads.end(), [](const HeadChange& head) {
    return head.before != head.after;
  });
  text += fmt::format("{} of {} heads have another name; --json has every head's change\n", renamed,
                      c.heads.size());
  return text;
}

// The names' scores where there is nothing to find.
std::vector<HeadControl> MeasureControls(const Options& o, const OpenedSource& source,
                                         const ModelReport& report) {
  const GateRun gates = o.attention.gates.Resolve(source.model->config, o.common.seed);
  const auto analyse = [&](const Model& model, const std::string& what,
                           std::vector<std::vector<std::int32_t>> sequences) {
    const auto count = static_cast<std::int64_t>(sequences.size());
    Progress bar(fmt::format("{}, {}", report.label, what), count, "sequences", RankProgress());
    const auto update = [&](std::size_t done, std::size_t) {
      bar.Update(static_cast<std::int64_t>(done));
    };
    return AnalyseHeads(AttentionOfModel(model, gates, what, std::move(sequences), {}), update,
                        &Ranks());
  };
  std::vector<std::vector<std::int32_t>> text;
  for (const AttentionSequence& s : source.attention.sequences) text.push_back(s.ids);
  const ModelReport shuffled = analyse(
      *source.model, "shuffled", ShuffledSequences(source.attention.sequences, o.common.seed));
  const ModelReport random =
      analyse(RandomModel(source.model->config, o.common.seed), "random weights", std::move(text));
  return ControlNames(report, shuffled, random);
}

Json ToJson(const HeadControl& c) {
  return {{"shuffled", c.shuffled}, {"random_mean", c.random_mean}, {"random_most", c.random_most}};
}

void Run(const Options& o) {
  if (o.csv && o.common.json) FailUsage("give either --json or --csv");
  for (const std::string& kind : o.kinds) {
    std::vector<std::string_view> all;
    for (int k = 0; k < kHeadKinds; ++k) all.push_back(KindName(static_cast<HeadKind>(k)));
    if (std::find(all.begin(), all.end(), kind) == all.end()) {
      FailUsage("--kind '{}': the kinds are {}", kind, fmt::join(all, ", "));
    }
  }
  const std::vector<OpenedSource> sources = OpenSources(o.attention, o.common.seed, 2);
  std::vector<ModelReport> reports;
  std::vector<std::optional<Composition>> compositions;
  std::vector<std::vector<HeadControl>> controls;
  for (const OpenedSource& source : sources) {
    if (o.controls && !source.model) {
      FailUsage("--controls runs the model on other text; '{}' is a file", source.attention.label);
    }
  }
  for (const OpenedSource& source : sources) {
    Progress bar(source.attention.label,
                 static_cast<std::int64_t>(source.attention.sequences.size()), "sequences",
                 RankProgress());
    const auto update = [&](std::size_t done, std::size_t) {
      bar.Update(static_cast<std::int64_t>(done));
    };
    reports.push_back(AnalyseHeads(source.attention, update, &Ranks()));
    controls.emplace_back();
    if (o.controls) controls.back() = MeasureControls(o, source, reports.back());
  }
  if (!Ranks().first()) return;
  for (const OpenedSource& source : sources) {
    compositions.emplace_back();
    if (source.model && !o.csv) compositions.back() = ComposeHeads(*source.model, o.common.seed);
  }
  std::optional<ModelComparison> comparison;
  if (reports.size() == 2) comparison = CompareModels(reports[0], reports[1], o.common.seed);

  if (o.csv) {
    std::string text = HeadCsvHeader();
    for (const ModelReport& report : reports) {
      for (const HeadResult* head : Choose(o, report)) text += HeadCsvLine(report.label, *head);
    }
    return Print(text);
  }
  if (o.common.json) {
    Json models = Json::array();
    for (std::size_t m = 0; m < reports.size(); ++m) {
      const std::vector<const HeadResult*> shown = Choose(o, reports[m]);
      Json model = ToJson(reports[m], shown);
      for (std::size_t i = 0; o.controls && i < shown.size(); ++i) {
        const std::ptrdiff_t head = shown[i] - reports[m].heads.data();
        model["heads"][i]["control"] = ToJson(controls[m][static_cast<std::size_t>(head)]);
      }
      model["composition"] = compositions[m] ? ToJson(*compositions[m]) : Json(nullptr);
      models.push_back(model);
    }
    Json json = {{"schema", "clearhead.heads.1"}, {"models", models}};
    if (comparison) {
      json["comparison"] = ToJson(*comparison);
      json["comparison"]["composition"] =
          compositions[0] && compositions[1] ? CompositionChange(*compositions[0], *compositions[1])
                                             : Json(nullptr);
    }
    return PrintJson(json);
  }
  std::string text;
  for (std::size_t m = 0; m < reports.size(); ++m) {
    text += Table(o, reports[m], controls[m]) + SummaryText(reports[m]);
    if (compositions[m]) text += CompositionText(*compositions[m]);
    text += m + 1 < reports.size() ? "\n" : "";
  }
  if (comparison) {
    text += "\n" + ComparisonText(*comparison);
    if (compositions[0] && compositions[1]) {
      text += "pairs of heads that compose strongly:";
      for (std::size_t kind = 0; kind < kCompositionKinds; ++kind) {
        text +=
            fmt::format(" {} {} -> {}", CompositionName(static_cast<CompositionKind>(kind)),
                        compositions[0]->counts[kind].strong, compositions[1]->counts[kind].strong);
      }
      text += "\n";
    }
  }
  Print(text);
}

}  // namespace

void AddHeads(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "heads",
      "What every head does: statistics, a name, and a sentence for each; two models are "
      "compared head by head",
      "clearhead heads gpt2 sparse-gpt2 --text book.txt --tokens 20000 --sort score", options, Run,
      RunsOn::kAllRanks);
  options->attention.Add(command);
  command->add_option("--heads", options->heads,
                      "Show all | L0H1,5.1,a5.h1 | top:N | circuit:FILE (default: all)");
  command
      ->add_option("--kind", options->kinds,
                   "Show only heads of this kind, e.g. induction; may be repeated")
      ->allow_extra_args(false);
  std::vector<std::string> sorts = {"layer", "name"};
  for (const auto& [name, key] : SortKeys()) sorts.push_back(name);
  command
      ->add_option("--sort", options->sort,
                   fmt::format("Order of the table: {} (default: layer)", fmt::join(sorts, ", ")))
      ->check(IsMember(sorts));
  command->add_flag("--explain", options->explain, "A sentence under each head");
  command->add_flag("--controls", options->controls,
                    "Beside every score: the same head's on the text in another order, and mean "
                    "and most over a model with random weights");
  command->add_flag("--csv", options->csv, "Print comma-separated values, a line per head");
}

}  // namespace clearhead::cli
