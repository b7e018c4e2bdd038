// SPDX-License-Identifier: MIT
#include "viewer/trace_details.h"

#include <algorithm>

#include "core/error.h"
#include "viewer/feature_answers.h"
#include "viewer/trace_answers.h"

namespace clearhead {
namespace {

constexpr std::int64_t kCutLikeliest = 8;

// "L2H3 8 5": how the page names a cell; several with commas between them.
std::string NameOf(const AttentionCell& cell) {
  return fmt::format("{} {} {}", ToText(cell.head), cell.query, cell.key);
}

// What is expected after the last token, and the loss, with these cells closed.
Json CutAnswer(const ModelSet& set, const PageQuestion& q, std::size_t model,
               const std::vector<AttentionCell>& cells) {
  const PromptRun run = RunPrompt(set.models[model].model, q.ids,
                                  {.cut = cells, .likeliest = kCutLikeliest, .heads = false});
  Json json = PredictionsOf(set, run);
  return {{"loss", json["loss"]}, {"last", json["predictions"].back()}};
}

class Details {
 public:
  Details(const ModelSet& set, const PageQuestion& q, std::size_t model, const TracedPrompt& traced)
      : set_(set), q_(q), model_(model), traced_(traced) {}

  void Add(const TraceEdge& edge) {
    Json answer = CarriersAnswer(traced_, edge.from, edge.to);
    std::vector<AttentionCell> share;
    const auto n80 = answer["n80"].get<std::size_t>();
    for (std::size_t i = 0; i < n80; ++i) {
      const auto head = ParseHead(answer["heads"][i]["head"].get_ref<const std::string&>());
      share.push_back({.head = *head, .query = edge.query, .key = edge.key});
      if (i < static_cast<std::size_t>(kReportHeads)) AddHead(share.back());
    }
    AddCut(share);
    answer.erase("schema");
    carriers_[fmt::format("{} → {}", edge.from, edge.to)] = std::move(answer);
  }

  Json Finish() {
    return {{"schema", "clearhead.trace-details.1"},
            {"model", model_},
            {"prompt", q_.prompt},
            {"before", CutAnswer(set_, q_, model_, {})},
            {"carriers", std::move(carriers_)},
            {"reasons", std::move(reasons_)},
            {"cuts", std::move(cuts_)}};
  }

 private:
  void AddHead(const AttentionCell& cell) {
    const std::string name = NameOf(cell);
    if (reasons_.contains(name)) return;
    Json reasons = ReasonsAnswer(set_, model_, traced_, cell.head, cell.query, cell.key);
    reasons.erase("schema");
    reasons_[name] = std::move(reasons);
    AddCut({cell});
  }

  void AddCut(const std::vector<AttentionCell>& cells) {
    if (cells.empty()) return;
    // Sorted by name, as the page looks for them.
    std::vector<std::string> names;
    for (const AttentionCell& cell : cells) names.push_back(NameOf(cell));
    std::sort(names.begin(), names.end());
    const std::string name = fmt::format("{}", fmt::join(names, ","));
    if (!cuts_.contains(name)) cuts_[name] = CutAnswer(set_, q_, model_, cells);
  }

  const ModelSet& set_;
  const PageQuestion& q_;
  const std::size_t model_;
  const TracedPrompt& traced_;
  Json carriers_ = Json::object(), reasons_ = Json::object(), cuts_ = Json::object();
};

}  // namespace

Json TraceDetails(const ModelSet& set, const PageQuestion& q, std::size_t model,
                  const TracedPrompt& traced) {
  Details details(set, q, model, traced);
  std::int64_t between = 0, within = 0;
  for (const TraceEdge& edge : StrongestEdges(traced)) {
    std::int64_t& count = edge.key == edge.query ? within : between;
    if (count >= (edge.key == edge.query ? kReportEdgesWithin : kReportEdges)) continue;
    ++count;
    details.Add(edge);
  }
  Json json = details.Finish();
  RoundNumbers(&json);
  return json;
}

}  // namespace clearhead
