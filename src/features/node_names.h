// SPDX-License-Identifier: MIT
// Names of a graph's nodes for people and files: L2F31@5, err2@5, token@3, position@3, bias,
// logit " small".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "features/attribution_graph.h"
#include "features/query_key_reasons.h"
#include "text/tokenizer.h"

namespace clearhead {

// Tokens as text: valid UTF-8, line ends and tabs as signs; without a tokenizer (null) their ids.
std::string TokenName(const Tokenizer* tokenizer, std::int32_t id);
std::string NameOf(const LogitTarget& target, const Tokenizer* tokenizer);  // logit " small"
std::string NameOf(const ActiveFeature& feature);                           // L2F31@5
std::string NodeName(const AttributionGraph& graph, const Tokenizer* tokenizer, std::int64_t node);

// What is in the stream: token "large", position 5, L0F12, err1, L2H3, skip0, bias.
std::string NameOf(const StreamTerm& term, const Tokenizer* tokenizer);

// The source or target that a word names in a graph: a node's name; L2F31, err2, token and position
// stand for those at `position`. Throws Error for other words and for features that are not active
// there, naming the position.
std::int64_t FindNode(const AttributionGraph& graph, std::string_view name, std::int64_t position);

}  // namespace clearhead
