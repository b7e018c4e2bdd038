// Batches from a token stream, in an order that is a pure function of (seed, sample number): a run resumed
// at sample n sees what it would have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clearhead {

// The stream is cut into windows of `context` inputs and their next tokens. Every epoch starts the cuts at
// another offset and visits the windows in another order; each window comes once per epoch.
class Batches {
 public:
  // Throws Error if the stream is shorter than one window.
  Batches(std::span<const std::int32_t> tokens, std::int64_t context, std::uint64_t seed);

  // Fills inputs and targets [batch, context] with samples first .. first+batch-1.
  void Fill(std::int64_t first, std::int64_t batch, std::int32_t* inputs, std::int32_t* targets);

  std::int64_t windows_per_epoch() const { return windows_; }

 private:
  void StartEpoch(std::int64_t epoch);

  std::span<const std::int32_t> tokens_;
  std::int64_t context_;
  std::uint64_t seed_;
  std::int64_t windows_ = 0;
  std::int64_t epoch_ = -1;
  std::int64_t offset_ = 0;
  std::vector<std::int32_t> order_;
};

}  // namespace clearhead
