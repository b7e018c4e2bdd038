// SPDX-License-Identifier: MIT
// The page's questions about attribution graphs: the graph of a prompt, the heads that carry one of
// its edges, why a head looks where it looks. docs/api.md is the reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heads/head_id.h"
#include "viewer/page_api.h"
#include "viewer/traced_prompts.h"

namespace clearhead {

enum class TraceQuestionKind { kTrace, kCarriers, kReasons };

struct TraceQuestion {
  std::size_t model = 0;
  PromptText prompt;
  std::string from, to;             // of CarriersAnswer
  HeadId head = {};                 // of ReasonsAnswer
  std::int64_t query = 0, key = 0;  // likewise
};

// Throws Error: one line for the person at the page.
TraceQuestion ParseTraceQuestion(TraceQuestionKind kind, std::string_view body,
                                 const ModelSet& set);

// Frame clearhead.prompt-trace.1: features, groups of them, and the edges between features as an
// array, of which the page makes those of groups.
std::string TraceFrame(const ModelSet& set, std::size_t model, const std::string& prompt,
                       const TracedPrompt& traced);

// clearhead.edge-carriers.1: an edge split into heads; `share` of its one-hop magnitudes is what
// the first `n80` of them have.
inline constexpr double kCarrierShare = 0.8;
Json CarriersAnswer(const TracedPrompt& traced, const std::string& from, const std::string& to);

// clearhead.head-reasons.1
inline constexpr std::int64_t kReasonPairs = 6;  // of each sign
Json ReasonsAnswer(const ModelSet& set, std::size_t model, const TracedPrompt& traced, HeadId head,
                   std::int64_t query, std::int64_t key);

// Whatever is asked, as the frame that travels.
std::string AnswerTrace(TraceQuestionKind kind, const ModelSet& set, const TraceQuestion& q,
                        TraceMemory& memory, const CancelQuestion& cancelled);

// Edges between groups, and from tokens and the like, to groups and logits, strongest first: by
// share of the target's row times the target's influence, as the page orders them.
struct TraceEdge {
  std::string from, to;
  std::int64_t key = 0, query = 0;
  double strength = 0.0;
};
std::vector<TraceEdge> StrongestEdges(const TracedPrompt& traced);

}  // namespace clearhead
