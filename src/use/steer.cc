// SPDX-License-Identifier: MIT
#include "use/steer.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "use/record.h"

namespace clearhead {
namespace {

void CheckLayer(const ModelConfig& config, std::int64_t layer) {
  if (layer < 0 || layer >= config.layers) {
    Fail("there is no layer {}; the model has layers 0 to {}", layer, config.layers - 1);
  }
}

std::vector<float> StreamAtEnd(const Model& model, std::span<const std::int32_t> ids,
                               std::int64_t layer, const GateRun& gates) {
  const TapId tap{Tap::kResidPre, layer};
  const Recording run = Record(model, {ids.begin(), ids.end()}, 1, {.taps = {tap}, .gates = gates});
  const float* row = run.values.at(tap).values.data() + (run.length - 1) * model.config.width;
  return {row, row + model.config.width};
}

}  // namespace

std::vector<SteerPoint> DoseResponse(const ModelConfig& config, std::span<const std::int32_t> ids,
                                     const SteerOptions& options, const DosedRun& run) {
  for (const std::int32_t target : options.targets) {
    if (target < 0 || target >= config.vocabulary) {
      Fail("the target {} is not one of the model's {} tokens", target, config.vocabulary);
    }
  }
  const auto V = static_cast<std::size_t>(config.vocabulary);
  const std::vector<float> undosed = run(0.0);
  const std::span<const float> before = std::span(undosed).last(V);
  std::vector<SteerPoint> points;
  for (const double dose : options.doses) {
    if (!std::isfinite(dose)) Fail("a dose of {} is no number", dose);
    const std::vector<float> logits = dose == 0.0 ? undosed : run(dose);
    const std::span<const float> after = std::span(logits).last(V);
    PromptOutcome outcome = OutcomeOf(logits, ids, options.likeliest);
    SteerPoint point{.dose = dose,
                     .likeliest = std::move(outcome.likeliest.back()),
                     .divergence = Divergence(before, after),
                     .loss = outcome.loss};
    const double sum = LogSumExp(after);
    for (const std::int32_t target : options.targets) {
      point.probabilities.push_back(
          std::exp(static_cast<double>(after[static_cast<std::size_t>(target)]) - sum));
    }
    points.push_back(std::move(point));
  }
  return points;
}

DosedRun AddDirection(const Model& model, std::span<const std::int32_t> ids,
                      std::vector<float> direction, std::int64_t layer,
                      std::vector<std::int64_t> positions, const GateRun& gates) {
  CheckLayer(model.config, layer);
  const std::int64_t C = model.config.width;
  if (static_cast<std::int64_t>(direction.size()) != C) {
    Fail("the direction has {} values; the model's stream has {}", direction.size(), C);
  }
  return [&model, given = std::vector<std::int32_t>(ids.begin(), ids.end()),
          direction = std::move(direction), layer, positions = std::move(positions), gates,
          C](double dose) {
    Intervention add{.tap = {Tap::kResidPre, layer},
                     .change = Change::kAdd,
                     .positions = positions,
                     .values = direction,
                     .values_shape = {1, 1, C}};
    for (float& value : add.values) value = static_cast<float>(dose * static_cast<double>(value));
    RecordOptions record{.gates = gates};
    if (dose != 0.0) record.interventions = {add};
    const Recording run = Record(model, given, 1, record);
    return std::vector<float>(run.logits.begin(), run.logits.end());
  };
}

std::vector<float> HeadOutput(const Model& model, std::span<const std::int32_t> ids,
                              std::int64_t layer, std::int64_t head, std::int64_t position,
                              const GateRun& gates) {
  CheckLayer(model.config, layer);
  const std::int64_t C = model.config.width, H = model.config.heads;
  const TapId tap{Tap::kResult, layer};
  const Recording run = Record(model, {ids.begin(), ids.end()}, 1, {.taps = {tap}, .gates = gates});
  if (head < 0 || head >= H || position < 0 || position >= run.length) {
    Fail("there is no head {} at position {}; layers have {} heads, the prompt has {} tokens", head,
         position, H, run.length);
  }
  const float* row = run.values.at(tap).values.data() + (position * H + head) * C;
  return {row, row + C};
}

std::vector<float> StreamDifference(const Model& model, std::span<const std::int32_t> towards,
                                    std::span<const std::int32_t> away, std::int64_t layer,
                                    const GateRun& gates) {
  CheckLayer(model.config, layer);
  std::vector<float> difference = StreamAtEnd(model, towards, layer, gates);
  const std::vector<float> other = StreamAtEnd(model, away, layer, gates);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= other[i];
  return difference;
}

}  // namespace clearhead
