// SPDX-License-Identifier: MIT
#include "features/graph_json.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "features/feature_id.h"
#include "features/node_names.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

constexpr const char* kFeatureType = "cross layer transcoder";
constexpr const char* kErrorType = "mlp reconstruction error";

std::string NodeId(const AttributionGraph& graph, std::span<const std::int32_t> ids,
                   std::int64_t node) {
  const GraphNodes& nodes = graph.nodes;
  switch (nodes.KindOf(node)) {
    case NodeKind::kFeature: {
      const ActiveFeature& f = graph.features[node];
      return fmt::format("{}_{}_{}", f.layer, f.feature, f.position);
    }
    case NodeKind::kError:
      return fmt::format("{}_-1_{}", nodes.LayerOfError(node), nodes.PositionOf(node));
    case NodeKind::kToken:
      return fmt::format("E_{}_{}", ids[nodes.PositionOf(node)], nodes.PositionOf(node));
    case NodeKind::kPosition:
      return fmt::format("P_{}_{}", nodes.PositionOf(node), nodes.PositionOf(node));
    case NodeKind::kBias:
      return "B_0_0";
    case NodeKind::kLogit:
      break;
  }
  const LogitTarget& logit = graph.logits[node - nodes.columns()];
  return fmt::format("{}_{}_{}", nodes.layers + 1, logit.token, logit.position);
}

Json NodeJson(const AttributionGraph& graph, const GraphScores& scores,
              std::span<const std::int32_t> ids, const Tokenizer* tokenizer,
              const FeatureMeaning* meaning, std::int64_t node) {
  const GraphNodes& nodes = graph.nodes;
  Json json = {{"node_id", NodeId(graph, ids, node)},
               {"feature", nullptr},
               {"layer", "E"},
               {"ctx_idx", 0},
               {"feature_type", "embedding"},
               {"token_prob", 0.0},
               {"is_target_logit", false},
               {"run_idx", 0},
               {"reverse_ctx_idx", 0},
               {"jsNodeId", ""},
               {"clerp", ""},
               {"influence", scores.cumulative[node]},
               {"activation", nullptr}};
  switch (nodes.KindOf(node)) {
    case NodeKind::kFeature: {
      const ActiveFeature& f = graph.features[node];
      json["feature"] = PairedNumber({f.layer, f.feature});
      json["layer"] = std::to_string(f.layer);
      json["ctx_idx"] = f.position;
      json["feature_type"] = kFeatureType;
      json["jsNodeId"] = fmt::format("{}_{}-0", f.layer, f.feature);
      json["activation"] = f.activation;
      if (meaning != nullptr) {
        json["clerp"] = !meaning->label.empty()
                            ? meaning->label
                            : fmt::format("say \"{}\"", TokenName(tokenizer, meaning->promotes));
      }
      break;
    }
    case NodeKind::kError:
      json["feature"] = -1;
      json["layer"] = std::to_string(nodes.LayerOfError(node));
      json["ctx_idx"] = nodes.PositionOf(node);
      json["feature_type"] = kErrorType;
      json["jsNodeId"] = fmt::format("{}_-1-{}", nodes.LayerOfError(node), nodes.PositionOf(node));
      break;
    case NodeKind::kToken: {
      const std::int64_t p = nodes.PositionOf(node);
      json["feature"] = p;
      json["ctx_idx"] = p;
      json["jsNodeId"] = fmt::format("E_{}-{}", ids[p], p);
      json["clerp"] = fmt::format("Emb: \"{}\"", TokenName(tokenizer, ids[p]));
      break;
    }
    case NodeKind::kPosition: {
      const std::int64_t p = nodes.PositionOf(node);
      json["feature"] = nodes.length + p;
      json["ctx_idx"] = p;
      json["jsNodeId"] = fmt::format("P_{}-{}", p, p);
      json["clerp"] = fmt::format("Position {}", p);
      break;
    }
    case NodeKind::kBias:
      json["feature"] = 2 * nodes.length;
      json["jsNodeId"] = "B_0-0";
      json["clerp"] = "All biases";
      break;
    case NodeKind::kLogit: {
      const LogitTarget& logit = graph.logits[node - nodes.columns()];
      json["feature"] = logit.token;
      json["layer"] = std::to_string(nodes.layers + 1);
      json["ctx_idx"] = logit.position;
      json["feature_type"] = "logit";
      json["token_prob"] = logit.probability;
      json["is_target_logit"] = node == nodes.columns();
      json["jsNodeId"] = fmt::format("L_{}-{}", logit.token, logit.position);
      json["clerp"] = logit.against
                          ? fmt::format("Output \"{}\" - \"{}\"", TokenName(tokenizer, logit.token),
                                        TokenName(tokenizer, *logit.against))
                          : fmt::format("Output \"{}\" (p={:.3f})",
                                        TokenName(tokenizer, logit.token), logit.probability);
      json["influence"] = nullptr;
    }
  }
  return json;
}

std::span<const std::byte> BytesOf(const auto& values) {
  return std::as_bytes(std::span(values.data(), values.size()));
}

// What both files have; the vectors live as long as this.
struct CommonTensors {
  CommonTensors(const AttributionGraph& graph, const GraphScores& scores)
      : influence(scores.influence.begin(), scores.influence.end()),
        cumulative(scores.cumulative.begin(), scores.cumulative.end()) {
    for (const ActiveFeature& f : graph.features) {
      features.insert(features.end(), {f.layer, f.position, f.feature});
      activations.push_back(f.activation);
    }
  }

  void AddTo(std::vector<TensorToWrite>& tensors, const PrunedGraph& pruned) const {
    const auto n = static_cast<std::int64_t>(activations.size());
    const auto nodes = static_cast<std::int64_t>(influence.size());
    tensors.push_back(
        {.name = "features", .dtype = DType::kI32, .shape = {n, 3}, .raw = BytesOf(features)});
    tensors.push_back({.name = "activations", .shape = {n}, .data = activations.data()});
    tensors.push_back({.name = "influence", .shape = {nodes}, .data = influence.data()});
    tensors.push_back({.name = "cumulative", .shape = {nodes}, .data = cumulative.data()});
    tensors.push_back(
        {.name = "node_mask", .dtype = DType::kU8, .shape = {nodes}, .raw = BytesOf(pruned.nodes)});
  }

  std::vector<std::int32_t> features;
  std::vector<float> activations, influence, cumulative;
};

std::vector<std::string> NamesOf(const AttributionGraph& graph, const Tokenizer* tokenizer) {
  std::vector<std::string> names;
  for (std::int64_t node = 0; node < graph.nodes.count(); ++node) {
    names.push_back(NodeName(graph, tokenizer, node));
  }
  return names;
}

double SumOfRow(const AttributionGraph& graph, std::int64_t row) {
  return std::accumulate(graph.Row(row), graph.Row(row) + graph.nodes.columns(), 0.0);
}

}  // namespace

SumCheck CheckSums(const AttributionGraph& graph) {
  SumCheck check;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    check.largest_difference =
        std::max(check.largest_difference, std::abs(SumOfRow(graph, r) - graph.targets[r]));
    check.largest_target = std::max(check.largest_target, std::abs(graph.targets[r]));
  }
  return check;
}

Json ScoresJson(const GraphScores& scores) {
  return {{"replacement", scores.replacement},
          {"replacement_tokens_only", scores.replacement_tokens_only},
          {"completeness", scores.completeness},
          {"untraced", scores.untraced}};
}

Json GraphJson(const AttributionGraph& graph, const GraphScores& scores, const PrunedGraph& pruned,
               const PruneOptions& options, const GraphCaption& caption,
               std::span<const std::int32_t> ids, const Tokenizer* tokenizer,
               std::span<const FeatureMeaning> meanings, std::span<const FeatureGroup> groups) {
  Json tokens = Json::array();
  for (const std::int32_t id : ids) tokens.push_back(TokenName(tokenizer, id));
  Json metadata = {
      {"slug", caption.slug},
      {"scan", caption.model},
      {"transcoder_list", Json::array({caption.features})},
      {"prompt_tokens", std::move(tokens)},
      {"prompt", caption.prompt},
      {"node_threshold", options.nodes},
      {"schema_version", 1},
      {"info", {{"generator", {{"name", "clearhead"}, {"version", caption.version}}}}},
      {"generation_settings",
       {{"max_feature_nodes", graph.traced.size()}, {"logits", graph.logits.size()}}},
      {"pruning_settings", {{"node_threshold", options.nodes}, {"edge_threshold", options.edges}}},
      {"scores", ScoresJson(scores)}};

  Json nodes = Json::array(), links = Json::array();
  std::size_t feature = 0;
  for (std::int64_t node = 0; node < graph.nodes.count(); ++node) {
    if (!pruned.nodes[node]) continue;
    const bool has_meaning = node < graph.nodes.features && !meanings.empty();
    nodes.push_back(NodeJson(graph, scores, ids, tokenizer,
                             has_meaning ? &meanings[feature++] : nullptr, node));
  }
  std::vector<std::string> names;
  for (std::int64_t node = 0; node < graph.nodes.count(); ++node) {
    names.push_back(pruned.nodes[node] ? NodeId(graph, ids, node) : "");
  }
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    for (std::int64_t j = 0; j < graph.nodes.columns(); ++j) {
      if (!pruned.edges[r * graph.nodes.columns() + j]) continue;
      links.push_back({{"source", names[j]},
                       {"target", names[graph.NodeOfRow(r)]},
                       {"weight", graph.Row(r)[j]}});
    }
  }
  Json supernodes = Json::array(), pinned = Json::array();
  for (const FeatureGroup& group : groups) {
    if (group.features.size() < 2) continue;
    Json list = Json::array({group.name});
    for (const std::int64_t f : group.features) {
      if (!pruned.nodes[f]) continue;
      list.push_back(names[f]);
      pinned.push_back(names[f]);
    }
    if (list.size() > 2) supernodes.push_back(std::move(list));
  }
  return {{"metadata", std::move(metadata)},
          {"qParams",
           {{"pinnedIds", std::move(pinned)},
            {"supernodes", std::move(supernodes)},
            {"linkType", "both"},
            {"clickedId", ""},
            {"sg_pos", ""}}},
          {"nodes", std::move(nodes)},
          {"links", std::move(links)}};
}

void AddGraphMetadata(const fs::path& folder, const Json& graph) {
  const fs::path path = folder / "graph-metadata.json";
  Json list = Json::array();
  if (fs::exists(path)) {
    const Json before = ReadJsonFile(path);
    if (!before.is_object() || !before.contains("graphs") || !before["graphs"].is_array()) {
      Fail("{}: has no list 'graphs'; move it away", path.string());
    }
    for (const Json& entry : before["graphs"]) {
      if (!entry.is_object() || entry.value("slug", Json()) != graph["metadata"]["slug"]) {
        list.push_back(entry);
      }
    }
  }
  list.push_back(graph["metadata"]);
  WriteJsonFile(path, {{"graphs", std::move(list)}});
}

void WriteGraphMatrix(const fs::path& path, const AttributionGraph& graph,
                      const GraphScores& scores, const PrunedGraph& pruned,
                      std::span<const std::int32_t> ids, const Tokenizer* tokenizer) {
  const std::int64_t rows = graph.rows(), columns = graph.nodes.columns();
  const CommonTensors common(graph, scores);
  std::vector<float> sums;
  std::vector<std::int32_t> row_nodes;
  for (std::int64_t r = 0; r < rows; ++r) {
    sums.push_back(static_cast<float>(SumOfRow(graph, r)));
    row_nodes.push_back(static_cast<std::int32_t>(graph.NodeOfRow(r)));
  }
  const std::vector<float> measured(graph.targets.begin(), graph.targets.end());
  std::vector<TensorToWrite> tensors = {
      {.name = "edges", .shape = {rows, columns}, .data = graph.edges.data()},
      {.name = "edge_scores", .shape = {rows, columns}, .data = pruned.edge_scores.data()},
      {.name = "edge_mask",
       .dtype = DType::kU8,
       .shape = {rows, columns},
       .raw = BytesOf(pruned.edges)},
      {.name = "targets", .shape = {rows}, .data = sums.data()},
      {.name = "measured", .shape = {rows}, .data = measured.data()},
      {.name = "rows", .dtype = DType::kI32, .shape = {rows}, .raw = BytesOf(row_nodes)}};
  common.AddTo(tensors, pruned);
  WriteSafetensors(path, tensors);

  const std::vector<std::string> names = NamesOf(graph, tokenizer);
  Json row_names = Json::array(), logits = Json::array();
  for (const std::int32_t node : row_nodes) row_names.push_back(names[node]);
  for (const LogitTarget& logit : graph.logits) {
    logits.push_back({{"token", logit.token},
                      {"name", NameOf(logit, tokenizer)},
                      {"position", logit.position},
                      {"probability", logit.probability},
                      {"value", logit.value}});
  }
  const Json document = {
      {"schema", "clearhead.graph-matrix.1"},
      {"ids", ids},
      {"rows", std::move(row_names)},
      {"columns", std::vector<std::string>(names.begin(), names.begin() + columns)},
      {"nodes", names},
      {"logits", std::move(logits)},
      {"scores", ScoresJson(scores)},
      {"pruning",
       {{"node_cut", pruned.node_cut},
        {"edge_cut", pruned.edge_cut},
        {"nodes_kept", pruned.nodes_kept},
        {"edges_kept", pruned.edges_kept}}}};
  fs::path beside = path;
  WriteJsonFile(beside.replace_extension(".json"), document);
}

void WriteSparseGraph(const fs::path& path, const AttributionGraph& graph,
                      const GraphScores& scores, const PrunedGraph& pruned) {
  const CommonTensors common(graph, scores);
  std::vector<std::int32_t> source, target;
  std::vector<float> weight;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    for (std::int64_t j = 0; j < graph.nodes.columns(); ++j) {
      if (!pruned.edges[r * graph.nodes.columns() + j]) continue;
      source.push_back(static_cast<std::int32_t>(j));
      target.push_back(static_cast<std::int32_t>(graph.NodeOfRow(r)));
      weight.push_back(graph.Row(r)[j]);
    }
  }
  const auto n = static_cast<std::int64_t>(weight.size());
  std::vector<TensorToWrite> tensors = {
      {.name = "source", .dtype = DType::kI32, .shape = {n}, .raw = BytesOf(source)},
      {.name = "target", .dtype = DType::kI32, .shape = {n}, .raw = BytesOf(target)},
      {.name = "weight", .shape = {n}, .data = weight.data()}};
  common.AddTo(tensors, pruned);
  WriteSafetensors(path, tensors);
}

}  // namespace clearhead
