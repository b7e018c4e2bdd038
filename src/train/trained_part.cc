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
}

void ClearFrozenGradients(const ModelConfig& config, Kind kind, ModelValues& gradients) {
  Check(kind != Kind::kLora, "LoRA's gradients are those of its factors");
  if (kind == Kind::kAll) return;
  const std::int64_t C = config.width;
  VisitParameters(config, gradients, [&](const ParameterSpec& spec, float*& values) {
    const bool scores = spec.name.find(".attn.c_attn.") != std::string::npos;
    const bool attention = scores || spec.name.find(".attn.c_proj.") != std::string::npos;
    const std::int64_t size = spec.shape.size();
    if (kind == Kind::kAttention ? !attention : !scores) {
      std::fill(values, values + size, 0.0f);
    } else if (kind == Kind::kQueryKey) {
      ClearColumns(values, size, 3 * C, 2 * C, 3 * C);
    }
  });
}

}  // namespace clearhead
