// SPDX-License-Identifier: MIT
// Values that are trained, with gradients and moments, and AdamW over them. Knows no model: what
// the values mean is the business of whoever binds them.
//
// With several ranks every one has all values and its own gradients, but moments only of its shards
// (shards.h): a step is reduce-scatter of the gradients, update of the own shards, all-gather of
// the values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "train/shards.h"

namespace clearhead {

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;  // of runs that decay
  float clip_norm = 1.0f;     // largest global gradient norm; 0 switches clipping off
};

// Who trains together, and how gradients travel between them. Null: one rank alone.
struct TrainingRanks {
  Communicator* ranks = nullptr;
  DType wire = DType::kF32;  // or kBF16: half the bytes, gradients rounded on their way

  bool writes() const { return ranks == nullptr || ranks->first(); }  // files
};

class ParameterBlock {
 public:
  ParameterBlock() = default;
  // Values are uninitialised, gradients and moments 0.
  explicit ParameterBlock(const std::vector<ParameterRun>& runs, const TrainingRanks& together = {},
                          std::int64_t largest_bucket = kLargestBucket);

  std::span<float> values() { return values_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }  // from a checkpoint

  // What this rank has of the moments: everything if it is alone.
  enum class Moment { kFirst, kSecond };
  std::int64_t owned() const { return first_.size(); }
  // Calls write(part) for all of a moment in the order of the values, on the first rank. Every rank
  // calls this.
  void VisitMoment(Moment moment, const std::function<void(std::span<const float>)>& write);
  // From the whole of a moment in fp32 (any alignment): every rank takes what it owns.
  void SetMoment(Moment moment, std::span<const std::byte> whole);

  // Backward is done with the gradients of all stages up to this one: they may set off.
  void Completed(std::int64_t stage);
  // All gradients are complete; waits for their sums. Then a rank's own shards of the gradients are
  // those of all ranks.
  void SumGradients();

  // Of the gradients of all ranks, after SumGradients.
  double GradientNorm();
  // After a norm that is no number: the first rank whose own gradients are none.
  int RankOfBrokenGradients();

  // Clips by `norm` (as returned above), steps, and clears the gradients.
  void Step(const AdamWOptions& options, double lr, double norm);

  // 16 MB: large enough for a network's full speed, small enough that a block of GPT-2 has two.
  static constexpr std::int64_t kLargestBucket = 4 << 20;

 private:
  bool alone() const { return together_.ranks == nullptr || together_.ranks->alone(); }
  std::span<float> Bucket(const GradientBucket& bucket, Buffer<float>& of) {
    return of.span().subspan(static_cast<std::size_t>(bucket.first),
                             static_cast<std::size_t>(bucket.size));
  }

  TrainingRanks together_;
  Buffer<float> values_, gradients_;
  Buffer<float> first_, second_;  // moments of the owned pieces
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> order_;  // of the buckets' completion
  std::size_t sent_ = 0;            // of them, in this step
  std::vector<OwnedPiece> pieces_;
  std::int64_t steps_ = 0;
};

}  // namespace clearhead
