// SPDX-License-Identifier: MIT
#include "circuits/find_circuit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "heads/head_report.h"
#include "model/packed_weights.h"
#include "model/ungroup.h"

namespace clearhead {
namespace {

constexpr std::size_t kPromptsForNames = 64;

OnProgress Named(const FindOptions& options, std::string_view what) {
  if (!options.on_progress) return {};
  return [&options, what](std::int64_t done, std::int64_t total) {
    options.on_progress(what, done, total);
  };
}

HeadCircuit FindHeads(const TaskRuns& runs, const FindOptions& options,
                      const std::vector<double>& attribution) {
  const ResidualGraph graph(runs.config());
  std::vector<std::int64_t> nodes = graph.AllHeads();
  for (const std::int64_t mlp : graph.AllMlps()) nodes.push_back(mlp);
  HeadCircuit circuit;
  const auto patch = [&](Direction direction, std::string_view what) {
    return PatchNodes(runs, nodes,
                      {.direction = direction,
                       .ablation = options.ablation,
                       .on_progress = Named(options, what)});
  };
  const HeadImportance by = options.importance;
  if (by == HeadImportance::kBoth || by == HeadImportance::kNoise) {
    circuit.noise = patch(Direction::kNoise, "patching corrupted into clean");
  }
  if (by == HeadImportance::kBoth || by == HeadImportance::kDenoise) {
    circuit.denoise = patch(Direction::kDenoise, "patching clean into corrupted");
  }
  circuit.importance.resize(static_cast<std::size_t>(graph.node_count()), 0.0);
  for (const std::int64_t node : nodes) {
    const auto at = static_cast<std::size_t>(node);
    const double noise = circuit.noise ? circuit.noise->effect[at] : 0.0;
    const double denoise = circuit.denoise ? circuit.denoise->effect[at] : 0.0;
    circuit.importance[at] = by == HeadImportance::kAttribution ? attribution[at]
                             : by == HeadImportance::kBoth      ? 0.5 * (noise + denoise)
                                                                : noise + denoise;
  }
  for (const std::int64_t node : RankByImportance(circuit.importance)) {
    if (graph.IsHead(node)) circuit.heads.push_back(node);
  }
  circuit.curve = TraceHeads(
      runs, circuit.heads, runs.clean_metric(),
      {.ablation = options.ablation, .on_progress = Named(options, "adding heads")}, options.curve);
  const auto size = static_cast<std::size_t>(circuit.curve.At(0.9).size);
  circuit.attention =
      CountAttentionEdges(runs, std::span(circuit.heads).first(size), circuit.curve);
  return circuit;
}

// What each head does on the task's clean prompts, by node.
std::vector<std::string> RolesOf(const Model& model, const TaskSet& set, Communicator* ranks) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const TaskItem& item : set.items) {
    if (prompts.size() < kPromptsForNames) prompts.push_back(item.clean);
  }
  const ResidualGraph graph(model.config);
  std::vector<std::string> roles(static_cast<std::size_t>(graph.node_count()));
  for (const HeadResult& head :
       AnalyseHeads(AttentionOfModel(model, {}, "", std::move(prompts), {}), {}, ranks).heads) {
    const HeadId id = head.statistics.head;
    std::string& role = roles[static_cast<std::size_t>(graph.Head(id.layer, id.head))];
    role = head.name.name;
    if (head.name.kind == HeadKind::kHybrid && head.name.parts.size() > 1) {
      role = fmt::format("{} + {}", KindName(head.name.parts[0].kind),
                         KindName(head.name.parts[1].kind));
    }
  }
  return roles;
}

}  // namespace

std::string_view ToText(HeadImportance importance) {
  switch (importance) {
    case HeadImportance::kBoth:
      return "both";
    case HeadImportance::kNoise:
      return "noise";
    case HeadImportance::kDenoise:
      return "denoise";
    case HeadImportance::kAttribution:
      return "attribution";
  }
  return "";
}

std::vector<std::int64_t> CircuitReport::HeadsAt90() const {
  std::vector<std::int64_t> found;
  if (heads) {
    found = heads->heads;
    found.resize(static_cast<std::size_t>(heads->curve.At(0.9).size));
  } else if (edges) {
    const ResidualGraph graph(config);
    const NodeSet nodes = NodesOf(graph, edges->at[1]);
    for (const std::int64_t node : RankByImportance(attribution.nodes)) {
      if (graph.IsHead(node) && nodes[static_cast<std::size_t>(node)]) found.push_back(node);
    }
  }
  return found;
}

CircuitReport FindCircuit(const Model& model, const TaskSet& set, const FindOptions& options) {
  Check(options.ablation == Ablation::kResample || (options.importance != HeadImportance::kBoth &&
                                                    options.importance != HeadImportance::kDenoise),
        "denoising puts outputs of the clean run in: there is nothing to ablate with");
  const ItemScores scores = ScoreItems(model, set, options.ranks);
  CheckModelDoesTask(set, scores);
  CircuitReport report{.config = model.config,
                       .task = set.name,
                       .example = set.items[0].clean_text,
                       .metric = set.metric,
                       .items = static_cast<std::int64_t>(set.items.size()),
                       .skipped = set.skipped,
                       .options = options,
                       .score = Summarise(scores)};
  // An edge ends in one head's keys or values, so heads that share them are taken apart: the same
  // numbers. Every stage starts from the same runs.
  Model apart = Ungroup(model);
  PackForUse(&apart, PackedWays::kBoth);
  const TaskRuns runs(apart, set, options.batch_rows, TaskRuns::kKeepUpTo, options.ranks);
  report.attribution =
      Attribute(runs, {.steps = options.steps, .on_progress = Named(options, "attributing edges")});
  if (set.metric == TaskMetric::kLogitDifference) {
    report.direct = DirectLogitContributions(runs);
  }
  if (options.heads) report.heads = FindHeads(runs, options, report.attribution.nodes);
  if (options.edges) {
    report.edges = TraceEdges(runs, report.attribution.edges, runs.clean_metric(), options.curve,
                              Named(options, "running circuits of edges"));
  }
  report.roles = RolesOf(model, set, options.ranks);
  return report;
}

}  // namespace clearhead
