// SPDX-License-Identifier: MIT
#include "features/feature_meanings.h"

#include <algorithm>
#include <cmath>

#include "features/feature_card.h"
#include "features/frozen_linear.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

// Rows of logits that exist at a time: 16 MB.
constexpr std::int64_t kLogits = 1 << 22;

void FindPromoted(std::int64_t count, const float* logits, FeatureMeaning& meaning) {
  double sum = 0.0, squares = 0.0;
  std::int64_t best = 0;
  for (std::int64_t v = 0; v < count; ++v) {
    sum += logits[v];
    squares += static_cast<double>(logits[v]) * logits[v];
    if (logits[v] > logits[best]) best = v;
  }
  const double mean = sum / static_cast<double>(count);
  const double variance = squares / static_cast<double>(count) - mean * mean;
  meaning.promotes = static_cast<std::int32_t>(best);
  meaning.promotion =
      variance > 0.0 ? static_cast<float>((logits[best] - mean) / std::sqrt(variance)) : 0.0f;
}

bool EndsAt(const TokenPattern& pattern, std::span<const std::int32_t> ids, std::int64_t position) {
  if (pattern.length == 0 || pattern.length > position + 1) return false;
  return std::equal(pattern.tokens.begin(), pattern.tokens.begin() + pattern.length,
                    ids.begin() + position + 1 - pattern.length);
}

}  // namespace

std::vector<FeatureMeaning> MeaningsOf(const FrozenPrompt& prompt, const FeatureIndex* index,
                                       const Tokenizer* tokenizer,
                                       std::span<const ActiveFeature> features) {
  std::vector<FeatureMeaning> meanings(features.size());
  if (features.empty()) return meanings;
  const std::int64_t C = prompt.config().width, V = prompt.config().vocabulary;
  const std::int64_t known =
      tokenizer == nullptr ? V : std::min<std::int64_t>(V, tokenizer->vocabulary_size());
  const Norm norm = FinalNormOf(*prompt.model);
  const Linear output = OutputLayer(*prompt.model);
  const auto n = static_cast<std::int64_t>(features.size());
  const std::int64_t step = std::clamp<std::int64_t>(kLogits / V, 1, n);
  Buffer<float> rows(step * C), logits(step * V), row(C);
  for (std::int64_t first = 0; first < n; first += step) {
    const std::int64_t count = std::min(step, n - first);
    std::fill(rows.begin(), rows.end(), 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const ActiveFeature& f = features[first + i];
      float* sum = rows.data() + i * C;
      for (std::int64_t t = f.layer; t < LastTarget(prompt.transcoder->config, f.layer); ++t) {
        DecoderRow(*prompt.transcoder, f.layer, f.feature, t, row.data());
        for (std::int64_t c = 0; c < C; ++c) sum[c] += row[c];
      }
      FrozenNormForward(norm, 1.0f, sum, sum);
    }
    LinearForward(output, count, rows.data(), logits.data());
    for (std::int64_t i = 0; i < count; ++i) {
      FindPromoted(known, logits.data() + i * V, meanings[first + i]);
    }
  }
  for (std::int64_t i = 0; i < n && index != nullptr && tokenizer != nullptr; ++i) {
    const FeatureLabel label = index->Label({features[i].layer, features[i].feature});
    meanings[i].label = LabelText(*tokenizer, label);
    meanings[i].matches = std::any_of(
        label.patterns.begin(), label.patterns.end(),
        [&](const LabelPattern& p) { return EndsAt(p.pattern, prompt.ids, features[i].position); });
  }
  return meanings;
}

}  // namespace clearhead
