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
}

std::vector<FrozenColumns> FrozenPlaces(const ModelConfig& config, Kind kind) {
  std::vector<FrozenColumns> places;
  if (kind == Kind::kAll || kind == Kind::kLora) return places;  // LoRA trains its own factors
  const std::int64_t C = config.width;
  std::int64_t offset = 0;
  for (const ParameterSpec& spec : ParameterTable(config)) {
    const bool scores = spec.name.find(".attn.c_attn.") != std::string::npos;
    const bool attention = scores || spec.name.find(".attn.c_proj.") != std::string::npos;
    const std::int64_t size = spec.shape.size();
    if (kind == Kind::kAttention ? !attention : !scores) {
      places.push_back({offset, 1, size, 0, size});
    } else if (kind == Kind::kQueryKey) {
      places.push_back({offset, size / (3 * C), 3 * C, 2 * C, 3 * C});
    }
    offset += size;
  }
  return places;
}

void ClearFrozenGradients(const std::vector<FrozenColumns>& places, float* gradients) {
  for (const FrozenColumns& place : places) {
    for (std::int64_t row = 0; row < place.rows; ++row) {
      float* first = gradients + place.offset + row * place.width;
      std::fill(first + place.from, first + place.to, 0.0f);
    }
  }
}

}  // namespace clearhead
