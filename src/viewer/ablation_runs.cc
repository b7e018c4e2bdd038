// SPDX-License-Identifier: MIT
#include "viewer/ablation_runs.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/error.h"
#include "viewer/frame.h"
#include "viewer/prompt_run.h"

namespace clearhead {
namespace {

using HeadSets = std::vector<std::vector<HeadId>>;

std::vector<HeadId> AllHeads(const ModelConfig& config) {
  std::vector<HeadId> heads;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::int64_t head = 0; head < config.heads; ++head) heads.push_back({layer, head});
  }
  return heads;
}

// The heads that reach 90 %, if the circuit is of a model of this shape. Result files come from
// disk and may be damaged: what is not a circuit is no circuit of this model.
std::vector<HeadId> CircuitHeads(const Json& circuit, const ModelConfig& config) {
  std::vector<HeadId> heads;
  if (circuit.value("layers", Json()) != Json(config.layers) ||
      circuit.value("heads_per_layer", Json()) != Json(config.heads) ||
      !circuit.value("at_90", Json()).is_number_unsigned() ||
      !circuit.value("heads", Json()).is_array()) {
    return heads;
  }
  const auto size = std::min(circuit["at_90"].get<std::size_t>(), circuit["heads"].size());
  for (std::size_t i = 0; i < size; ++i) {
    const Json& node = circuit["heads"][i];
    const Json name = node.is_object() ? node.value("head", Json()) : Json();
    if (!name.is_string()) continue;
    if (const auto head = ParseHead(name.get_ref<const std::string&>())) heads.push_back(*head);
  }
  return heads;
}

struct ModelAblations {
  HeadSets sets;
  std::vector<float> losses;              // [S,T-1]
  std::vector<float> ids, probabilities;  // [S,P,K]; ids below 2^24 are whole in a float
};

// Appends one run: the losses of all positions, the likeliest tokens of the last P.
void Keep(const PromptRun& run, std::int64_t P, ModelAblations* kept,
          std::set<std::int32_t>* seen) {
  for (std::int64_t t = 0; t < run.length; ++t) {
    const PositionPrediction& prediction = run.predictions[static_cast<std::size_t>(t)];
    if (prediction.loss) kept->losses.push_back(static_cast<float>(*prediction.loss));
    if (t < run.length - P) continue;
    for (const auto& [id, probability] : prediction.likeliest) {
      kept->ids.push_back(static_cast<float>(id));
      kept->probabilities.push_back(static_cast<float>(probability));
      seen->insert(id);
    }
  }
}

}  // namespace

HeadSets AblationSets(const ViewedModel& viewed, const std::vector<ResultFile>& results) {
  const ModelConfig& config = viewed.model.config;
  const std::vector<HeadId> all = AllHeads(config);
  HeadSets sets;
  const auto add = [&](std::vector<HeadId> heads) {
    if (!heads.empty() && std::find(sets.begin(), sets.end(), heads) == sets.end()) {
      sets.push_back(std::move(heads));
    }
  };
  for (const HeadId head : all) add({head});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto first = all.begin() + layer * config.heads;
    add({first, first + config.heads});
  }
  add(all);
  for (const ResultFile& result : results) {
    if (!result.schema.starts_with("clearhead.circuit")) continue;
    const bool pair = result.json.contains("models") && result.json["models"].is_array();
    const Json circuits = pair ? result.json["models"] : Json::array({result.json});
    for (const Json& circuit : circuits) {
      if (!circuit.is_object()) continue;
      const std::vector<HeadId> kept = CircuitHeads(circuit, config);
      if (kept.empty()) continue;
      std::vector<HeadId> others;
      std::copy_if(all.begin(), all.end(), std::back_inserter(others), [&](HeadId head) {
        return std::find(kept.begin(), kept.end(), head) == kept.end();
      });
      add(std::move(others));
    }
  }
  return sets;
}

std::string AblationFrame(const ModelSet& set, const std::string& prompt,
                          const std::vector<ResultFile>& results,
                          const std::function<void()>& ran) {
  constexpr std::int64_t K = kAblationLikeliest;
  const std::vector<std::int32_t> ids = set.tokenizer.EncodePrompt(prompt);
  const auto T = static_cast<std::int64_t>(ids.size());
  std::vector<ModelAblations> models(set.models.size());
  std::int64_t count = 0;
  for (std::size_t m = 0; m < models.size(); ++m) {
    models[m].sets = AblationSets(set.models[m], results);
    count += static_cast<std::int64_t>(models[m].sets.size());
  }
  const std::int64_t P = std::clamp<std::int64_t>(kMaxAblationFloats / (2 * K * count), 1, T);

  Json header_models = Json::array();
  std::set<std::int32_t> seen;
  std::vector<FrameArray> arrays;
  for (std::size_t m = 0; m < models.size(); ++m) {
    ModelAblations& kept = models[m];
    Json sets = Json::array();
    for (const std::vector<HeadId>& heads : kept.sets) {
      Keep(RunPrompt(set.models[m].model, ids, {.ablated = heads, .likeliest = K, .heads = false}),
           P, &kept, &seen);
      ran();
      Json names = Json::array();
      for (const HeadId head : heads) names.push_back(ToText(head));
      sets.push_back(std::move(names));
    }
    header_models.push_back({{"label", set.models[m].label}, {"sets", std::move(sets)}});
    const auto S = static_cast<std::int64_t>(kept.sets.size());
    arrays.push_back({fmt::format("losses.{}", m), {S, T - 1}, kept.losses});
    arrays.push_back({fmt::format("ids.{}", m), {S, P, K}, kept.ids});
    arrays.push_back({fmt::format("probabilities.{}", m), {S, P, K}, kept.probabilities});
  }
  // Straight into the object's vector: looking each key up would be quadratic.
  Json tokens = Json::object();
  auto& texts = tokens.get_ref<Json::object_t&>();
  for (const std::int32_t id : seen) texts.push_back({fmt::format("{}", id), set.TokenText(id)});
  return MakeFrame({{"schema", "clearhead.ablations.1"},
                    {"prompt", prompt},
                    {"positions", P},
                    {"models", std::move(header_models)},
                    {"tokens", std::move(tokens)}},
                   arrays);
}

}  // namespace clearhead
