// SPDX-License-Identifier: MIT
#include "train/trained_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace clearhead {
namespace {
using Kind = TrainedPart::Kind;

constexpr std::string_view kLoraPrefix = "lora:";

// Columns [from, to) of rows of `width`, set to 0.
void ClearColumns(float* values, std::int64_t size, std::int64_t width, std::int64_t from,
                  std::int64_t to) {
  for (std::int64_t row = 0; row < size; row += width) {
    std::fill(values + row + from, values + row + to, 0.0f);
  }
}

}  // namespace

TrainedPart ParseTrainedPart(std::string_view text) {
  if (text == "all") return {Kind::kAll};
  if (text == "attention") return {Kind::kAttention};
  if (text == "qk") return {Kind::kQueryKey};
  if (text.starts_with(kLoraPrefix)) {
    const std::string_view number = text.substr(kLoraPrefix.size());
    std::int64_t rank = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (error == std::errc() && end == number.data() + number.size() && rank > 0) {
      return {Kind::kLora, rank};
    }
  }
  Fail("'{}' is not a part of the model that can be trained; expected all, attention, qk or lora:R",
       text);
}

std::string ToText(const TrainedPart& part) {
  switch (part.kind) {
    case Kind::kAll:
      return "all";
    case Kind::kAttention:
      return "attention";
    case Kind::kQueryKey:
      return "qk";
    case Kind::kLora:
      return fmt::format("{}{}", kLoraPrefix, part.rank);
  }
  return "";
}

void CheckTrainedPart(const TrainedPart& part, const ModelConfig& config) {
  if (part.kind == Kind::kLora && part.rank > config.width) {
    Fail("lora:{}: the rank is larger than the model's width {}", part.rank, config.width);
  }
  if (part.kind == Kind::kLora && config.gate_bias_by_head) {
    Fail("lora:{} trains no gate biases; train all, attention or qk for a bias of each head",
         part.rank);
  }
}

bool MakesQueriesOrKeys(Role role) {
  const bool value = role == Role::kValueWeight || role == Role::kValueBias;
  return (role >= Role::kQkvWeight && role <= Role::kKeyNorm) && !value;
}

bool IsTrained(Kind kind, Role role) {
  const bool projection = role >= Role::kQkvWeight && role <= Role::kValueBias;
  switch (kind) {
    case Kind::kAll:
      return true;
    case Kind::kAttention:
      return IsAttention(role);
    case Kind::kQueryKey:
      return MakesQueriesOrKeys(role) || role == Role::kGateBias;
    case Kind::kLora:
      return projection;
  }
  return false;
}

void ClearFrozenColumns(const ModelConfig& config, Kind kind, ModelValues& gradients) {
  if (kind != Kind::kQueryKey) return;
  const std::int64_t P = config.qkv_width(), from = P - config.kv_width();
  for (RoleTensors<float*>& block : gradients.blocks) {
    if (block[Role::kQkvWeight] != nullptr) {
      ClearColumns(block[Role::kQkvWeight], config.width * P, P, from, P);
    }
    if (block[Role::kQkvBias] != nullptr) ClearColumns(block[Role::kQkvBias], P, P, from, P);
  }
}

}  // namespace clearhead
