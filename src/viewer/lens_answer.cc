// SPDX-License-Identifier: MIT
#include "viewer/lens_answer.h"

#include "core/error.h"
#include "use/lens.h"
#include "viewer/frame.h"
#include "viewer/question_fields.h"

namespace clearhead {
namespace {

Json SharesJson(const ModelSet& set, const std::vector<LogitShare>& shares) {
  Json list = Json::array();
  for (const LogitShare& share : shares) {
    list.push_back(
        {{"id", share.token}, {"token", set.TokenText(share.token)}, {"logit", share.logit}});
  }
  return list;
}

Json HeadsJson(const ModelSet& set, const Lens& lens) {
  Json heads = Json::array();
  for (const HeadLens& head : lens.heads) {
    heads.push_back({{"head", ToText(HeadId{head.layer, head.head})},
                     {"target_logit", head.target_logit},
                     {"raised", SharesJson(set, head.raised)},
                     {"lowered", SharesJson(set, head.lowered)}});
  }
  return heads;
}

}  // namespace

void ParseLens(const Json& json, const ModelSet& set, PageQuestion* q) {
  const auto length = static_cast<std::int64_t>(q->ids.size());
  if (length > kMaxLensTokens) {
    Fail("the prompt has {} tokens, the lens takes at most {}", length, kMaxLensTokens);
  }
  q->model = ModelField(json, set);
  q->position = length - 1;
  if (json.contains("position")) {
    q->position = WholeNumber(json["position"], "position", 0, length - 1);
  }
  if (!json.contains("target")) return;
  const std::string& text = Text(json["target"], "target");
  if (text.size() > 256) Fail("'target' is too long; it must be one token");
  const std::vector<std::int32_t> ids = set.tokenizer.Encode(text);
  if (ids.size() != 1) {
    Fail("'target' is {} tokens; it must be one, often with a space in front", ids.size());
  }
  q->target = ids[0];
}

std::string LensFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled) {
  const ViewedModel& viewed = set.models[q.model];
  LensOptions options{.likeliest = q.likeliest,
                      .target = q.target,
                      .position = q.position,
                      .heads = viewed.model.config.norm_place != NormPlace::kAfter,
                      .gates = {.open = q.open_gates},
                      .between = [&] {
                        if (cancelled && cancelled()) throw Cancelled("the run was cancelled");
                      }};
  for (const HeadId head : q.ablated[q.model]) {
    options.interventions.push_back({.tap = {Tap::kZ, head.layer}, .heads = {head.head}});
  }
  const Lens lens = LookThrough(viewed.model, q.ids, options);

  Json tokens = Json::array(), targets = Json::array(), stream = Json::array();
  for (const std::int32_t id : q.ids) tokens.push_back(set.TokenText(id));
  for (const std::int32_t id : lens.targets) {
    targets.push_back({{"id", id}, {"token", set.TokenText(id)}});
  }
  for (const std::vector<LensCell>& row : lens.stream) {
    Json cells = Json::array();
    for (const LensCell& cell : row) {
      cells.push_back({{"likeliest", LikeliestJson(set, cell.likeliest)},
                       {"target_probability", cell.target_probability},
                       {"target_rank", cell.target_rank}});
    }
    stream.push_back(std::move(cells));
  }
  return MakeFrame({{"schema", "clearhead.prompt-lens.1"},
                    {"model", q.model},
                    {"label", viewed.label},
                    {"prompt", q.prompt},
                    {"tokens", std::move(tokens)},
                    {"targets", std::move(targets)},
                    {"stream", std::move(stream)},
                    {"position", lens.position},
                    {"heads", options.heads ? HeadsJson(set, lens) : Json(nullptr)}},
                   {});
}

}  // namespace clearhead
