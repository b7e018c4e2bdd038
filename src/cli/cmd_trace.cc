// SPDX-License-Identifier: MIT
// clearhead trace MODEL FEATURES --prompt S --out DIR: the attribution graph of a prompt.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "cli/trace_figures.h"
#include "cli/trace_inputs.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "features/graph_json.h"
#include "features/intervention_check.h"
#include "features/node_names.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string model, features, index, out, matrix, groups;
  InputOptions input;
  TargetOptions targets;
  std::int64_t max_features = 4000, first_position = -1, check = 0, rows = 12;
  bool all_features = false, compatible = false;
  PruneOptions prune;
};

class Clock {
 public:
  // Seconds since the last call.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Traced {
  FrozenPrompt prompt;
  AttributionGraph graph;
  GraphScores scores;
  PrunedGraph pruned;
  std::vector<FeatureMeaning> meanings;  // of the kept features
  GroupedGraph grouped;
  SumCheck sums;
  std::optional<InterventionCheck> check;
  Json seconds;
};

std::vector<ActiveFeature> KeptFeatures(const Traced& t) {
  std::vector<ActiveFeature> kept;
  for (std::int64_t f = 0; f < t.graph.nodes.features; ++f) {
    if (t.pruned.nodes[f]) kept.push_back(t.graph.features[f]);
  }
  return kept;
}

Traced TracePrompt(const Options& o, const TracedModel& model, const InputTokens& input) {
  Clock clock;
  Traced t;
  FrozenOptions frozen{.checked = true};  // by LoadTraced
  if (o.first_position >= 0) frozen.first_position = o.first_position;
  t.prompt = FreezePrompt(model.model, model.Features(), input.ids, frozen);
  t.seconds["run"] = clock.Lap();
  GraphOptions options{.logits = o.targets.Read(model.Words()),
                       .max_features = o.all_features ? 0 : o.max_features};
  {
    std::optional<Progress> bar;
    options.on_progress = [&](std::int64_t done, std::int64_t total) {
      if (!bar) bar.emplace("trace", total, "features");
      bar->Update(done);
    };
    t.graph = Trace(t.prompt, options);
  }
  t.sums = CheckSums(t.graph);
  t.seconds["edges"] = clock.Lap();
  if (o.check > 0) {
    t.check = CheckInterventions(t.prompt, t.graph, o.check);
    t.seconds["check"] = clock.Lap();
  }
  if (o.compatible) t.graph = CompatibleGraph(t.graph);
  t.scores = ScoreGraph(t.graph);
  t.pruned = PruneGraph(t.graph, t.scores, o.prune);
  t.seconds["prune"] = clock.Lap();
  t.meanings = MeaningsOf(t.prompt, model.Index(), model.Words(), KeptFeatures(t));
  std::vector<FeatureGroup> groups;
  if (!o.groups.empty()) {
    groups = ReadGroups(ReadJsonFile(o.groups), o.groups, t.graph);
  } else {
    groups = GroupFeatures(t.graph, t.prompt.ids, t.pruned.nodes, t.meanings, OriginsOf(t.graph),
                           model.Words());
    std::erase_if(groups, [&](const FeatureGroup& group) {  // groups are sums of the graph's rows
      return !std::all_of(group.features.begin(), group.features.end(), [&](std::int64_t f) {
        return std::binary_search(t.graph.traced.begin(), t.graph.traced.end(), f);
      });
    });
  }
  t.grouped = SumByGroups(t.graph, std::move(groups), t.scores.influence);
  t.seconds["groups"] = clock.Lap();
  return t;
}

// Groups from the most influential down.
std::vector<std::int64_t> GroupsByInfluence(const Traced& t) {
  std::vector<std::int64_t> order(t.grouped.groups.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return t.grouped.influence[a] > t.grouped.influence[b];
  });
  return order;
}

Json LogitsJson(const Traced& t, const Tokenizer* words) {
  Json logits = Json::array();
  for (const LogitTarget& logit : t.graph.logits) {
    logits.push_back({{"name", NameOf(logit, words)},
                      {"token", logit.token},
                      {"position", logit.position},
                      {"probability", logit.probability},
                      {"value", logit.value}});
  }
  return logits;
}

Json GroupsJson(const Traced& t, const Tokenizer* words) {
  Json list = Json::array();
  for (const std::int64_t g : GroupsByInfluence(t)) {
    const FeatureGroup& group = t.grouped.groups[g];
    Json features = Json::array(), edges = Json::object();
    for (const std::int64_t f : group.features) features.push_back(NameOf(t.graph.features[f]));
    for (std::size_t i = 0; i < t.graph.logits.size(); ++i) {
      edges[NameOf(t.graph.logits[i], words)] =
          t.grouped.Row(t.grouped.count() + static_cast<std::int64_t>(i))[g];
    }
    list.push_back({{"name", group.name},
                    {"position", group.position},
                    {"first_layer", group.first_layer},
                    {"last_layer", group.last_layer},
                    {"influence", t.grouped.influence[g]},
                    {"features", std::move(features)},
                    {"to_logits", std::move(edges)}});
  }
  return list;
}

Json CheckJson(const InterventionCheck& c) {
  return {{"interventions", c.interventions},
          {"predictions", c.predictions},
          {"frozen_largest_difference", c.largest_difference},
          {"largest_prediction", c.largest_prediction},
          {"frozen_attention_correlation", c.frozen_attention_correlation},
          {"free_correlation", c.free_correlation},
          {"frozen_attention_correlation_logits", c.frozen_attention_logits},
          {"free_correlation_logits", c.free_logits}};
}

Json DocumentOf(const Options& o, const TracedModel& model, const Traced& t) {
  Json document = {{"schema", "clearhead.trace.1"},
                   {"model", model.name},
                   {"features", model.features_name},
                   {"ids", t.prompt.ids},
                   {"tokens", TokenTexts(model.Words(), t.prompt.ids)},
                   {"compatible", o.compatible},
                   {"active_features", t.graph.nodes.features},
                   {"traced_features", t.graph.traced.size()},
                   {"nodes", t.graph.nodes.count()},
                   {"nodes_kept", t.pruned.nodes_kept},
                   {"edges_kept", t.pruned.edges_kept},
                   {"logits", LogitsJson(t, model.Words())},
                   {"scores", ScoresJson(t.scores)},
                   {"sums",
                    {{"largest_difference", t.sums.largest_difference},
                     {"largest_target", t.sums.largest_target}}},
                   {"groups", GroupsJson(t, model.Words())},
                   {"seconds", t.seconds}};
  if (t.check) document["check"] = CheckJson(*t.check);
  return document;
}

std::string TextOf(const Options& o, const TracedModel& model, const Traced& t) {
  const Tokenizer* words = model.Words();
  std::string text;
  for (std::size_t i = 0; i < t.prompt.ids.size(); ++i) {
    text += fmt::format("{} {}:“{}”", i == 0 ? "" : " ", i, TokenName(words, t.prompt.ids[i]));
  }
  text += "\n";
  for (const LogitTarget& logit : t.graph.logits) {
    text += fmt::format("{}  {:.1f} %  ({:.3f} above the mean)\n", NameOf(logit, words),
                        100.0 * logit.probability, logit.value);
  }
  text += fmt::format(
      "{} features fire, {} traced; {} of {} nodes and {} edges kept\n"
      "replacement {:.3f}, completeness {:.3f}{}\n"
      "{}: largest difference of a row's sum {:.1e} (targets up to {:.1f})\n",
      t.graph.nodes.features, t.graph.traced.size(), t.pruned.nodes_kept, t.graph.nodes.count(),
      t.pruned.edges_kept, t.scores.replacement, t.scores.completeness,
      t.scores.untraced > 0.0
          ? fmt::format(", {:.1f} % of the influence ends in features without a row",
                        100.0 * t.scores.untraced)
          : "",
      "rows add up", t.sums.largest_difference, t.sums.largest_target);
  if (t.check) {
    text += fmt::format(
        "{} strong features switched off: everything frozen, {} predictions, largest difference "
        "{:.1e} (of up to {:.2f});\n  correlation {:.3f} with attention frozen, {:.3f} free "
        "(logits "
        "alone {:.3f}, {:.3f})\n",
        t.check->interventions, t.check->predictions, t.check->largest_difference,
        t.check->largest_prediction, t.check->frozen_attention_correlation,
        t.check->free_correlation, t.check->frozen_attention_logits, t.check->free_logits);
  }
  text += fmt::format("\n{:>9} {:<14} {:<20} {:<11} {:>8} {:>14}\n", "influence", "at", "group",
                      "layers", "features", NameOf(t.graph.logits[0], words));
  std::int64_t shown = 0;
  for (const std::int64_t g : GroupsByInfluence(t)) {
    if (shown++ == o.rows) break;
    const FeatureGroup& group = t.grouped.groups[g];
    text += fmt::format(
        "{:>9.4f} {:<14} {:<20} {:<11} {:>8} {:>+14.3f}\n", t.grouped.influence[g],
        fmt::format("{}:“{}”", group.position, TokenName(words, t.prompt.ids[group.position])),
        group.name, LayerSpan(group), group.features.size(), t.grouped.Row(t.grouped.count())[g]);
  }
  return text;
}

void WriteFiles(const Options& o, const TracedModel& model, const Traced& t) {
  if (!o.matrix.empty()) {
    WriteGraphMatrix(o.matrix, t.graph, t.scores, t.pruned, t.prompt.ids, model.Words());
  }
  if (o.out.empty()) return;
  const fs::path folder = o.out;
  MakeDirectory(folder);
  std::string prompt = o.input.prompt;
  if (prompt.empty() && model.tokenizer) prompt = model.tokenizer->DecodeBytes(t.prompt.ids);
  const GraphCaption caption{.slug = "graph",
                             .model = model.name,
                             .features = model.features_name,
                             .prompt = prompt,
                             .version = Version()};
  const Json json = GraphJson(t.graph, t.scores, t.pruned, o.prune, caption, t.prompt.ids,
                              model.Words(), t.meanings, t.grouped.groups);
  WriteJsonFile(folder / "graph.json", json);
  AddGraphMetadata(folder, json);
  WriteSparseGraph(folder / "graph.safetensors", t.graph, t.scores, t.pruned);
  WriteJsonFile(folder / "groups.json", ToJson(t.graph, t.grouped.groups));
  const GraphFigure figure = FigureOf(t.grouped, model, t.prompt.ids);
  for (const char* name : {"graph.svg", "graph.pdf", "graph.png"}) {
    DrawGraphFigure(figure, folder / name);
  }
}

void Run(const Options& o) {
  if (o.out.empty() && o.matrix.empty() && !o.common.json && o.check == 0) {
    FailUsage("say where the graph goes: --out DIR, --matrix FILE or --json");
  }
  Clock clock;
  const std::unique_ptr<TracedModel> model = LoadTraced(o.model, o.features, o.index);
  const InputTokens input = ReadInput(o.input, FindModel(o.model));
  if (input.batch != 1) FailUsage("one prompt at a time, not {}", input.batch);
  const double load = clock.Lap();
  Traced t = TracePrompt(o, *model, input);
  t.seconds["load"] = load;
  clock.Lap();
  WriteFiles(o, *model, t);
  t.seconds["write"] = clock.Lap();
  if (o.common.json) return PrintJson(DocumentOf(o, *model, t));
  Print(TextOf(o, *model, t));
}

}  // namespace

void AddTrace(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "trace",
      "The attribution graph of a prompt: which features, errors and tokens make every feature "
      "and\n"
      "the logits, exactly, with attention and norms frozen. Pruned and grouped; for "
      "circuit-tracer's\n"
      "and Neuronpedia's pages.",
      "clearhead trace tale tale-features --prompt '<|endoftext|>The opposite of \"large\" is \"' "
      "--out large",
      options, Run);
  command->add_option("MODEL", o.model, "The model")->required();
  command->add_option("FEATURES", o.features, "Its features (a transcoder)")->required();
  o.input.Add(command);
  o.targets.Add(command);
  command->add_option("--out", o.out,
                      "Folder for graph.json, .safetensors, .svg, .pdf, .png and groups.json");
  command->add_option("--matrix", o.matrix,
                      "The whole matrix of edges (.safetensors) and its names (.json)");
  command
      ->add_option("--max-features", o.max_features,
                   "Features that are traced further back, by influence (default: 4000)")
      ->check(PositiveNumber());
  command->add_flag("--all-features", o.all_features, "Trace every feature that fires");
  command->add_flag("--compatible", o.compatible,
                    "circuit-tracer's nodes: no positions, no biases, no features at position 0");
  command
      ->add_option("--node-share", o.prune.nodes, "Influence that kept nodes have (default: 0.8)")
      ->check(Range(0.0, 1.0));
  command->add_option("--edge-share", o.prune.edges, "And kept edges (default: 0.98)")
      ->check(Range(0.0, 1.0));
  command->add_option("--groups", o.groups, "Groups of features from an edited groups.json");
  command->add_option("--index", o.index, "The features' index, if it is not beside them");
  command
      ->add_option("--first-position", o.first_position,
                   "Features count from this position on (default: as they were trained)")
      ->check(NonNegativeNumber());
  command
      ->add_option("--check", o.check,
                   "Switch this many strong features off and compare with the graph")
      ->check(PositiveNumber());
  command->add_option("--rows", o.rows, "Groups to print (default: 12)")->check(PositiveNumber());
}

}  // namespace clearhead::cli
