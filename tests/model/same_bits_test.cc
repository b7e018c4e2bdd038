// SPDX-License-Identifier: MIT
// A model's numbers are the same bits for any number of threads, with packed weights or without,
// and for a sequence whatever others stand in its batch.
#include <gtest/gtest.h>

#include "model/packed_weights.h"
#include "model/run.h"
#include "model_testing.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

constexpr std::int64_t kBatch = 3;

std::vector<std::int32_t> SomeIds(const ModelConfig& config) {
  return RandomIds(config, kBatch * std::min<std::int64_t>(9, config.positions), 3);
}

TEST(SameBits, ForAnyNumberOfThreads) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const auto run = [&](int threads) {
      const UseThreads several(threads);
      return RunModel(model, SomeIds(config), kBatch, {.gradients = true});
    };
    const ModelRun alone = run(1);
    for (const int threads : {2, 3, 7}) {
      const ModelRun together = run(threads);
      EXPECT_EQ(together.logits, alone.logits) << threads;
      EXPECT_EQ(together.parameter_gradients, alone.parameter_gradients) << threads;
    }
  }
}

TEST(SameBits, WithPackedWeights) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    Model model = LivelyModel(config);
    const auto run = [&] { return RunModel(model, SomeIds(config), kBatch, {.gradients = true}); };
    const ModelRun plain = run();
    for (const PackedWays ways : {PackedWays::kForward, PackedWays::kBoth}) {
      PackForUse(&model, ways);
      ASSERT_NE(model.packed, nullptr);
      const ModelRun packed = run();
      EXPECT_EQ(packed.logits, plain.logits);
      EXPECT_EQ(packed.parameter_gradients, plain.parameter_gradients);
    }
  }
}

TEST(SameBits, WhateverElseIsInTheBatch) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const std::vector<std::int32_t> ids = SomeIds(config);
    const std::vector<float> together = RunModel(model, ids, kBatch).logits;
    const auto length = static_cast<std::ptrdiff_t>(ids.size() / kBatch);
    const auto values = static_cast<std::ptrdiff_t>(together.size() / kBatch);
    for (std::ptrdiff_t b = 0; b < kBatch; ++b) {
      const std::vector<std::int32_t> own(ids.begin() + b * length, ids.begin() + (b + 1) * length);
      const std::vector<float> of_batch(together.begin() + b * values,
                                        together.begin() + (b + 1) * values);
      EXPECT_EQ(RunModel(model, own, 1).logits, of_batch) << b;
    }
  }
}

}  // namespace
}  // namespace clearhead
