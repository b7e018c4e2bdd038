// SPDX-License-Identifier: MIT
#include "cli/trace_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "features/head_split.h"
#include "features/node_names.h"

namespace clearhead::cli {
namespace {

constexpr std::size_t kGroups = 24, kEdges = 40;  // that a page can show

std::string Difference(const Tokenizer* words, const LogitTarget& logit) {
  return fmt::format("{} - {}", TokenLabel(TokenName(words, logit.token)),
                     TokenLabel(TokenName(words, *logit.against)));
}

struct RankedEdge {
  double score = 0.0;
  std::int64_t source = 0, row = 0;
  bool negative = false;
};

// Embeddings of a position are one node: its token.
std::int64_t Merged(const GroupedGraph& grouped, std::int64_t source) {
  const bool position = source >= grouped.Position(0) && source < grouped.Bias();
  return position ? source - grouped.Position(0) + grouped.Token(0) : source;
}

// All edges but those of the bias and of groups within themselves, strongest first.
std::vector<RankedEdge> RankedEdges(const GroupedGraph& grouped) {
  std::vector<RankedEdge> edges;
  std::vector<double> merged(static_cast<std::size_t>(grouped.sources()));
  for (std::int64_t r = 0; r < grouped.rows(); ++r) {
    const float* row = grouped.Row(r);
    std::fill(merged.begin(), merged.end(), 0.0);
    double sum = 0.0;
    for (std::int64_t s = 0; s < grouped.sources(); ++s) {
      merged[Merged(grouped, s)] += row[s];
      sum += std::abs(row[s]);
    }
    if (sum == 0.0) continue;
    const double influence = r < grouped.count() ? grouped.influence[r]
                                                 : grouped.logits[r - grouped.count()].probability;
    for (std::int64_t s = 0; s < grouped.Bias(); ++s) {
      if (merged[s] == 0.0 || s == r) continue;
      edges.push_back({std::abs(merged[s]) / sum * influence, s, r, merged[s] < 0.0});
    }
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const RankedEdge& a, const RankedEdge& b) { return a.score > b.score; });
  return edges;
}

// Nodes of the figure by their number in the grouped graph; logits follow its sources.
class GraphNodesOf {
 public:
  GraphNodesOf(const GroupedGraph& grouped, const TracedModel& model,
               std::span<const std::int32_t> ids, GraphFigure* figure)
      : grouped_(grouped), words_(model.Words()), ids_(ids), figure_(figure) {
    for (const double value : grouped.influence) largest_ = std::max(largest_, value);
  }

  std::size_t Of(std::int64_t node) {
    const auto [it, made] = numbers_.try_emplace(node, figure_->nodes.size());
    if (made) figure_->nodes.push_back(Make(node));
    return it->second;
  }

 private:
  GraphFigureNode Make(std::int64_t node) const {
    GraphFigureNode made;
    if (node >= grouped_.sources()) {
      const LogitTarget& logit = grouped_.logits[node - grouped_.sources()];
      made.row = GraphRow::kLogit;
      made.position = logit.position;
      made.label = TokenName(words_, logit.token);
      if (logit.against) made.label = Difference(words_, logit);
      made.note = fmt::format("{:.1f} %", 100.0 * logit.probability);
      made.strength = logit.probability;
      return made;
    }
    made.strength = largest_ > 0.0 ? grouped_.influence[node] / largest_ : 0.0;
    if (node < grouped_.count()) {
      const FeatureGroup& group = grouped_.groups[node];
      made.position = group.position;
      made.first_layer = group.first_layer;
      made.last_layer = group.last_layer;
      made.label = group.name;
      made.note =
          fmt::format("{} feature{}", group.features.size(), group.features.size() == 1 ? "" : "s");
    } else if (node < grouped_.Errors(0)) {
      made.row = GraphRow::kOther;
      made.position = node - grouped_.Others(0);
      made.label = "others";
    } else if (node < grouped_.Token(0)) {
      made.row = GraphRow::kError;
      made.position = node - grouped_.Errors(0);
      made.label = "errors";
    } else {
      made.row = GraphRow::kToken;
      made.position = node - grouped_.Token(0);
      made.label = TokenName(words_, ids_[made.position]);
    }
    return made;
  }

  const GroupedGraph& grouped_;
  const Tokenizer* words_;
  std::span<const std::int32_t> ids_;
  GraphFigure* figure_;
  double largest_ = 0.0;
  std::map<std::int64_t, std::size_t> numbers_;
};

// The position of the logits first, then the others by the influence of all that is there.
std::vector<std::int64_t> PositionsByInfluence(const GroupedGraph& grouped) {
  std::vector<double> sums(static_cast<std::size_t>(grouped.length), 0.0);
  for (std::int64_t g = 0; g < grouped.count(); ++g) {
    sums[grouped.groups[g].position] += grouped.influence[g];
  }
  for (std::int64_t p = 0; p < grouped.length; ++p) {
    sums[p] += grouped.influence[grouped.Others(p)] + grouped.influence[grouped.Errors(p)] +
               grouped.influence[grouped.Token(p)];
    if (grouped.positions) sums[p] += grouped.influence[grouped.Position(p)];
  }
  std::vector<std::int64_t> order = {grouped.logits.at(0).position};
  for (const std::int64_t p : RankByMagnitude(sums)) {
    if (p != order[0]) order.push_back(p);
  }
  return order;
}

// Of a model the groups over the words.
std::vector<CarrierStack> StacksOf(const GroupedGraph& grouped) {
  std::vector<CarrierStack> stacks;
  for (std::int64_t g = 0; g < grouped.count(); ++g) {
    const FeatureGroup& group = grouped.groups[g];
    stacks.push_back({.position = group.position,
                      .first_layer = group.first_layer,
                      .last_layer = group.last_layer,
                      .name = group.name,
                      .strength = grouped.influence[g]});
  }
  return stacks;
}

// Weak groups say little: those below 3 % of the strongest are left out.
void LeaveOutWeak(std::vector<CarrierStack>& stacks) {
  double strongest = 0.0;
  for (const CarrierStack& stack : stacks) strongest = std::max(strongest, stack.strength);
  std::erase_if(stacks, [&](const CarrierStack& s) { return s.strength < 0.03 * strongest; });
}

CarrierPanel PanelOf(const CarrierAnswer& answer) {
  const std::int64_t T = answer.prompt.length();
  CarrierPanel panel{.name = answer.model->name,
                     .heads = static_cast<std::int64_t>(answer.carriers.split.one_hop.size()),
                     .maps = {}};
  for (const CarrierHead& head : answer.carriers.heads) {
    const float* map = answer.prompt.layers[head.layer].weights.data() + head.head * T * T;
    panel.maps.push_back(
        {.map = ReduceMap({head.layer, head.head}, map, T, kCarrierMapCells), .share = head.share});
  }
  return panel;
}

}  // namespace

GraphFigure FigureOf(const GroupedGraph& grouped, const TracedModel& model,
                     std::span<const std::int32_t> ids) {
  std::string prompt;
  for (const std::int32_t id : ids) prompt += TokenName(model.Words(), id);
  GraphFigure figure{.title = fmt::format("{}: {}", model.name, prompt),
                     .note = "attention, norms and what fires held fixed",
                     .layers = model.model.config.layers,
                     .positions = PositionsByInfluence(grouped),
                     .nodes = {},
                     .edges = {}};
  GraphNodesOf nodes(grouped, model, ids, &figure);
  for (std::size_t i = 0; i < grouped.logits.size(); ++i) {
    nodes.Of(grouped.sources() + static_cast<std::int64_t>(i));
  }
  std::vector<double> influence(grouped.influence.begin(),
                                grouped.influence.begin() + grouped.count());
  std::vector<std::int64_t> strongest = RankByMagnitude(influence);
  strongest.resize(std::min(strongest.size(), kGroups));
  std::vector<bool> shown(influence.size(), false);
  for (const std::int64_t g : strongest) shown[g] = true;  // where an edge of theirs is
  for (std::int64_t p = 0; p < grouped.length; ++p) nodes.Of(grouped.Token(p));
  const std::vector<RankedEdge> edges = RankedEdges(grouped);
  double all = 0.0, largest = 0.0;
  for (const RankedEdge& edge : edges) all += edge.score;
  for (const RankedEdge& edge : edges) {
    const bool ends = (edge.source >= grouped.count() || shown[edge.source]) &&
                      (edge.row >= grouped.count() || shown[edge.row]);
    if (!ends) continue;
    if (figure.edges.size() == kEdges) break;
    if (largest == 0.0) largest = edge.score;
    const std::int64_t target =
        edge.row < grouped.count() ? edge.row : grouped.sources() + edge.row - grouped.count();
    figure.edges.push_back({.from = nodes.Of(edge.source),
                            .to = nodes.Of(target),
                            .strength = edge.score / largest,
                            .share = edge.score / all,
                            .negative = edge.negative});
  }
  return figure;
}

CarrierFigure FigureOf(std::span<const CarrierAnswer> answers, double share) {
  const CarrierAnswer& last = answers.back();
  const CarrierEdge& edge = last.carriers.edge;
  CarrierFigure figure{.tokens = TokenTexts(last.model->Words(), last.prompt.ids),
                       .first_position = 0,
                       .query = edge.query,
                       .key = edge.key,
                       .share = share,
                       .panels = {},
                       .stacks = StacksOf(last.grouped),
                       .output = edge.to,
                       .output_note = fmt::format("position {}", edge.query)};
  if (edge.logit) {
    figure.output = TokenName(last.model->Words(), edge.logit->token);
    if (edge.logit->against) {
      figure.output = Difference(last.model->Words(), *edge.logit);
    }
    figure.output_note = fmt::format("output, layer {}", last.prompt.config().layers);
  }
  LeaveOutWeak(figure.stacks);
  // What only begins the text needs no place.
  const bool begins = last.prompt.config().begin_of_text == last.prompt.ids[0];
  const bool used = std::any_of(figure.stacks.begin(), figure.stacks.end(),
                                [](const CarrierStack& stack) { return stack.position == 0; });
  if (begins && edge.key > 0 && !used) figure.first_position = 1;
  for (const CarrierAnswer& answer : answers) {
    if (answer.prompt.ids.size() != last.prompt.ids.size()) {
      Fail("the models read prompts of {} and {} tokens: they cannot share a figure",
           answer.prompt.ids.size(), last.prompt.ids.size());
    }
    figure.panels.push_back(PanelOf(answer));
  }
  return figure;
}

}  // namespace clearhead::cli
