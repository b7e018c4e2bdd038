// SPDX-License-Identifier: MIT
#include "features/feature_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.h"
#include "features/node_names.h"

namespace clearhead {
namespace {

// What a feature means at its position, comparable.
struct Meaning {
  enum Kind { kToken, kSays, kFrom } kind = kToken;
  std::int32_t token = 0;     // kSays
  std::int64_t position = 0;  // kFrom: where it comes from
  auto operator<=>(const Meaning&) const = default;
};

std::int64_t StrongestOrigin(std::span<const float> origins, std::int64_t T, std::int64_t feature) {
  const auto row = origins.subspan(feature * T, T);
  return std::max_element(row.begin(), row.end()) - row.begin();
}

void SetSpan(const AttributionGraph& graph, FeatureGroup& group) {
  std::sort(group.features.begin(), group.features.end());
  group.position = graph.features[group.features.front()].position;
  group.first_layer = graph.features[group.features.front()].layer;
  group.last_layer = graph.features[group.features.back()].layer;
}

void SortGroups(std::vector<FeatureGroup>& groups) {
  std::sort(groups.begin(), groups.end(), [](const FeatureGroup& a, const FeatureGroup& b) {
    return std::tie(a.position, a.first_layer, a.name, a.features) <
           std::tie(b.position, b.first_layer, b.name, b.features);
  });
}

// Within a phrase: without the space that most tokens start with.
std::string BareName(const Tokenizer* tokenizer, std::int32_t id) {
  const std::string name = TokenName(tokenizer, id);
  const std::size_t first = name.find_first_not_of(' ');
  return first == std::string::npos ? name : name.substr(first);
}

}  // namespace

std::vector<FeatureGroup> GroupFeatures(const AttributionGraph& graph,
                                        std::span<const std::int32_t> ids,
                                        std::span<const std::uint8_t> kept,
                                        std::span<const FeatureMeaning> meanings,
                                        std::span<const float> origins, const Tokenizer* tokenizer,
                                        const GroupOptions& options) {
  std::vector<std::int64_t> members;
  for (std::int64_t f = 0; f < graph.nodes.features; ++f) {
    if (kept[f]) members.push_back(f);
  }
  Check(members.size() == meanings.size(), "a meaning for each feature that is kept");
  // How many features of a position clearly promote a token; a logit counts as one more.
  std::map<std::pair<std::int64_t, std::int32_t>, int> promoters;
  const auto promotes = [&](std::size_t i) {
    return meanings[i].promotion >= options.clear_promotion;
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (promotes(i)) ++promoters[{graph.features[members[i]].position, meanings[i].promotes}];
  }
  for (const LogitTarget& logit : graph.logits) {
    for (std::int64_t p = 0; p < graph.nodes.length; ++p) ++promoters[{p, logit.token}];
  }
  // By position and meaning, ascending by layer.
  std::map<std::pair<std::int64_t, Meaning>, std::vector<std::int64_t>> alike;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int64_t position = graph.features[members[i]].position;
    const std::int64_t origin = StrongestOrigin(origins, graph.nodes.length, members[i]);
    Meaning meaning;
    if (meanings[i].matches || origin == position) {
      meaning.kind = Meaning::kToken;
    } else if (promotes(i) && promoters[{position, meanings[i].promotes}] > 1) {
      meaning = {Meaning::kSays, meanings[i].promotes, 0};
    } else {
      meaning = {Meaning::kFrom, 0, origin};
    }
    alike[{position, meaning}].push_back(members[i]);
  }
  std::vector<FeatureGroup> groups;
  for (const auto& [key, features] : alike) {
    const auto& [position, meaning] = key;
    const std::string name = meaning.kind == Meaning::kToken ? TokenName(tokenizer, ids[position])
                             : meaning.kind == Meaning::kSays
                                 ? "say " + BareName(tokenizer, meaning.token)
                                 : "from " + BareName(tokenizer, ids[meaning.position]);
    for (std::size_t i = 0; i < features.size(); ++i) {
      const bool adjacent =
          i > 0 && graph.features[features[i]].layer <= graph.features[features[i - 1]].layer + 1;
      if (!adjacent) groups.push_back({.name = name, .features = {}});
      groups.back().features.push_back(features[i]);
    }
  }
  for (FeatureGroup& group : groups) SetSpan(graph, group);
  SortGroups(groups);
  return groups;
}

Json ToJson(const AttributionGraph& graph, std::span<const FeatureGroup> groups) {
  Json list = Json::array();
  for (const FeatureGroup& group : groups) {
    Json features = Json::array();
    for (const std::int64_t f : group.features) {
      features.push_back(fmt::format("L{}F{}", graph.features[f].layer, graph.features[f].feature));
    }
    list.push_back(
        {{"name", group.name}, {"position", group.position}, {"features", std::move(features)}});
  }
  return {{"groups", std::move(list)}};
}

std::vector<FeatureGroup> ReadGroups(const Json& json, std::string_view source,
                                     const AttributionGraph& graph) {
  const auto refuse = [&](const std::string& what) {
    Fail(
        "{}: {}; expected {{\"groups\": [{{\"name\": \"large\", \"position\": 5, \"features\": "
        "[\"L0F12\"]}}]}}",
        source, what);
  };
  if (!json.is_object() || !json.contains("groups") || !json["groups"].is_array()) {
    refuse("no list of groups");
  }
  std::vector<FeatureGroup> groups;
  std::vector<std::string> taken(graph.features.size());
  for (const Json& item : json["groups"]) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
        !item.contains("position") || !item["position"].is_number_integer() ||
        !item.contains("features") || !item["features"].is_array() || item["features"].empty()) {
      refuse("a group lacks name, position or features");
    }
    FeatureGroup& group = groups.emplace_back();
    group.name = item["name"].get<std::string>();
    for (const Json& name : item["features"]) {
      if (!name.is_string()) refuse("a feature's name is no text");
      const std::int64_t node =
          FindNode(graph, name.get<std::string>(), item["position"].get<std::int64_t>());
      if (node >= graph.nodes.features) refuse(ToText(name, -1) + " is no feature");
      if (!taken[node].empty()) {
        Fail("{}: {} is in two groups, '{}' and '{}'", source, NameOf(graph.features[node]),
             taken[node], group.name);
      }
      taken[node] = group.name;
      group.features.push_back(node);
    }
    SetSpan(graph, group);
  }
  SortGroups(groups);
  return groups;
}

GroupedGraph SumByGroups(const AttributionGraph& graph, std::vector<FeatureGroup> groups,
                         std::span<const double> influence) {
  GroupedGraph grouped;
  grouped.groups = std::move(groups);
  grouped.length = graph.nodes.length;
  grouped.positions = graph.nodes.positions;
  grouped.logits = graph.logits;
  // Where each column's edges go, and each row's.
  std::vector<std::int64_t> to(static_cast<std::size_t>(graph.nodes.columns()));
  for (std::int64_t node = 0; node < graph.nodes.columns(); ++node) {
    switch (graph.nodes.KindOf(node)) {
      case NodeKind::kFeature:
        to[node] = grouped.Others(graph.features[node].position);
        break;
      case NodeKind::kError:
        to[node] = grouped.Errors(graph.nodes.PositionOf(node));
        break;
      case NodeKind::kToken:
        to[node] = grouped.Token(graph.nodes.PositionOf(node));
        break;
      case NodeKind::kPosition:
        to[node] = grouped.Position(graph.nodes.PositionOf(node));
        break;
      case NodeKind::kBias:
      case NodeKind::kLogit:
        to[node] = grouped.Bias();
    }
  }
  for (std::int64_t g = 0; g < grouped.count(); ++g) {
    for (const std::int64_t f : grouped.groups[g].features) to[f] = g;
  }
  grouped.targets.assign(grouped.groups.size() + graph.logits.size(), 0.0);
  grouped.influence.assign(static_cast<std::size_t>(grouped.sources()), 0.0);
  for (std::int64_t node = 0; node < graph.nodes.columns(); ++node) {
    grouped.influence[to[node]] += influence[node];
  }
  std::vector<double> sums(static_cast<std::size_t>(grouped.rows() * grouped.sources()), 0.0);
  std::vector<bool> summed(graph.features.size(), false);
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    const std::int64_t node = graph.NodeOfRow(r);
    std::int64_t row = grouped.count() + node - graph.nodes.columns();
    if (node < graph.nodes.features) {
      if (to[node] >= grouped.count()) continue;
      row = to[node];
      summed[node] = true;
    }
    grouped.targets[row] += graph.targets[r];
    for (std::int64_t j = 0; j < graph.nodes.columns(); ++j) {
      sums[row * grouped.sources() + to[j]] += graph.Row(r)[j];
    }
  }
  for (const FeatureGroup& group : grouped.groups) {
    for (const std::int64_t f : group.features) {
      if (!summed[f]) {
        Fail(
            "{} of the group '{}' has no row in the graph: trace with more features "
            "(--max-features)",
            NameOf(graph.features[f]), group.name);
      }
    }
  }
  grouped.edges = Buffer<float>(static_cast<std::int64_t>(sums.size()));
  std::copy(sums.begin(), sums.end(), grouped.edges.begin());
  return grouped;
}

std::string LayerSpan(const FeatureGroup& group) {
  return group.first_layer == group.last_layer
             ? fmt::format("layer {}", group.first_layer)
             : fmt::format("layers {}-{}", group.first_layer, group.last_layer);
}

std::string NodeName(const GroupedGraph& graph, const Tokenizer* tokenizer, std::int64_t node) {
  if (node < graph.count()) {
    return fmt::format("{}@{}", graph.groups[node].name, graph.groups[node].position);
  }
  if (node < graph.Errors(0)) return fmt::format("other features@{}", node - graph.Others(0));
  if (node < graph.Token(0)) return fmt::format("errors@{}", node - graph.Errors(0));
  if (node < graph.Position(0)) return fmt::format("token@{}", node - graph.Token(0));
  if (node < graph.Bias()) return fmt::format("position@{}", node - graph.Position(0));
  if (node == graph.Bias()) return "bias";
  return NameOf(graph.logits[node - graph.sources()], tokenizer);
}

}  // namespace clearhead
