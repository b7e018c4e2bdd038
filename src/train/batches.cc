// SPDX-License-Identifier: MIT
#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {

void CheckLongEnough(std::span<const std::int32_t> tokens, std::int64_t context) {
  if (static_cast<std::int64_t>(tokens.size()) <= context) {
    Fail("the text is {} tokens long; a context of {} needs at least {}", tokens.size(), context,
         context + 1);
  }
}

void CheckVocabulary(std::span<const std::int32_t> tokens, std::int64_t vocabulary) {
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      Fail("token id {} of the text is outside the model's vocabulary of {}", token, vocabulary);
    }
  }
}

Batches::Batches(std::span<const std::int32_t> tokens, std::int64_t context, std::uint64_t seed,
                 std::vector<std::int64_t> starts)
    : tokens_(tokens), context_(context), seed_(seed), starts_(std::move(starts)) {
  if (context < 1) Fail("a context of {} was asked for; at least 1 is needed", context);
  CheckLongEnough(tokens, context);
  last_start_ = static_cast<std::int64_t>(tokens.size()) - 1 - context;
  if (starts_.empty()) {
    samples_ = (static_cast<std::int64_t>(tokens.size()) - 1) / context;
  } else {
    std::erase_if(starts_, [&](std::int64_t start) { return start > last_start_; });
    if (starts_.empty()) Fail("no line of the text is followed by a context of {} tokens", context);
    samples_ = static_cast<std::int64_t>(starts_.size());
  }
  order_.resize(static_cast<std::size_t>(samples_));
}

void Batches::StartEpoch(std::int64_t epoch) {
  epoch_ = epoch;
  RandomStream random(HashCoordinates(seed_, {0, static_cast<std::uint64_t>(epoch)}));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
}

std::int64_t Batches::Start(std::int64_t sample) {
  if (sample / samples_ != epoch_) StartEpoch(sample / samples_);
  const auto place = static_cast<std::size_t>(order_[static_cast<std::size_t>(sample % samples_)]);
  if (!starts_.empty()) return starts_[place];
  const std::uint64_t jitter = HashCoordinates(seed_, {1, static_cast<std::uint64_t>(sample)});
  const std::int64_t start =
      static_cast<std::int64_t>(place) * context_ +
      static_cast<std::int64_t>(jitter % static_cast<std::uint64_t>(context_));
  return std::min(start, last_start_);
}

void Batches::Fill(std::int64_t first, std::int64_t batch, std::int32_t* inputs,
                   std::int32_t* targets) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int32_t* from = tokens_.data() + Start(first + b);
    std::copy(from, from + context_, inputs + b * context_);
    std::copy(from + 1, from + context_ + 1, targets + b * context_);
  }
}

}  // namespace clearhead
