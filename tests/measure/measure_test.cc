// SPDX-License-Identifier: MIT
// That the measurements do the work they name. How fast it is, is not a test's business.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "measure/attention_times.h"
#include "measure/bench_inputs.h"
#include "measure/decoding_speed.h"
#include "measure/forward_times.h"
#include "measure/machine_speed.h"
#include "measure/single_task.h"
#include "measure/step_times.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Budget kOnce = {.seconds = 0.0, .least_runs = 1};

ModelConfig TinyConfig() {
  return {.layers = 1, .heads = 2, .width = 16, .vocabulary = 40, .positions = 1024, .inner = 24};
}

TEST(Timing, RunsAsOftenAsAsked) {
  int calls = 0, others = 0;
  EXPECT_EQ(EachSeconds(3, [&] { ++calls; }).size(), 3u);
  EXPECT_EQ(calls, 4);  // one to warm up
  calls = 0;
  EXPECT_GE(BestSeconds({.seconds = 0.0, .least_runs = 2}, [&] { ++calls; }), 0.0);
  EXPECT_EQ(calls, 3);
  calls = 0;
  BestSecondsInTurns(
      {.seconds = 0.0, .least_runs = 5}, [&] { ++calls; }, [&] { ++others; });
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(others, 6);
}

class MachineSpeed : public WithThreads {};

// More rows for each thread than the 4096 that a thread once had room for.
TEST_P(MachineSpeed, EveryRowIsReadAndHasASumOfItsOwn) {
  constexpr std::int64_t kRows = 2 * 4500;
  Buffer<float> values(kRows * kReadWidth);
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::fill_n(values.data() + r * kReadWidth, kReadWidth, 0.0f);
    values[r * kReadWidth + 1] = static_cast<float>(r + 1);
    values[r * kReadWidth + kReadWidth - 1] = 1.0f;
  }
  values[1] = 1.0f;
  Buffer<float> sums(kRows + 1);
  std::fill(sums.begin(), sums.end(), -1.0f);
  ReadOnce(kRows, values.data(), sums.data());
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    if (sums[r] != static_cast<float>(r + 2)) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sums[kRows], -1.0f) << "written beyond the rows";
}
INSTANTIATE_TEST_SUITE_P(Threads, MachineSpeed, testing::Values(1, 2, 3, 8));

TEST(Measure, LimitsArePositive) {
  const Buffer<float> values = RandomValues(8 * kReadWidth);
  EXPECT_GT(ReadSpeed(values.span(), kOnce), 0.0);
  EXPECT_GT(SgemmSpeed(kOnce), 0.0);
}

TEST(Measure, Shape124MIsThe124MModel) { EXPECT_EQ(Shape124M().ParameterCount(), 124439808); }

TEST(Measure, ForwardAndDecodingRun) {
  const Model model = RandomModel(TinyConfig(), 1);
  const ForwardTimes forward = TimeForward(model, 12, kOnce);
  EXPECT_GT(forward.seconds, 0.0);
  EXPECT_GT(forward.products_seconds, 0.0);
  const DecodingSpeed decoding = TimeDecoding(model, 3);
  EXPECT_GT(decoding.tokens_per_second, 0.0);
  EXPECT_EQ(decoding.bytes_per_token,
            4.0 * static_cast<double>(TinyConfig().ParameterCount() - 1023 * 16));
  EXPECT_GT(WritingTokensPerSecond(model, 3, 2), 0.0);
}

TEST(Measure, StepsOfEachKindRun) {
  const Model model = RandomModel(TinyConfig(), 1);
  const StepShape shape{.batch = 2, .context = 8};
  const StepRates rates = TimeSteps(model, shape, kOnce, /*gated=*/true);
  EXPECT_GT(rates.dense, 0.0);
  EXPECT_GT(rates.gated.value_or(0.0), 0.0);
  EXPECT_GT(rates.with_teacher, 0.0);
  EXPECT_FALSE(TimeSteps(model, shape, kOnce, /*gated=*/false).gated);
  EXPECT_GT(TrainTokensPerSecond(model, shape, kOnce), 0.0);
}

TEST(Measure, GatesAreOpenAsSaid) {
  AttentionWork work(1, 2, 256, 64);
  work.Sampled();
  EXPECT_NEAR(work.OpenShare(), 0.5, 0.05);  // bias 0: as many above as below
  work.Hard();
  EXPECT_NEAR(work.OpenShare(), 0.01, 0.01);
  EXPECT_EQ(AttentionWork(1, 1, 1, 8).FlopsWithBackward(), 7.0 * 2.0 * 8.0);
}

TEST(SingleTask, EveryNameHasItsMeasurement) {
  for (const SingleTask& task : SingleTasks()) {
    SCOPED_TRACE(task.name);
    EXPECT_EQ(&FindSingleTask(task.name), &task);
    const std::vector<double> seconds = TimeSingleTask(task, TinyConfig(), 1);
    EXPECT_EQ(seconds.size(), 1u);
    EXPECT_THAT(seconds, Each(Gt(0.0)));
  }
  EXPECT_THAT([] { FindSingleTask("sleep"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'sleep'"), HasSubstr("gated-attention"))));
}

}  // namespace
}  // namespace clearhead
