// SPDX-License-Identifier: MIT
#include "cli/carriers_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "features/graph_json.h"
#include "features/node_names.h"

namespace clearhead::cli {
namespace {

std::string HeadName(const CarrierHead& head) {
  return fmt::format("L{}H{}", head.layer, head.head);
}

Json PairsJson(const QueryKeyReasons& reasons, std::span<const TermPair> pairs,
               const Tokenizer* words) {
  Json list = Json::array();
  for (const TermPair& pair : pairs) {
    list.push_back({{"query", NameOf(reasons.query_terms[pair.query], words)},
                    {"key", NameOf(reasons.key_terms[pair.key], words)},
                    {"value", pair.value}});
  }
  return list;
}

Json SumsJson(std::span<const StreamTerm> terms, const std::vector<double>& sums,
              std::int64_t count, const Tokenizer* words) {
  Json list = Json::array();
  for (const std::int64_t i : RankByMagnitude(sums)) {
    if (static_cast<std::int64_t>(list.size()) == count) break;
    list.push_back({{"term", NameOf(terms[i], words)}, {"value", sums[i]}});
  }
  return list;
}

Json HeadJson(const CarrierHead& head, std::int64_t pairs, const Tokenizer* words) {
  const QueryKeyReasons& reasons = head.reasons;
  Json json = {{"head", HeadName(head)},
               {"layer", head.layer},
               {"index", head.head},
               {"value", head.value},
               {"share", head.share},
               {"weight", head.weight},
               {"through", head.through},
               {"score", reasons.score},
               {"pairs", PairsJson(reasons, StrongestPairs(reasons, pairs), words)},
               {"query_terms", SumsJson(reasons.query_terms, reasons.QuerySums(), pairs, words)},
               {"key_terms", SumsJson(reasons.key_terms, reasons.KeySums(), pairs, words)}};
  if (head.gate) {
    const auto shown = std::min<std::size_t>(head.gate->turning.size(), 3);
    json["gate"] = {
        {"margin", head.gate->margin},
        {"pairs_that_close_it", head.gate->turning.size()},
        {"closing", PairsJson(reasons, std::span(head.gate->turning).first(shown), words)}};
  }
  return json;
}

Json CountJson(const CarrierCount& count) {
  Json json = {{"name", count.name}, {"heads", count.heads}, {"contributing", count.contributing}};
  if (!count.from.empty()) json["from"] = count.from;
  if (!count.to.empty()) json["to"] = count.to;
  if (count.edge) {
    json["edge"] = *count.edge;
    json["one_hop_sum"] = *count.one_hop;
    json["direct"] = *count.direct;
    json["multi_hop"] = *count.multi_hop;
  }
  return json;
}

Json CheckJson(const Carriers::Check& check) {
  const KnockOutShare& s = check.share;
  return {{"mode", NameOf(check.mode)},
          {"before", s.before},
          {"without_all", s.without_all},
          {"without_set", s.without_set},
          {"share", s.share},
          {"random_mean", s.random_mean},
          {"random_deviation", s.random_deviation},
          {"random_largest", s.random_largest}};
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100.0 * share); }

// How far the gate is from closing, and what would close it.
std::string GateText(const CarrierHead& head, const Tokenizer* words) {
  std::string text = fmt::format("          gate open by {:.2f}; ", head.gate->margin);
  if (head.gate->turning.empty()) return text + "no single pair closes it\n";
  const TermPair& pair = head.gate->turning[0];
  text += fmt::format("would close without {} x {} ({:+.2f})",
                      NameOf(head.reasons.query_terms[pair.query], words),
                      NameOf(head.reasons.key_terms[pair.key], words), pair.value);
  const std::size_t others = head.gate->turning.size() - 1;
  if (others == 0) return text + ", and no other pair alone\n";
  return text + fmt::format(", or {} other pair{} alone\n", others, others == 1 ? "" : "s");
}

std::string HeadText(const CarrierHead& head, std::int64_t pairs, const Tokenizer* words) {
  std::string text = fmt::format("  {:<7} {:>+9.4f} {:>6} {:>8.4f} {:>+8.2f}", HeadName(head),
                                 head.value, Percent(head.share), head.weight, head.reasons.score);
  text += head.gate ? fmt::format(" {:>+7.2f}  ", head.gate->margin) : fmt::format(" {:>7}  ", "");
  bool first = true;
  for (const TermPair& pair : StrongestPairs(head.reasons, pairs)) {
    text += fmt::format("{}{} x {} {:+.2f}", first ? "" : "; ",
                        NameOf(head.reasons.query_terms[pair.query], words),
                        NameOf(head.reasons.key_terms[pair.key], words), pair.value);
    first = false;
  }
  text += "\n";
  if (head.gate) text += GateText(head, words);
  return text;
}

std::string Number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value);
}

std::string AnswerText(const CarrierAnswer& answer, double share, std::int64_t pairs) {
  const Carriers& c = answer.carriers;
  const Tokenizer* words = answer.model->Words();
  const auto heads = static_cast<std::int64_t>(c.split.one_hop.size());
  std::string text = fmt::format(
      "{}: {} at {} -> {}: edge {:+.4f} = direct {:+.4f} + one hop {:+.4f} + several hops "
      "{:+.4f}\n",
      answer.model->name, c.edge.from, c.edge.key, c.edge.to, c.split.edge, c.split.direct,
      c.split.one_hop_sum(), c.split.multi_hop);
  text += fmt::format("{} of {} heads carry {} of it ({} contribute)\n", c.heads.size(), heads,
                      Percent(share), c.contributing);
  text += fmt::format(
      "  {:<7} {:>9} {:>6} {:>8} {:>8} {:>7}  {}\n", "head", "value", "share", "weight", "score",
      answer.carriers.heads.empty() || !answer.carriers.heads[0].gate ? "" : "margin",
      "strongest pairs of its score: query x key");
  for (const CarrierHead& head : c.heads) text += HeadText(head, pairs, words);
  for (const Carriers::Check& check : c.checks) {
    text += fmt::format(
        "  closed ({}): {:.3f} -> {:.3f}, {} of what closing all {} takes ({:.3f}); stated {}; "
        "random {} {} ± {}, at most {}\n",
        NameOf(check.mode), check.share.before, check.share.without_set, Percent(check.share.share),
        heads, check.share.without_all, Percent(c.stated_share), c.heads.size(),
        Percent(check.share.random_mean), Percent(check.share.random_deviation),
        Percent(check.share.random_largest));
  }
  return text;
}

}  // namespace

Json ToJson(const CarrierAnswer& answer, std::int64_t pairs) {
  const Carriers& c = answer.carriers;
  const Tokenizer* words = answer.model->Words();
  const std::int64_t L = answer.prompt.config().layers, H = answer.prompt.config().heads;
  const auto of_layer = [&](const std::vector<double>& values, std::int64_t l) {
    return std::vector<double>(values.begin() + l * H, values.begin() + (l + 1) * H);
  };
  Json layers = Json::array(), heads = Json::array(), counts = Json::array(),
       checks = Json::array(), groups = Json::array();
  for (std::int64_t l = 0; l < L; ++l) {
    layers.push_back({{"layer", l},
                      {"heads", of_layer(c.split.heads, l)},
                      {"bypass", c.split.bypass[l]},
                      {"later", c.split.later[l]},
                      {"earlier", c.split.earlier[l]},
                      {"one_hop", of_layer(c.split.one_hop, l)}});
  }
  for (const CarrierHead& head : c.heads) heads.push_back(HeadJson(head, pairs, words));
  for (const CarrierCount& count : c.counts) counts.push_back(CountJson(count));
  for (const Carriers::Check& check : c.checks) checks.push_back(CheckJson(check));
  for (const FeatureGroup& group : answer.grouped.groups) {
    groups.push_back({{"name", group.name},
                      {"position", group.position},
                      {"first_layer", group.first_layer},
                      {"last_layer", group.last_layer},
                      {"features", group.features.size()}});
  }
  return {{"model", answer.model->name},
          {"features", answer.model->features_name},
          {"from", c.edge.from},
          {"to", c.edge.to},
          {"query", c.edge.query},
          {"key", c.edge.key},
          {"edge", c.split.edge},
          {"direct", c.split.direct},
          {"one_hop_sum", c.split.one_hop_sum()},
          {"multi_hop", c.split.multi_hop},
          {"n80", c.n80_one_hop},
          {"n80_one_hop", c.n80_one_hop},
          {"n80_heads", c.n80_heads},
          {"contributing", c.contributing},
          {"stated_share", c.stated_share},
          {"layers", std::move(layers)},
          {"heads", std::move(heads)},
          {"counts", std::move(counts)},
          {"knock_out", std::move(checks)},
          {"scores", ScoresJson(answer.scores)},
          {"groups", std::move(groups)},
          {"seconds", answer.seconds}};
}

std::string CarriersText(std::span<const CarrierAnswer> answers, double share, std::int64_t pairs) {
  std::string text;
  for (const CarrierAnswer& answer : answers) text += AnswerText(answer, share, pairs) + "\n";
  text += fmt::format("{:<38}", fmt::format("heads for {} (that contribute)", Percent(share)));
  for (const CarrierAnswer& answer : answers) text += fmt::format(" {:>16}", answer.model->name);
  text += "\n";
  for (const CarrierCount& first : answers[0].carriers.counts) {
    text += fmt::format("{:<38}", first.name);
    for (const CarrierAnswer& answer : answers) {
      const auto& counts = answer.carriers.counts;
      const auto it = std::find_if(counts.begin(), counts.end(),
                                   [&](const CarrierCount& c) { return c.name == first.name; });
      text += fmt::format(
          " {:>16}",
          it == counts.end() ? "-" : fmt::format("{} ({})", Number(it->heads), it->contributing));
    }
    text += "\n";
  }
  return text;
}

std::string AveragesText(std::span<const std::string> names,
                         std::span<const CarrierAverages> averages, double share,
                         const std::string& task) {
  std::string text = fmt::format("{}: {} prompts, heads for {}: mean (least-most)\n{:<38}", task,
                                 averages[0].prompts, Percent(share), "");
  for (const std::string& name : names) text += fmt::format(" {:>22}", name);
  const auto line = [&](const std::string& name, const auto& cell) {
    text += fmt::format("\n{:<38}", name);
    for (const CarrierAverages& a : averages) text += fmt::format(" {:>22}", cell(a));
  };
  const auto spread = [](const ValueSpread& s) {
    return fmt::format("{:.1f} ({}-{})", s.mean(), Number(s.least()), Number(s.most()));
  };
  for (std::size_t i = 0; i < averages[0].counts.size(); ++i) {
    const std::string& name = averages[0].counts[i].name;
    const auto find = [&](const CarrierAverages& a) -> const CarrierAverages::Count* {
      const auto it = std::find_if(a.counts.begin(), a.counts.end(),
                                   [&](const auto& count) { return count.name == name; });
      return it == a.counts.end() ? nullptr : &*it;
    };
    line(name, [&](const CarrierAverages& a) {
      const auto* count = find(a);
      return count == nullptr ? std::string("-") : spread(count->heads);
    });
    line("  heads that contribute", [&](const CarrierAverages& a) {
      const auto* count = find(a);
      return count == nullptr ? std::string("-") : spread(count->contributing);
    });
  }
  line("share of one hop that they have",
       [](const CarrierAverages& a) { return Percent(a.stated_share.mean()); });
  for (std::size_t i = 0; i < averages[0].checks.size(); ++i) {
    line(fmt::format("  closed, {}", NameOf(averages[0].checks[i].mode)),
         [&](const CarrierAverages& a) {
           return fmt::format("{}, random {}", Percent(a.checks[i].share.mean()),
                              Percent(a.checks[i].random.mean()));
         });
  }
  line("replacement",
       [](const CarrierAverages& a) { return fmt::format("{:.3f}", a.replacement.mean()); });
  line("completeness",
       [](const CarrierAverages& a) { return fmt::format("{:.3f}", a.completeness.mean()); });
  line("probability of the answer",
       [](const CarrierAverages& a) { return fmt::format("{:.3f}", a.probability.mean()); });
  return text + "\n";
}

}  // namespace clearhead::cli
