// SPDX-License-Identifier: MIT
#include "features/feature_card.h"

#include <fmt/format.h>

#include <algorithm>

#include "features/prompt_features.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

Json ToJson(const Tokenizer& tokenizer, const TokenList& list) {
  Json tokens = Json::array();
  for (const TokenScore& score : list) {
    tokens.push_back(
        {{"id", score.token}, {"token", tokenizer.TokenText(score.token)}, {"score", score.score}});
  }
  return tokens;
}

Json ToJson(const Tokenizer& tokenizer, const FeatureExample& example) {
  Json tokens = Json::array();
  for (const std::int32_t id : example.tokens) tokens.push_back(tokenizer.TokenText(id));
  return {{"group", NameOf(example.group)},
          {"peak", example.peak},
          {"tokens", std::move(tokens)},
          {"activations", example.activations}};
}

Json ShareOf(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? Json(nullptr) : Json(static_cast<double>(part) / static_cast<double>(whole));
}

Json ToJson(const LabelCheckSummary& summary) {
  return {{"features", summary.features},
          {"seen", summary.seen},
          {"share", summary.seen == 0 ? Json(nullptr) : Json(summary.share)}};
}

std::span<const std::int32_t> TokensOf(const TokenPattern& pattern) {
  return std::span(pattern.tokens).first(static_cast<std::size_t>(pattern.length));
}

}  // namespace

FeatureCard CardOf(const Model& model, const Transcoder& transcoder, const FeatureIndex* index,
                   const Tokenizer& tokenizer, FeatureId id) {
  FeatureCard card{.id = id, .tokens = {}, .writes = WrittenNorms(transcoder, id)};
  if (index != nullptr) {
    card.facts = index->Read(id);
    card.tokens = card.facts->tokens;
    card.looked_at = index->info().tokens;
  } else {
    card.tokens = TokensOfFeatures(model, transcoder, id.layer, id.feature, 1,
                                   tokenizer.vocabulary_size())[0];
  }
  return card;
}

std::string TextOf(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::string bytes;
  for (const std::int32_t id : ids) {
    const std::string_view text = tokenizer.TokenBytes(id);
    bytes += text.empty() ? tokenizer.TokenText(id) : std::string(text);
  }
  std::string shown;
  for (const char c : ToValidUtf8(bytes)) {
    if (c == '\n') {
      shown += "⏎";
    } else if (c == '\t') {
      shown += "⇥";
    } else {
      shown += c;
    }
  }
  return shown;
}

std::string LabelText(const Tokenizer& tokenizer, const FeatureLabel& label) {
  std::string text;
  for (const LabelPattern& pattern : label.patterns) {
    text += fmt::format("{}“{}”", text.empty() ? "" : " ",
                        TextOf(tokenizer, TokensOf(pattern.pattern)));
  }
  return text;
}

std::string LabelSentence(const Tokenizer& tokenizer, const FeatureLabel& label) {
  const std::string text = LabelText(tokenizer, label);
  if (label.kind == LabelKind::kNone) return "never fired on the text of the index";
  const std::string share =
      label.seen() == 0
          ? "not judged: it did not occur in the judging half of the text"
          : fmt::format(
                "it fired on {} of {} places, {:.1f} %", label.fired(), label.seen(),
                100.0 * static_cast<double>(label.fired()) / static_cast<double>(label.seen()));
  if (label.kind == LabelKind::kFires)
    return fmt::format("fires at the end of {}: {}", text, share);
  if (label.kind == LabelKind::kSometimes) {
    return fmt::format("no tokens make it fire reliably; those that do so most are {}: {}", text,
                       share);
  }
  return fmt::format("no tokens make it fire again; most often it fires on {}: {}", text, share);
}

Json ToJson(const Tokenizer& tokenizer, const FeatureLabel& label) {
  Json patterns = Json::array();
  for (const LabelPattern& pattern : label.patterns) {
    patterns.push_back({{"ids", TokensOf(pattern.pattern)},
                        {"text", TextOf(tokenizer, TokensOf(pattern.pattern))},
                        {"embedding", pattern.from_embedding},
                        {"fired", pattern.fired},
                        {"seen", pattern.seen}});
  }
  return {{"text", LabelText(tokenizer, label)},
          {"kind", NameOf(label.kind)},
          {"share", ShareOf(label.fired(), label.seen())},
          {"patterns", std::move(patterns)}};
}

Json ToJson(const Tokenizer& tokenizer, const FeatureCard& card) {
  Json json = {{"schema", "clearhead.feature.1"},
               {"feature", ToText(card.id)},
               {"layer", card.id.layer},
               {"index", card.id.feature}};
  Json writes = Json::array();
  for (std::size_t t = 0; t < card.writes.size(); ++t) {
    writes.push_back(
        {{"layer", card.id.layer + static_cast<std::int64_t>(t)}, {"norm", card.writes[t]}});
  }
  json["label"] = card.facts ? ToJson(tokenizer, card.facts->label) : Json(nullptr);
  if (card.facts) {
    const FeatureFacts& facts = *card.facts;
    json["fired"] = facts.fired;
    json["tokens"] = card.looked_at;
    json["share"] = ShareOf(facts.fired, card.looked_at);
    json["mean"] = facts.mean;
    json["largest"] = facts.largest;
    json["histogram"] = {{"width", facts.bin_width}, {"counts", facts.histogram}};
  }
  json["promoted"] = ToJson(tokenizer, card.tokens.promoted);
  json["suppressed"] = ToJson(tokenizer, card.tokens.suppressed);
  json["exciting"] = ToJson(tokenizer, card.tokens.exciting);
  json["writes"] = std::move(writes);
  if (card.facts) {
    Json examples = Json::array();
    for (const FeatureExample& example : card.facts->examples) {
      examples.push_back(ToJson(tokenizer, example));
    }
    json["examples"] = std::move(examples);
  }
  return json;
}

Json ToJson(const Tokenizer& tokenizer, const LabelCheck& check) {
  Json kinds = Json::object(), layers = Json::array(), labels = Json::array();
  for (const LabelKind kind : {LabelKind::kFires, LabelKind::kSometimes, LabelKind::kMostly}) {
    kinds[std::string(NameOf(kind))] = ToJson(check.kinds[static_cast<std::size_t>(kind)]);
  }
  for (const LabelCheckSummary& layer : check.layers) layers.push_back(ToJson(layer));
  for (const CheckedLabel& label : check.labels) {
    labels.push_back({{"feature", ToText(label.id)},
                      {"label", LabelText(tokenizer, label.label)},
                      {"kind", NameOf(label.label.kind)},
                      {"seen", label.seen},
                      {"fired", label.fired}});
  }
  return {{"schema", "clearhead.label-check.1"},
          {"tokens", check.tokens},
          {"silent", check.silent},
          {"features", check.all.features},
          {"seen", check.all.seen},
          {"share", check.all.seen == 0 ? Json(nullptr) : Json(check.all.share)},
          {"places", check.places},
          {"pooled_share", ShareOf(check.fired, check.places)},
          {"kinds", std::move(kinds)},
          {"layers", std::move(layers)},
          {"labels", std::move(labels)}};
}

}  // namespace clearhead
