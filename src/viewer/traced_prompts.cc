// SPDX-License-Identifier: MIT
#include "viewer/traced_prompts.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "features/carriers.h"
#include "features/node_names.h"

namespace clearhead {
namespace {

// The features with the largest influence among those that pruning keeps and that have a row.
std::vector<std::int64_t> ShownFeatures(const AttributionGraph& graph, const GraphScores& scores) {
  const PrunedGraph pruned = PruneGraph(graph, scores);
  std::vector<std::int64_t> shown;
  for (const std::int64_t f : graph.traced) {
    if (pruned.nodes[f] != 0) shown.push_back(f);
  }
  std::stable_sort(shown.begin(), shown.end(), [&](std::int64_t a, std::int64_t b) {
    return scores.influence[a] > scores.influence[b];
  });
  shown.resize(std::min<std::size_t>(shown.size(), kMaxShownFeatures));
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::vector<FeatureGroup> OneByOne(const AttributionGraph& graph,
                                   const std::vector<std::int64_t>& features) {
  std::vector<FeatureGroup> groups;
  for (const std::int64_t f : features) {
    const ActiveFeature& feature = graph.features[f];
    groups.push_back({.name = NameOf(feature),
                      .position = feature.position,
                      .first_layer = feature.layer,
                      .last_layer = feature.layer,
                      .features = {f}});
  }
  return groups;
}

// The number in "group 12", where it is one of `count`.
std::optional<std::int64_t> Numbered(std::string_view name, std::string_view word,
                                     std::size_t count) {
  if (!name.starts_with(word) || name.size() <= word.size() + 1 || name[word.size()] != ' ') {
    return {};
  }
  const std::string_view digits = name.substr(word.size() + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  if (number >= count) {
    Fail("there is no {} {}: the trace of this prompt has {}", word, number, count);
  }
  return static_cast<std::int64_t>(number);
}

// Nothing for nodes that are no group; these say where they are.
std::optional<TraceNode> FindGroup(const TracedPrompt& traced, std::string_view name,
                                   std::string_view others) {
  const auto g = Numbered(name, "group", traced.groups.size());
  if (!g && !name.starts_with("logit") && name.find('@') == std::string_view::npos) {
    Fail("'{}' is no node of the trace; expected 'group 3', {}", name, others);
  }
  if (!g) return {};
  return TraceNode{
      .position = traced.groups[*g].position, .nodes = traced.groups[*g].features, .logit = {}};
}

}  // namespace

TracedPrompt TracePromptOf(const ModelSet& set, std::size_t model,
                           std::span<const std::int32_t> ids,
                           const std::function<void()>& between) {
  const ViewedModel& viewed = set.models[model];
  const ViewedFeatures& features = *viewed.features;
  const FeatureIndex* index = features.index ? &*features.index : nullptr;
  TracedPrompt traced;
  traced.run = FreezePrompt(viewed.model, &features.transcoder, ids);
  between();
  std::int64_t active = 0;
  for (const FrozenLayer& layer : traced.run.layers) {
    active += static_cast<std::int64_t>(layer.active.column.size());
  }
  GraphOptions options;
  options.max_features = std::clamp<std::int64_t>(
      kMaxTraceFloats / std::max<std::int64_t>(active, 1), 1, kMaxTracedFeatures);
  options.on_progress = [&](std::int64_t, std::int64_t) { between(); };
  traced.graph = Trace(traced.run, options);
  traced.scores = ScoreGraph(traced.graph);
  between();
  traced.shown = ShownFeatures(traced.graph, traced.scores);
  std::vector<std::uint8_t> mask(traced.graph.features.size(), 0);
  std::vector<ActiveFeature> shown;
  for (const std::int64_t f : traced.shown) {
    mask[f] = 1;
    shown.push_back(traced.graph.features[f]);
  }
  traced.meanings = MeaningsOf(traced.run, index, &set.tokenizer, shown);
  between();
  traced.groups = GroupFeatures(traced.graph, ids, mask, traced.meanings, OriginsOf(traced.graph),
                                &set.tokenizer);
  traced.singles =
      SumByGroups(traced.graph, OneByOne(traced.graph, traced.shown), traced.scores.influence);
  return traced;
}

const TracedPrompt& TraceMemory::Of(const ModelSet& set, std::size_t model,
                                    std::span<const std::int32_t> ids,
                                    const std::function<void()>& between) {
  last_.resize(set.models.size());
  std::unique_ptr<TracedPrompt>& last = last_[model];
  if (!last || !std::equal(ids.begin(), ids.end(), last->run.ids.begin(), last->run.ids.end())) {
    last.reset();  // two graphs of one model need not exist at a time
    last = std::make_unique<TracedPrompt>(TracePromptOf(set, model, ids, between));
    last->graph.edges = {};  // large; `singles` has what is shown of it
  }
  return *last;
}

TraceNode FindSource(const TracedPrompt& traced, std::string_view name) {
  if (const auto group =
          FindGroup(traced, name, "'L2F31@5', 'errors@5', 'others@5', 'token@5', 'position@5'")) {
    return *group;
  }
  const AttributionGraph& graph = traced.graph;
  const std::string_view word = name.substr(0, name.find('@'));
  if (word == "errors" || word == "others") {
    // A token is at every position: it says whether this is one.
    const std::int64_t position = graph.nodes.PositionOf(
        FindNode(graph, fmt::format("token{}", name.substr(word.size())), -1));
    TraceNode result{.position = position, .nodes = {}, .logit = {}};
    for (const std::int64_t node : SourcesAt(graph, position)) {
      const NodeKind kind = graph.nodes.KindOf(node);
      const bool taken = word == "errors" ? kind == NodeKind::kError
                                          : kind == NodeKind::kFeature &&
                                                !std::binary_search(traced.shown.begin(),
                                                                    traced.shown.end(), node);
      if (taken) result.nodes.push_back(node);
    }
    return result;
  }
  const std::int64_t node = FindNode(graph, name, -1);
  return {.position = node < graph.nodes.features ? graph.features[node].position
                                                  : graph.nodes.PositionOf(node),
          .nodes = {node},
          .logit = {}};
}

TraceNode FindTarget(const TracedPrompt& traced, std::string_view name) {
  if (const auto group = FindGroup(traced, name, "'L2F31@5', 'logit 0'")) return *group;
  if (const auto i = Numbered(name, "logit", traced.graph.logits.size())) {
    const LogitTarget& logit = traced.graph.logits[*i];
    return {.position = logit.position, .nodes = {}, .logit = logit};
  }
  const std::int64_t node = FindNode(traced.graph, name, -1);
  if (node >= traced.graph.nodes.features) {
    Fail("'{}' is no target: expected a group, a feature like L2F31@5 or a logit", name);
  }
  return {.position = traced.graph.features[node].position, .nodes = {node}, .logit = {}};
}

}  // namespace clearhead
