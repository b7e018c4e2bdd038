// SPDX-License-Identifier: MIT
// Batches from a token stream, in an order that is a pure function of (seed, sample number): a run
// resumed at sample n sees what it would have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clearhead {

// Throws Error if the stream is shorter than one window and its last target.
void CheckLongEnough(std::span<const std::int32_t> tokens, std::int64_t context);

// Throws Error if a token is outside the vocabulary, naming the first.
void CheckVocabulary(std::span<const std::int32_t> tokens, std::int64_t vocabulary);

// The stream is cut into stretches of `context` tokens, which every epoch visits once in another
// order; a sample starts at a random place inside its stretch. (One offset for a whole epoch would
// lock the phase of texts with a period, such as lists of sums, to the positions, and shift it at
// every epoch: the loss then jumps.) With given `starts` the samples start there and nowhere else:
// for texts whose lines are examples by themselves.
class Batches {
 public:
  Batches(std::span<const std::int32_t> tokens, std::int64_t context, std::uint64_t seed,
          std::vector<std::int64_t> starts = {});

  // Fills inputs and targets [batch, context] with samples first .. first+batch-1.
  void Fill(std::int64_t first, std::int64_t batch, std::int32_t* inputs, std::int32_t* targets);

  // Where in the stream a sample starts.
  std::int64_t Start(std::int64_t sample);

  std::int64_t samples_per_epoch() const { return samples_; }

 private:
  void StartEpoch(std::int64_t epoch);

  std::span<const std::int32_t> tokens_;
  std::int64_t context_;
  std::uint64_t seed_;
  std::vector<std::int64_t> starts_;
  std::int64_t samples_ = 0;     // per epoch: starts, or stretches
  std::int64_t last_start_ = 0;  // of the last whole window
  std::int64_t epoch_ = -1;
  std::vector<std::int32_t> order_;
};

}  // namespace clearhead
