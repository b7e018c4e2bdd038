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

using HeadSets = std::span<const std::vector<std::int64_t>>;

// Sequence b of the batch is the prompt with the cells of sets[b] closed.
class KnockOutHooks final : public Hooks {
 public:
  KnockOutHooks(const FrozenPrompt& prompt, const MeasuredTarget& target, HeadSets sets,
                std::int64_t query, std::int64_t key, bool hold)
      : prompt_(prompt),
        target_(target),
        sets_(sets),
        query_(query),
        key_(key),
        hold_(hold),
        sums_(sets.size(), 0.0) {}

  bool Wants(TapId id) const override {
    if (id.tap == Tap::kPattern) return true;
    return prompt_.transcoder != nullptr && id.tap == prompt_.transcoder->config.reads &&
           std::any_of(target_.features.begin(), target_.features.end(),
                       [&](const ActiveFeature& f) { return f.layer == id.layer; });
  }
  bool Changes(TapId id) const override { return id.tap == Tap::kPattern; }

  void Visit(TapId id, const TensorView<float>& value) override {
    const std::int64_t T = prompt_.length(), H = prompt_.config().heads;
    const std::int64_t C = prompt_.config().width;
    for (std::size_t b = 0; b < sets_.size(); ++b) {
      const auto at = static_cast<std::int64_t>(b);
      if (id.tap == Tap::kPattern) {
        float* pattern = value.data + at * H * T * T;
        if (hold_) std::copy_n(prompt_.layers[id.layer].weights.data(), H * T * T, pattern);
        for (const std::int64_t head : sets_[b]) {
          if (head / H == id.layer) pattern[(head % H * T + query_) * T + key_] = 0.0f;
        }
      } else {
        sums_[b] += PreActivations(id.layer, value.data + at * T * C);
      }
    }
  }

  const std::vector<double>& sums() const { return sums_; }

 private:
  // read [T,C]: what the layer's features read.
  double PreActivations(std::int64_t layer, const float* read) const {
    const std::int64_t C = prompt_.config().width;
    std::vector<float> row(static_cast<std::size_t>(C));
    double sum = 0.0;
    for (const ActiveFeature& f : target_.features) {
      if (f.layer != layer) continue;
      EncoderRow(*prompt_.transcoder, f.layer, f.feature, row.data());
      sum += prompt_.transcoder->layers[f.layer].encoder.bias[f.feature] +
             std::inner_product(row.begin(), row.end(), read + f.position * C, 0.0);
    }
    return sum;
  }

  const FrozenPrompt& prompt_;
  const MeasuredTarget& target_;
  HeadSets sets_;
  std::int64_t query_, key_;
  bool hold_;
  std::vector<double> sums_;
};

// What the frozen model has left: every cell's effect is a number of its own.
std::vector<double> MeasureFrozen(const FrozenPrompt& prompt, const MeasuredTarget& target,
                                  HeadSets sets, std::int64_t query, std::int64_t key) {
  std::vector<std::int64_t> all(target.features.size());
  std::iota(all.begin(), all.end(), 0);
  const StreamVectors reads =
      target.logit ? ReadBy(prompt, *target.logit) : ReadBy(prompt, target.features, all);
  const std::vector<double> effects = CellEffects(prompt, reads, query, key);
  const double before = MeasureKnockOut(prompt, target, {}, query, key, KnockOutMode::kAttention);
  std::vector<double> left;
  for (const std::vector<std::int64_t>& set : sets) {
    left.push_back(before);
    for (const std::int64_t head : set) left.back() -= effects[head];
  }
  return left;
}

std::vector<double> MeasureBatch(const FrozenPrompt& prompt, const MeasuredTarget& target,
                                 HeadSets sets, std::int64_t query, std::int64_t key, bool hold) {
  KnockOutHooks hooks(prompt, target, sets, query, key, hold);
  const std::int64_t T = prompt.length(), C = prompt.config().width;
  const auto B = static_cast<std::int64_t>(sets.size());
  std::vector<std::int32_t> ids;
  for (std::int64_t b = 0; b < B; ++b) {
    ids.insert(ids.end(), prompt.ids.begin(), prompt.ids.end());
  }
  const Pass pass{.model = *prompt.model, .batch = B, .length = T, .hooks = &hooks};
  Activations activations(prompt.config(), B, T, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, ids.data(), activations);
  if (!target.logit) return hooks.sums();
  const std::vector<float> direction = DirectionOf(prompt, *target.logit);
  std::vector<double> values;
  for (std::int64_t b = 0; b < B; ++b) {
    const float* row = activations.ln_f + (b * T + target.logit->position) * C;
    values.push_back(std::inner_product(direction.begin(), direction.end(), row, 0.0));
  }
  return values;
}

}  // namespace

std::vector<double> MeasureKnockOuts(const FrozenPrompt& prompt, const MeasuredTarget& target,
                                     HeadSets sets, std::int64_t query, std::int64_t key,
                                     KnockOutMode mode) {
  if (mode == KnockOutMode::kFrozen) return MeasureFrozen(prompt, target, sets, query, key);
  constexpr std::int64_t kRows = 256;  // enough that products do not wait for weights
  const auto side_by_side =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kRows / prompt.length()));
  std::vector<double> values;
  while (!sets.empty()) {
    const HeadSets now = sets.first(std::min(side_by_side, sets.size()));
    const std::vector<double> measured =
        MeasureBatch(prompt, target, now, query, key, mode == KnockOutMode::kAttention);
    values.insert(values.end(), measured.begin(), measured.end());
    sets = sets.subspan(now.size());
  }
  return values;
}

double MeasureKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                       std::span<const std::int64_t> heads, std::int64_t query, std::int64_t key,
                       KnockOutMode mode) {
  const std::vector<std::int64_t> set(heads.begin(), heads.end());
  return MeasureKnockOuts(prompt, target, {&set, 1}, query, key, mode)[0];
}

KnockOutShare CheckByKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                              std::span<const std::int64_t> heads, std::int64_t query,
                              std::int64_t key, KnockOutMode mode, std::int64_t random_sets,
                              std::uint64_t seed) {
  std::vector<std::int64_t> all(
      static_cast<std::size_t>(prompt.config().layers * prompt.config().heads));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<std::int64_t>> sets = {{}, all, {heads.begin(), heads.end()}};
  for (std::int64_t i = 0; i < random_sets; ++i) {
    RandomStream random(HashCoordinates(seed, {static_cast<std::uint64_t>(i)}));
    // The first of a shuffled list: as many as there are heads in the set.
    for (std::size_t j = 0; j < heads.size(); ++j) {
      std::swap(all[j], all[j + random.Below(all.size() - j)]);
    }
    sets.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(heads.size()));
  }
  const std::vector<double> values = MeasureKnockOuts(prompt, target, sets, query, key, mode);
  KnockOutShare result{.before = values[0], .without_all = values[1], .without_set = values[2]};
  const double effect = result.before - result.without_all;
  const auto share = [&](double value) {
    return effect != 0.0 ? (result.before - value) / effect : 0.0;
  };
  result.share = share(result.without_set);
  std::vector<double> shares;
  for (std::size_t i = 3; i < values.size(); ++i) {
    shares.push_back(share(values[i]));
    result.random_largest = i == 3 ? shares[0] : std::max(result.random_largest, shares.back());
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
