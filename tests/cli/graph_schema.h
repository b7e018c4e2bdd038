// SPDX-License-Identifier: MIT
// What readers of attribution graphs hold a graph.json to: the types and required fields of
// Neuronpedia's published schema, and circuit-tracer's ids, which its page takes apart.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/json.h"

namespace clearhead {

struct SchemaField {
  const char* name;
  const char* types;  // of: string, integer, number, null, object, strings, array
  bool required;
};

inline bool HasType(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type != "strings" || !value.is_array()) return false;
  for (const Json& item : value) {
    if (!item.is_string()) return false;
  }
  return true;
}

inline void ExpectFields(const Json& object, std::initializer_list<SchemaField> fields) {
  ASSERT_TRUE(object.is_object());
  for (const SchemaField& field : fields) {
    if (!object.contains(field.name)) {
      EXPECT_FALSE(field.required) << "no " << field.name;
      continue;
    }
    std::istringstream types(field.types);
    bool any = false;
    for (std::string type; types >> type;) any = any || HasType(object[field.name], type);
    EXPECT_TRUE(any) << field.name << " is " << object[field.name].dump() << ", not "
                     << field.types;
  }
}

inline std::vector<std::string> PartsOf(const std::string& id) {
  std::vector<std::string> parts;
  std::istringstream stream(id);
  for (std::string part; std::getline(stream, part, '_');) parts.push_back(part);
  return parts;
}

inline void ExpectNode(const Json& node, std::int64_t layers, std::int64_t length) {
  ExpectFields(node, {{"node_id", "string", true},
                      {"feature", "integer null", true},
                      {"layer", "string integer", true},
                      {"ctx_idx", "integer", true},
                      {"feature_type", "string", true},
                      {"jsNodeId", "string", true},
                      {"clerp", "string", true},
                      {"influence", "number null", false},
                      {"activation", "number null", false}});
  const std::string type = node["feature_type"].get<std::string>();
  const std::vector<std::string> parts = PartsOf(node["node_id"].get<std::string>());
  ASSERT_EQ(parts.size(), 3u) << node["node_id"];
  const auto position = node["ctx_idx"].get<std::int64_t>();
  EXPECT_TRUE(0 <= position && position < length);
  EXPECT_EQ(parts[2], std::to_string(position));
  const std::string layer = node["layer"].get<std::string>();
  if (type == "cross layer transcoder") {
    EXPECT_EQ(parts[0], layer);
    EXPECT_TRUE(0 <= std::stoll(layer) && std::stoll(layer) < layers);
    const std::int64_t l = std::stoll(parts[0]), f = std::stoll(parts[1]);
    EXPECT_EQ(node["feature"].get<std::int64_t>(), (l + f) * (l + f + 1) / 2 + f);
    EXPECT_TRUE(node["activation"].is_number());
  } else if (type == "mlp reconstruction error") {
    EXPECT_EQ(parts[0], layer);
    EXPECT_EQ(node["feature"], -1);
  } else if (type == "embedding") {
    EXPECT_EQ(layer, "E");
  } else if (type == "logit") {
    EXPECT_EQ(parts[0], std::to_string(layers + 1));
    EXPECT_EQ(layer, parts[0]);
    const double probability = node["token_prob"].get<double>();
    EXPECT_TRUE(0.0 <= probability && probability <= 1.0);
    EXPECT_TRUE(node["is_target_logit"].is_boolean());
  } else {
    ADD_FAILURE() << "a node of type " << type;
  }
  if (node["influence"].is_number()) {  // cumulative: a share of all
    EXPECT_GE(node["influence"].get<double>(), 0.0);
    EXPECT_LE(node["influence"].get<double>(), 1.0 + 1e-6);
  }
}

inline void ExpectPublishedSchema(const Json& graph, std::int64_t layers) {
  ExpectFields(graph, {{"metadata", "object", true},
                       {"qParams", "object", true},
                       {"nodes", "array", true},
                       {"links", "array", true}});
  if (testing::Test::HasFailure()) return;
  const Json& metadata = graph["metadata"];
  ExpectFields(metadata, {{"slug", "string", true},
                          {"scan", "string", true},
                          {"prompt_tokens", "strings", true},
                          {"prompt", "string", true},
                          {"transcoder_list", "strings", true},
                          {"schema_version", "integer", true},
                          {"node_threshold", "number", false},
                          {"info", "object", false},
                          {"generation_settings", "object", false},
                          {"pruning_settings", "object", false},
                          {"feature_details", "object", false}});
  ExpectFields(metadata["info"]["generator"],
               {{"name", "string", false}, {"version", "string", false}, {"url", "string", false}});
  ExpectFields(metadata["generation_settings"], {{"max_feature_nodes", "integer", false}});
  ExpectFields(metadata["pruning_settings"],
               {{"node_threshold", "number", false}, {"edge_threshold", "number", false}});
  const Json& parameters = graph["qParams"];
  ExpectFields(parameters, {{"pinnedIds", "strings", false},
                            {"supernodes", "array", false},
                            {"linkType", "string", false},
                            {"clickedId", "string", false},
                            {"sg_pos", "string", false}});
  const auto length = static_cast<std::int64_t>(metadata["prompt_tokens"].size());
  std::set<std::string> ids;
  for (const Json& node : graph["nodes"]) {
    ExpectNode(node, layers, length);
    EXPECT_TRUE(ids.insert(node["node_id"].get<std::string>()).second) << node["node_id"];
  }
  for (const Json& link : graph["links"]) {
    ExpectFields(
        link, {{"source", "string", true}, {"target", "string", true}, {"weight", "number", true}});
    EXPECT_TRUE(ids.contains(link["source"].get<std::string>()));
    EXPECT_TRUE(ids.contains(link["target"].get<std::string>()));
  }
  for (const Json& supernode : parameters["supernodes"]) {  // [label, id, id, ...]
    ASSERT_TRUE(HasType(supernode, "strings") && supernode.size() >= 2);
    for (std::size_t i = 1; i < supernode.size(); ++i) {
      EXPECT_TRUE(ids.contains(supernode[i].get<std::string>())) << supernode[i];
    }
  }
  for (const Json& id : parameters["pinnedIds"]) EXPECT_TRUE(ids.contains(id.get<std::string>()));
}

}  // namespace clearhead
