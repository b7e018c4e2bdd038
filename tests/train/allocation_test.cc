// SPDX-License-Identifier: MIT
// A training step takes no memory: every allocation of the process is counted while one runs, on
// whichever thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "core/random.h"
#include "train/sparsify_step.h"
#include "train/step.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CLEARHEAD_COUNTS_ALLOCATIONS 0  // the sanitizer has replaced malloc itself
#else
#define CLEARHEAD_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
}  // namespace

#if CLEARHEAD_COUNTS_ALLOCATIONS
namespace {
void Count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) noexcept {
  Count();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) noexcept {
  Count();
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  Count();
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? 12 : 0;
}
}
#endif

namespace clearhead {
namespace {

std::vector<std::int32_t> SomeTokens(const ModelConfig& config) {
  std::vector<std::int32_t> tokens(5000);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(Mix64(i) % static_cast<std::uint64_t>(config.vocabulary));
  }
  return tokens;
}

// Of the third call; in the first two threads take their scratch.
template <typename Run>
long AllocationsIn(const Run& run) {
  run(0);
  run(4);
  allocations = 0;
  counting = true;
  run(8);
  counting = false;
  return allocations;
}

long AllocationsInStep(const ModelConfig& config, const StepShape& shape,
                       const std::string& part = "all") {
  Optimizer optimizer(RandomModel(config, 1),
                      {.weight_decay = 0.0f, .part = ParseTrainedPart(part)});
  const std::vector<std::int32_t> tokens = SomeTokens(config);
  Batches batches(tokens, shape.context, 1);
  TrainStep step(config, shape);
  return AllocationsIn([&](std::int64_t sample) {
    const StepResult r = step.Gradients(optimizer, batches, sample);
    optimizer.Step(1e-3, r.gradient_norm);
  });
}

long AllocationsInSparsifyStep(const Model& dense, const std::string& part) {
  Model student = dense;
  student.config.attention = AttentionKind::kGated;
  Optimizer optimizer(student, {.weight_decay = 0.0f, .part = ParseTrainedPart(part)});
  const std::vector<std::int32_t> tokens = SomeTokens(dense.config);
  Batches batches(tokens, 96, 1);
  SparsifyStep step(student.config, {.shape = {.batch = 4, .context = 96}});
  return AllocationsIn([&](std::int64_t sample) {
    const SparsifyStepResult r = step.Gradients(optimizer, dense, batches, sample, 0.5);
    optimizer.Step(1e-3, r.gradient_norm);
  });
}

TEST(TrainStep, AllocatesNothing) {
  if (!CLEARHEAD_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns malloc";
  ModelConfig config{
      .layers = 2, .heads = 4, .width = 64, .vocabulary = 300, .positions = 96, .inner = 256};
  EXPECT_EQ(AllocationsInStep(config, {.batch = 4, .context = 96}), 0);
  EXPECT_EQ(
      AllocationsInStep(config, {.batch = 2, .context = 96, .accumulation = 2, .recompute = true}),
      0);
  config.attention = AttentionKind::kGated;
  EXPECT_EQ(AllocationsInStep(config, {.batch = 4, .context = 96}), 0);
}

TEST(TrainStep, AllocatesNothingWhateverIsTrained) {
  if (!CLEARHEAD_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the address sanitizer owns malloc";
  ModelConfig config{
      .layers = 2, .heads = 4, .width = 64, .vocabulary = 300, .positions = 96, .inner = 256};
  const Model dense = RandomModel(config, 1);
  for (const std::string part : {"all", "attention", "qk", "lora:4"}) {
    EXPECT_EQ(AllocationsInStep(config, {.batch = 4, .context = 96}, part), 0) << part;
    EXPECT_EQ(AllocationsInSparsifyStep(dense, part), 0) << part;
  }
}

TEST(TrainStep, TheCounterCounts) {
  if (!CLEARHEAD_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns malloc";
  allocations = 0;
  counting = true;
  const auto block = std::make_unique<Buffer<float>>(1000);
  counting = false;
  EXPECT_GE(allocations, 2);
  EXPECT_EQ(block->size(), 1000);
}

}  // namespace
}  // namespace clearhead
