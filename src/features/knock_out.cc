// SPDX-License-Identifier: MIT
#include "features/knock_out.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "features/head_split.h"
#include "model/head_weights.h"
#include "model/run.h"

namespace clearhead {
namespace {

class KnockOutHooks final : public Hooks {
 public:
  KnockOutHooks(const FrozenPrompt& prompt, const MeasuredTarget& target,
                std::span<const std::int64_t> heads, std::int64_t query, std::int64_t key,
                bool hold)
      : prompt_(prompt), target_(target), heads_(heads), query_(query), key_(key), hold_(hold) {}

  bool Wants(TapId id) const override {
    if (id.tap == Tap::kPattern) return true;
    return prompt_.transcoder != nullptr && id.tap == prompt_.transcoder->config.reads &&
           std::any_of(target_.features.begin(), target_.features.end(),
                       [&](const ActiveFeature& f) { return f.layer == id.layer; });
  }
  bool Changes(TapId id) const override { return id.tap == Tap::kPattern; }

  void Visit(TapId id, const TensorView<float>& value) override {
    const std::int64_t T = prompt_.length(), H = prompt_.config().heads;
    if (id.tap == Tap::kPattern) {
      if (hold_) std::copy_n(prompt_.layers[id.layer].weights.data(), H * T * T, value.data);
      for (const std::int64_t head : heads_) {
        if (head / H == id.layer) value.data[(head % H * T + query_) * T + key_] = 0.0f;
      }
      return;
    }
    const std::int64_t C = prompt_.config().width;
    std::vector<float> row(static_cast<std::size_t>(C));
    for (const ActiveFeature& f : target_.features) {
      if (f.layer != id.layer) continue;
      EncoderRow(*prompt_.transcoder, f.layer, f.feature, row.data());
      sum_ += prompt_.transcoder->layers[f.layer].encoder.bias[f.feature] +
              std::inner_product(row.begin(), row.end(), value.data + f.position * C, 0.0);
    }
  }

  double sum() const { return sum_; }

 private:
  const FrozenPrompt& prompt_;
  const MeasuredTarget& target_;
  std::span<const std::int64_t> heads_;
  std::int64_t query_, key_;
  bool hold_;
  double sum_ = 0.0;
};

// What the frozen model loses.
double FrozenLoss(const FrozenPrompt& prompt, const MeasuredTarget& target,
                  std::span<const std::int64_t> heads, std::int64_t query, std::int64_t key) {
  std::vector<std::int64_t> all(target.features.size());
  std::iota(all.begin(), all.end(), 0);
  const StreamVectors reads =
      target.logit ? ReadBy(prompt, *target.logit) : ReadBy(prompt, target.features, all);
  const std::vector<double> effects = CellEffects(prompt, reads, query, key);
  double loss = 0.0;
  for (const std::int64_t head : heads) loss += effects[head];
  return loss;
}

}  // namespace

double MeasureKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                       std::span<const std::int64_t> heads, std::int64_t query, std::int64_t key,
                       KnockOutMode mode) {
  if (mode == KnockOutMode::kFrozen) {
    return MeasureKnockOut(prompt, target, {}, query, key, KnockOutMode::kAttention) -
           (heads.empty() ? 0.0 : FrozenLoss(prompt, target, heads, query, key));
  }
  KnockOutHooks hooks(prompt, target, heads, query, key, mode == KnockOutMode::kAttention);
  const std::int64_t T = prompt.length(), C = prompt.config().width;
  const Pass pass{.model = *prompt.model, .batch = 1, .length = T, .hooks = &hooks};
  Activations activations(prompt.config(), 1, T, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, prompt.ids.data(), activations);
  if (!target.logit) return hooks.sum();
  const std::vector<float> direction = DirectionOf(prompt, *target.logit);
  return std::inner_product(direction.begin(), direction.end(),
                            activations.ln_f + target.logit->position * C, 0.0);
}

KnockOutShare CheckByKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                              std::span<const std::int64_t> heads, std::int64_t query,
                              std::int64_t key, KnockOutMode mode, std::int64_t random_sets,
                              std::uint64_t seed) {
  const auto measure = [&](std::span<const std::int64_t> set) {
    return MeasureKnockOut(prompt, target, set, query, key, mode);
  };
  std::vector<std::int64_t> all(
      static_cast<std::size_t>(prompt.config().layers * prompt.config().heads));
  std::iota(all.begin(), all.end(), 0);
  KnockOutShare result{
      .before = measure({}), .without_all = measure(all), .without_set = measure(heads)};
  const double effect = result.before - result.without_all;
  const auto share = [&](double value) {
    return effect != 0.0 ? (result.before - value) / effect : 0.0;
  };
  result.share = share(result.without_set);
  std::vector<double> shares;
  for (std::int64_t i = 0; i < random_sets; ++i) {
    RandomStream random(HashCoordinates(seed, {static_cast<std::uint64_t>(i)}));
    // The first of a shuffled list: as many as there are heads in the set.
    for (std::size_t j = 0; j < heads.size(); ++j) {
      std::swap(all[j], all[j + random.Below(all.size() - j)]);
    }
    shares.push_back(share(measure({all.data(), heads.size()})));
    result.random_largest = i == 0 ? shares[0] : std::max(result.random_largest, shares.back());
  }
  if (shares.empty()) return result;
  const auto n = static_cast<double>(shares.size());
  result.random_mean = std::accumulate(shares.begin(), shares.end(), 0.0) / n;
  double squares = 0.0;
  for (const double s : shares) squares += (s - result.random_mean) * (s - result.random_mean);
  result.random_deviation = std::sqrt(squares / n);
  return result;
}

}  // namespace clearhead
