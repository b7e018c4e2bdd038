// SPDX-License-Identifier: MIT
#include "features/node_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "features/feature_card.h"
#include "features/feature_id.h"

namespace clearhead {
namespace {

std::optional<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

}  // namespace

std::string TokenName(const Tokenizer* tokenizer, std::int32_t id) {
  if (tokenizer == nullptr || id >= tokenizer->vocabulary_size()) return fmt::format("{}", id);
  return TextOf(*tokenizer, {&id, 1});
}

std::string NameOf(const LogitTarget& target, const Tokenizer* tokenizer) {
  const auto word = [&](std::int32_t id) {
    const std::string name = TokenName(tokenizer, id);
    return tokenizer == nullptr ? name : fmt::format("\"{}\"", name);
  };
  if (!target.against) return "logit " + word(target.token);
  return fmt::format("logit {} - {}", word(target.token), word(*target.against));
}

std::string NameOf(const ActiveFeature& feature) {
  return fmt::format("L{}F{}@{}", feature.layer, feature.feature, feature.position);
}

std::string NodeName(const AttributionGraph& graph, const Tokenizer* tokenizer, std::int64_t node) {
  const GraphNodes& nodes = graph.nodes;
  switch (nodes.KindOf(node)) {
    case NodeKind::kFeature:
      return NameOf(graph.features[node]);
    case NodeKind::kError:
      return fmt::format("err{}@{}", nodes.LayerOfError(node), nodes.PositionOf(node));
    case NodeKind::kToken:
      return fmt::format("token@{}", nodes.PositionOf(node));
    case NodeKind::kPosition:
      return fmt::format("position@{}", nodes.PositionOf(node));
    case NodeKind::kBias:
      return "bias";
    case NodeKind::kLogit:
      break;
  }
  return NameOf(graph.logits[node - nodes.columns()], tokenizer);
}

std::string NameOf(const StreamTerm& term, const Tokenizer* tokenizer) {
  switch (term.kind) {
    case StreamTermKind::kToken:
      return fmt::format("token \"{}\"",
                         TokenName(tokenizer, static_cast<std::int32_t>(term.index)));
    case StreamTermKind::kPosition:
      return fmt::format("position {}", term.index);
    case StreamTermKind::kFeature:
      return fmt::format("L{}F{}", term.layer, term.index);
    case StreamTermKind::kError:
      return fmt::format("err{}", term.layer);
    case StreamTermKind::kHead:
      return fmt::format("L{}H{}", term.layer, term.index);
    case StreamTermKind::kSkip:
      return fmt::format("skip{}", term.layer);
    case StreamTermKind::kBias:
      break;
  }
  return "bias";
}

std::int64_t FindNode(const AttributionGraph& graph, std::string_view name, std::int64_t position) {
  const GraphNodes& nodes = graph.nodes;
  std::string_view word = name;
  if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
    word = name.substr(0, at);
    const std::optional<std::int64_t> given = ParseNumber(name.substr(at + 1));
    if (!given) Fail("'{}': expected a position after @", name);
    position = *given;
  }
  if (position < 0 || position >= nodes.length) {
    Fail("'{}': position {} is outside the prompt of {} tokens (0 to {})", name, position,
         nodes.length, nodes.length - 1);
  }
  if (word == "token") return nodes.Token(position);
  if (word == "position" && nodes.positions) return nodes.Position(position);
  if (word.starts_with("err")) {
    const std::optional<std::int64_t> layer = ParseNumber(word.substr(3));
    if (layer && *layer >= 0 && *layer < nodes.layers) return nodes.Error(*layer, position);
  }
  if (const std::optional<FeatureId> id = ParseFeature(word); id) {
    const auto found =
        std::find_if(graph.features.begin(), graph.features.end(), [&](const ActiveFeature& f) {
          return f.layer == id->layer && f.feature == id->feature && f.position == position;
        });
    if (found != graph.features.end()) return found - graph.features.begin();
    std::string elsewhere;
    for (const ActiveFeature& f : graph.features) {
      if (f.layer != id->layer || f.feature != id->feature) continue;
      elsewhere += fmt::format("{}{}", elsewhere.empty() ? "" : ", ", f.position);
    }
    Fail("{} is not active at position {}{}", ToText(*id), position,
         elsewhere.empty() ? "; it is active nowhere in this prompt"
                           : fmt::format("; it is at {}", elsewhere));
  }
  Fail("'{}' names no node: expected a feature like L2F31, err2, token{} or a group's name", name,
       nodes.positions ? ", position" : "");
}

}  // namespace clearhead
