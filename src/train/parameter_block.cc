// SPDX-License-Identifier: MIT
#include "train/parameter_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "kernels/adamw.h"

namespace clearhead {
namespace {

bool AnyBroken(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
}

}  // namespace

ParameterBlock::ParameterBlock(const std::vector<ParameterRun>& runs, const TrainingRanks& together,
                               std::int64_t largest_bucket)
    : together_(together) {
  std::int64_t size = 0;
  for (const ParameterRun& run : runs) size += run.size;
  const Communicator one;
  buckets_ = alone() ? std::vector<GradientBucket>{{0, size, 0}} : CutBuckets(runs, largest_bucket);
  pieces_ = CutOwned(runs, buckets_, alone() ? one : *together_.ranks);
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), 0);
  // Of one stage the last first: what backward reaches last lies at the beginning.
  std::reverse(order_.begin(), order_.end());
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    return buckets_[a].stage < buckets_[b].stage;
  });
  values_ = Buffer<float>(size);
  gradients_ = Buffer<float>(size);
  std::int64_t owned = 0;
  for (const OwnedPiece& piece : pieces_) owned += piece.size;
  first_ = Buffer<float>(owned);
  second_ = Buffer<float>(owned);
  for (Buffer<float>* zero : {&gradients_, &first_, &second_}) {
    std::fill(zero->begin(), zero->end(), 0.0f);
  }
}

void ParameterBlock::Completed(std::int64_t stage) {
  if (alone()) return;
  while (sent_ < order_.size() && buckets_[order_[sent_]].stage <= stage) {
    together_.ranks->StartReduceScatter(Bucket(buckets_[order_[sent_]], gradients_),
                                        together_.wire);
    ++sent_;
  }
}

void ParameterBlock::SumGradients() {
  if (alone()) return;
  while (sent_ < order_.size()) Completed(buckets_[order_[sent_]].stage);
  sent_ = 0;
  together_.ranks->WaitAll();
}

double ParameterBlock::GradientNorm() {
  if (alone()) return std::sqrt(SumOfSquares(gradients_.size(), gradients_.data()));
  double sum = 0.0;
  for (const OwnedPiece& piece : pieces_) {
    sum += SumOfSquares(piece.size, gradients_.data() + piece.at);
  }
  return std::sqrt(together_.ranks->Sum(sum));
}

// Outside of its own shards a rank's gradients are still its own. If nobody has a broken one there,
// the one whose sum is broken broke it.
int ParameterBlock::RankOfBrokenGradients() {
  if (alone()) return 0;
  const Communicator& ranks = *together_.ranks;
  double broken[2] = {};
  for (const GradientBucket& bucket : buckets_) {
    for (int r = 0; r < ranks.size(); ++r) {
      const RankShare share = ranks.Share(bucket.size, r);
      const std::span part = Bucket(bucket, gradients_)
                                 .subspan(static_cast<std::size_t>(share.first),
                                          static_cast<std::size_t>(share.size()));
      if (AnyBroken(part)) broken[r == ranks.rank() ? 1 : 0] = 1.0;
    }
  }
  std::vector<double> all(2 * static_cast<std::size_t>(ranks.size()));
  together_.ranks->AllGather(broken, all);
  for (const std::size_t kind : {0, 1}) {
    for (int r = 0; r < ranks.size(); ++r) {
      if (all[2 * static_cast<std::size_t>(r) + kind] != 0.0) return r;
    }
  }
  return 0;
}

void ParameterBlock::Step(const AdamWOptions& options, double lr, double norm) {
  ++steps_;
  const bool clip = options.clip_norm > 0.0f && norm > options.clip_norm;
  const float scale = clip ? static_cast<float>(options.clip_norm / norm) : 1.0f;
  std::size_t next = 0;  // bucket whose values are not all updated
  const auto send_until = [&](std::int64_t updated) {
    for (; next < buckets_.size(); ++next) {
      const GradientBucket& bucket = buckets_[next];
      if (bucket.first + together_.ranks->Share(bucket.size).last > updated) return;
      together_.ranks->StartAllGather(Bucket(bucket, values_));
    }
  };
  for (const OwnedPiece& piece : pieces_) {
    const AdamW adamw{.lr = static_cast<float>(lr * piece.rate),
                      .beta1 = options.beta1,
                      .beta2 = options.beta2,
                      .epsilon = options.epsilon,
                      .decay = piece.decays ? options.weight_decay : 0.0f};
    AdamWStep(adamw, steps_, scale, piece.size, values_.data() + piece.at,
              gradients_.data() + piece.at, first_.data() + piece.owned,
              second_.data() + piece.owned);
    if (!alone()) send_until(piece.at + piece.size);
  }
  if (alone()) return;
  send_until(values_.size());
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);  // the other ranks' part, too
  together_.ranks->WaitAll();
}

void ParameterBlock::VisitMoment(Moment moment,
                                 const std::function<void(std::span<const float>)>& write) {
  const Buffer<float>& own = moment == Moment::kFirst ? first_ : second_;
  if (alone()) return write(own.span());
  Communicator& ranks = *together_.ranks;
  Buffer<float> part;  // of one rank and bucket
  std::int64_t at = 0;
  for (const GradientBucket& bucket : buckets_) {
    for (int r = 0; r < ranks.size(); ++r) {
      const std::int64_t size = ranks.Share(bucket.size, r).size();
      if (r != ranks.rank() && !ranks.first()) continue;
      if (part.size() < size) part = Buffer<float>(size);
      const std::span values = part.span().subspan(0, static_cast<std::size_t>(size));
      if (r == ranks.rank()) {
        std::copy_n(own.data() + at, size, values.data());
        at += size;
      }
      ranks.ToFirst(r, values);
      if (ranks.first()) write(values);
    }
  }
}

void ParameterBlock::SetMoment(Moment moment, std::span<const std::byte> whole) {
  Check(whole.size() == values_.span().size_bytes(), "a moment has as many values as there are");
  float* own = (moment == Moment::kFirst ? first_ : second_).data();
  for (const OwnedPiece& piece : pieces_) {
    std::memcpy(own + piece.owned,
                whole.data() + piece.at * static_cast<std::int64_t>(sizeof(float)),
                static_cast<std::size_t>(piece.size) * sizeof(float));
  }
}

}  // namespace clearhead
