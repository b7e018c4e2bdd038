// SPDX-License-Identifier: MIT
// The page's questions and answers as plain functions: JSON in, JSON or a frame out. The server
// adds HTTP, the report calls them once and keeps the answers. docs/api.md is the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "features/feature_intervention.h"
#include "heads/head_id.h"
#include "viewer/model_set.h"
#include "viewer/prompt_run.h"
#include "viewer/results.h"

namespace clearhead {

inline constexpr std::int64_t kMaxPromptBytes = 64 * 1024;
inline constexpr std::int64_t kMaxCells = 256;
inline constexpr std::int64_t kMaxLikeliest = 50;
inline constexpr std::int64_t kMaxStrongest = 50;
inline constexpr std::int64_t kMaxMapFloats = 5'000'000;  // of one answer, all models: 20 MB

// The field "prompt" of a question.
struct PromptText {
  std::string text;
  std::vector<std::int32_t> ids;
};
PromptText ParsePrompt(const Json& question, const ModelSet& set);
// The field "model", 0 where there is none; a head of a model.
std::size_t ModelField(const Json& question, const ModelSet& set);
HeadId HeadField(const Json& json, const ViewedModel& viewed);

// A question about one prompt: what the page posts. Parsing refuses unknown fields, prompts that
// are empty or too long, heads that no model has.
struct PageQuestion {
  std::string prompt;
  std::vector<std::int32_t> ids;
  std::vector<std::vector<HeadId>> ablated;  // one list for each model
  bool open_gates = false;
  std::int64_t cells = 64, likeliest = 10;
  std::int64_t strongest = 8;  // of FeaturesFrame
  HeadId head = {};            // of HeadFrame
  std::int64_t position = 0;   // of TokenFrame and LensFrame
  std::size_t model = 0;       // of what is about one of the models
  std::optional<std::int32_t> target =
      {};  // of LensFrame (lens_answer.h): the token that is followed
  // Of ChangedFrame (changed_run.h): what is changed in the model.
  std::vector<AttentionCell> cut;
  std::vector<FeatureIntervention> features;
};

enum class QuestionKind { kRun, kHead, kToken, kFeatures, kChanged, kLens };

// Throws Error: one line for the person at the page.
PageQuestion ParseQuestion(QuestionKind kind, std::string_view body, const ModelSet& set);

// The most cells a side with which the maps of a prompt of this length fit into one answer.
std::int64_t MostCells(const ModelSet& set, std::int64_t length);

// clearhead.overview.1: the models, task examples that the tokenizer can express, result files.
Json Overview(const ModelSet& set, const std::vector<ResultFile>& results);

// Frames of the answers. `cancelled` may be empty.
using CancelQuestion = std::function<bool()>;
std::string RunFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled);
std::string HeadFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled);
std::string TokenFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled);

// [{id, token, probability}].
Json LikeliestJson(const ModelSet& set, const std::vector<Prediction>& likeliest);

// {loss, predictions} of a run.
Json PredictionsOf(const ModelSet& set, const PromptRun& run);

}  // namespace clearhead
