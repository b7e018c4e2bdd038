// SPDX-License-Identifier: MIT
#include "use/knockout.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>
#include <tuple>

#include "core/error.h"
#include "use/record.h"

namespace clearhead {
namespace {

// "8", or "*" for all.
bool ReadPlace(std::string_view text, std::optional<std::int64_t>* place) {
  if (text == "*") return true;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  *place = value;
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

bool ReadHead(std::string_view text, EdgeCut* cut) {
  if (text.empty() || (text[0] != 'L' && text[0] != 'l')) return false;
  const std::size_t h = text.find_first_of("Hh");
  if (h == std::string_view::npos) return false;
  std::optional<std::int64_t> layer, head;
  const bool good =
      ReadPlace(text.substr(1, h - 1), &layer) && ReadPlace(text.substr(h + 1), &head);
  if (!good || !layer || !head) return false;
  cut->layer = *layer;
  cut->head = *head;
  return true;
}

void CheckCut(const EdgeCut& cut, const ModelConfig& config, std::int64_t length) {
  if (cut.layer >= config.layers || cut.head >= config.heads) {
    Fail("{}: there is no such head; the model has {} layers of {} heads", ToText(cut),
         config.layers, config.heads);
  }
  for (const auto& place : {cut.query, cut.key}) {
    if (place && *place >= length) {
      Fail("{}: the prompt has {} tokens, so the last position is {}", ToText(cut), length,
           length - 1);
    }
  }
  if (cut.query && cut.key && *cut.key > *cut.query) {
    Fail("{}: key {} is in the future of query {}", ToText(cut), *cut.key, *cut.query);
  }
}

// Pairs with a weight that the cuts take away, each counted once.
std::int64_t CountEdges(const Recording& run, std::span<const EdgeCut> cuts) {
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> closed;
  for (const EdgeCut& cut : cuts) {
    const float* pattern = run.values.at({Tap::kPattern, cut.layer}).values.data() +
                           cut.head * run.length * run.length;
    for (std::int64_t q = cut.query.value_or(0); q <= cut.query.value_or(run.length - 1); ++q) {
      for (std::int64_t k = cut.key.value_or(0); k <= std::min(q, cut.key.value_or(q)); ++k) {
        if (pattern[q * run.length + k] != 0.0f) closed.insert({cut.layer, cut.head, q, k});
      }
    }
  }
  return static_cast<std::int64_t>(closed.size());
}

}  // namespace

EdgeCut ParseEdgeCut(std::string_view text) {
  EdgeCut cut;
  const std::size_t colon = text.find(':'), arrow = text.find("<-");
  bool good = ReadHead(text.substr(0, colon), &cut);
  if (good && colon != std::string_view::npos) {
    good = arrow != std::string_view::npos && arrow > colon &&
           ReadPlace(text.substr(colon + 1, arrow - colon - 1), &cut.query) &&
           ReadPlace(text.substr(arrow + 2), &cut.key);
  }
  if (!good) {
    FailUsage(
        "'{}' is not a cut; write L3H5:8<-5 (query 8 reads key 5), L3H5:8<-*, L3H5:*<-5 or L3H5",
        text);
  }
  return cut;
}

std::string ToText(const EdgeCut& cut) {
  std::string head = fmt::format("L{}H{}", cut.layer, cut.head);
  if (!cut.query && !cut.key) return head;
  const auto place = [](std::optional<std::int64_t> at) {
    return at ? fmt::format("{}", *at) : std::string("*");
  };
  return fmt::format("{}:{}<-{}", head, place(cut.query), place(cut.key));
}

double Divergence(std::span<const float> p, std::span<const float> q) {
  const double log_p = LogSumExp(p), log_q = LogSumExp(q);
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double a = static_cast<double>(p[i]) - log_p, b = static_cast<double>(q[i]) - log_q;
    sum += std::exp(a) * (a - b);
  }
  return std::max(sum, 0.0);
}

PromptOutcome OutcomeOf(std::span<const float> logits, std::span<const std::int32_t> ids,
                        std::int64_t likeliest) {
  PromptOutcome outcome;
  const std::size_t V = logits.size() / ids.size();
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const std::span<const float> row = logits.subspan(t * V, V);
    outcome.likeliest.push_back(Likeliest(row, likeliest));
    if (t + 1 == ids.size()) break;
    outcome.losses.push_back(LogSumExp(row) -
                             static_cast<double>(row[static_cast<std::size_t>(ids[t + 1])]));
    outcome.loss += outcome.losses.back() / static_cast<double>(ids.size() - 1);
  }
  return outcome;
}

Knockout KnockOut(const Model& model, std::span<const std::int32_t> ids,
                  std::span<const EdgeCut> cuts, const KnockoutOptions& options) {
  const auto length = static_cast<std::int64_t>(ids.size());
  RecordOptions record{.gates = options.gates};
  std::set<std::int64_t> layers;
  for (const EdgeCut& cut : cuts) {
    CheckCut(cut, model.config, length);
    layers.insert(cut.layer);
  }
  for (const std::int64_t layer : layers) record.taps.push_back({Tap::kPattern, layer});
  const Recording before = Record(model, {ids.begin(), ids.end()}, 1, record);
  record.taps.clear();
  for (const EdgeCut& cut : cuts) {
    Intervention zero{
        .tap = {Tap::kPattern, cut.layer}, .change = Change::kZero, .heads = {cut.head}};
    if (cut.query) zero.positions = {*cut.query};
    if (cut.key) zero.keys = {*cut.key};
    record.interventions.push_back(zero);
  }
  const Recording after = Record(model, {ids.begin(), ids.end()}, 1, record);
  Knockout result{.before = OutcomeOf(before.logits.span(), ids, options.likeliest),
                  .after = OutcomeOf(after.logits.span(), ids, options.likeliest),
                  .edges = CountEdges(before, cuts)};
  const auto V = static_cast<std::size_t>(model.config.vocabulary);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    result.divergence.push_back(
        Divergence(before.logits.span().subspan(t * V, V), after.logits.span().subspan(t * V, V)));
  }
  return result;
}

}  // namespace clearhead
