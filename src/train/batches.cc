#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {

Batches::Batches(std::span<const std::int32_t> tokens, std::int64_t context, std::uint64_t seed)
    : tokens_(tokens), context_(context), seed_(seed) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < context + 1) {
    Fail("the text is {} tokens long; a context of {} needs at least {}", count, context, context + 1);
  }
  // Room for an offset of up to context-1, unless the text has a single window.
  windows_ = std::max<std::int64_t>(1, (count - 1) / context - 1);
  order_.resize(static_cast<std::size_t>(windows_));
}

void Batches::StartEpoch(std::int64_t epoch) {
  epoch_ = epoch;
  RandomStream random(HashCoordinates(seed_, {static_cast<std::uint64_t>(epoch)}));
  const std::int64_t slack = static_cast<std::int64_t>(tokens_.size()) - 1 - windows_ * context_;
  offset_ = static_cast<std::int64_t>(
      random.Below(static_cast<std::uint64_t>(std::min(slack, context_ - 1) + 1)));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
}

void Batches::Fill(std::int64_t first, std::int64_t batch, std::int32_t* inputs, std::int32_t* targets) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t sample = first + b;
    if (sample / windows_ != epoch_) StartEpoch(sample / windows_);
    const std::int64_t window = order_[static_cast<std::size_t>(sample % windows_)];
    const std::int32_t* from = tokens_.data() + offset_ + window * context_;
    std::copy(from, from + context_, inputs + b * context_);
    std::copy(from + 1, from + context_ + 1, targets + b * context_);
  }
}

}  // namespace clearhead
