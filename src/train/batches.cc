#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {

void CheckLongEnough(std::span<const std::int32_t> tokens, std::int64_t context) {
  if (static_cast<std::int64_t>(tokens.size()) < context + 1) {
    Fail("the text is {} tokens long; a context of {} needs at least {}", tokens.size(), context, context + 1);
  }
}

Batches::Batches(std::span<const std::int32_t> tokens, std::int64_t context, std::uint64_t seed)
    : tokens_(tokens), context_(context), seed_(seed) {
  CheckLongEnough(tokens, context);
  const auto count = static_cast<std::int64_t>(tokens.size());
  stretches_ = (count - 1) / context;
  last_start_ = count - 1 - context;
  order_.resize(static_cast<std::size_t>(stretches_));
}

void Batches::StartEpoch(std::int64_t epoch) {
  epoch_ = epoch;
  RandomStream random(HashCoordinates(seed_, {0, static_cast<std::uint64_t>(epoch)}));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
}

void Batches::Fill(std::int64_t first, std::int64_t batch, std::int32_t* inputs, std::int32_t* targets) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t sample = first + b;
    if (sample / stretches_ != epoch_) StartEpoch(sample / stretches_);
    const std::int64_t stretch = order_[static_cast<std::size_t>(sample % stretches_)];
    const std::uint64_t place = HashCoordinates(seed_, {1, static_cast<std::uint64_t>(sample)});
    const std::int64_t start =
        stretch * context_ + static_cast<std::int64_t>(place % static_cast<std::uint64_t>(context_));
    const std::int32_t* from = tokens_.data() + std::min(start, last_start_);
    std::copy(from, from + context_, inputs + b * context_);
    std::copy(from + 1, from + context_ + 1, targets + b * context_);
  }
}

}  // namespace clearhead
