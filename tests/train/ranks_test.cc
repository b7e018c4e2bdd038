// SPDX-License-Identifier: MIT
// Training by several ranks, which are threads here: the run of one rank, shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/file.h"
#include "core/random.h"
#include "support/temporary_folder.h"
#include "support/thread_ranks.h"
#include "train/metrics_log.h"
#include "train/sparsify.h"
#include "train/train.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;

const ModelConfig kTiny{
    .layers = 3, .heads = 2, .width = 16, .vocabulary = 31, .positions = 12, .inner = 64};

std::vector<std::int32_t> Tokens(std::int64_t count) {
  RandomStream random(2);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.Below(7) + random.Below(9)));
  }
  return tokens;
}

TrainOptions Options(std::int64_t steps = 9) {
  TrainOptions options;
  options.shape = {.batch = 7, .context = 12, .accumulation = 2};  // 7: shares of different sizes
  options.schedule = {.peak = 1e-2, .warmup = 2, .total = steps};
  options.seed = 5;
  options.run.eval_every = 4;
  options.run.checkpoint_every = 4;
  return options;
}

// Trains with `size` ranks into `out`; the messages of those that failed.
std::vector<std::string> TrainOn(int size, const TrainOptions& options, const fs::path& out,
                                 std::int64_t stop_at = 0) {
  const Model start = RandomModel(kTiny, 1);
  const std::vector<std::int32_t> tokens = Tokens(700), valid = Tokens(90);
  return RunRanks(size, [&](Communicator& ranks) {
    TrainOptions own = options;
    own.run.together.ranks = &ranks;
    std::int64_t done = 0;
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const TrainProgress& p) { done = p.step; };
    // One rank alone is asked to stop.
    callbacks.should_stop = [&] {
      return stop_at > 0 && ranks.rank() == size - 1 && done >= stop_at;
    };
    Train(start, tokens, valid, own, out, callbacks);
  });
}

std::vector<double> Losses(const fs::path& out, const char* name = "loss") {
  std::vector<double> losses;
  for (const Json& line : ReadMetrics(out / "metrics.jsonl")) {
    if (line.contains(name)) losses.push_back(line[name].get<double>());
  }
  return losses;
}

// A divergence of the first steps is a difference of equal logarithms in fp32: below 1e-4 it has no
// relative accuracy.
void ExpectClose(const std::vector<double>& a, const std::vector<double>& b, double within) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], within * std::max(std::abs(b[i]), 1e-4)) << "step " << i;
  }
}

class TrainRanks : public ::testing::TestWithParam<int> {};

TEST_P(TrainRanks, MakeTheRunOfOneRank) {
  const TemporaryFolder folder;
  EXPECT_THAT(TrainOn(1, Options(), folder / "one"), Each(""));
  EXPECT_THAT(TrainOn(GetParam(), Options(), folder / "some"), Each(""));
  for (const char* name : {"loss", "gradient_norm", "valid_loss"}) {
    const auto one = Losses(folder / "one", name), some = Losses(folder / "some", name);
    EXPECT_EQ(one.size(), std::string_view(name) == "valid_loss" ? 3u : 9u);
    ExpectClose(some, one, 1e-4);
  }
  // The same number again: the same bytes.
  EXPECT_THAT(TrainOn(GetParam(), Options(), folder / "again"), Each(""));
  EXPECT_EQ(ReadFile(folder / "again/model.safetensors"),
            ReadFile(folder / "some/model.safetensors"));
}

TEST_P(TrainRanks, SparsifyOnThemIsTheRunOfOneRank) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(kTiny, 1);
  const std::vector<std::int32_t> tokens = Tokens(700), valid = Tokens(90);
  // With "all" the penalty also looks at every head's gates over the whole batch.
  for (const char* part : {"all", "qk", "lora:2"}) {
    const auto sparsify = [&](int size, const fs::path& out) {
      EXPECT_THAT(RunRanks(size,
                           [&](Communicator& ranks) {
                             SparsifyOptions o;
                             o.shape = {.batch = 6, .context = 12, .accumulation = 1};
                             o.steps = 6;
                             o.warmup = 1;
                             o.tolerance = 10.0;
                             o.seed = 3;
                             o.concentrate = std::string_view(part) == "all";
                             o.optimizer.part = ParseTrainedPart(part);
                             o.run.together.ranks = &ranks;
                             Sparsify(dense, tokens, valid, o, out, {});
                           }),
                  Each(""));
    };
    const fs::path one = folder / (std::string(part) + "-1"), some = folder / part;
    sparsify(1, one);
    sparsify(GetParam(), some);
    for (const char* name : {"loss", "dense_loss", "divergence", "gate_probability",
                             "sampled_edge_fraction", "beta", "gradient_norm"}) {
      SCOPED_TRACE(std::string(part) + " " + name);
      ExpectClose(Losses(some, name), Losses(one, name), 1e-3);
    }
    EXPECT_TRUE(fs::exists(some / "model.safetensors"));
  }
}

TEST_P(TrainRanks, EachHasItsPartOfTheMoments) {
  const std::vector<ParameterRun> runs = {{1000, true, 3}, {37, false, 3}, {5000, true, 2},
                                          {64, false, 1},  {900, true, 1}, {3, false, 0}};
  std::vector<std::int64_t> owned(static_cast<std::size_t>(GetParam()));
  const auto messages = RunRanks(GetParam(), [&](Communicator& ranks) {
    ParameterBlock block(runs, {.ranks = &ranks}, 512);
    owned[static_cast<std::size_t>(ranks.rank())] = block.owned();
    EXPECT_NEAR(static_cast<double>(block.owned()), 7004.0 / GetParam(), 7004.0 / 512 + 6);
  });
  EXPECT_THAT(messages, Each(""));
  EXPECT_EQ(std::accumulate(owned.begin(), owned.end(), std::int64_t{0}), 7004);
}

// AdamW on shards, through small buckets, is AdamW.
TEST_P(TrainRanks, ShardsAreUpdatedAsTheWhole) {
  const std::vector<ParameterRun> runs = {{1000, true, 2}, {37, false, 2}, {5000, true, 1}};
  const auto value = [](std::int64_t i) { return std::sin(static_cast<float>(i)); };
  const auto train = [&](ParameterBlock& block, float share, std::vector<double>* norms) {
    for (std::int64_t i = 0; i < 6037; ++i) block.values()[static_cast<std::size_t>(i)] = value(i);
    for (int step = 0; step < 3; ++step) {
      for (std::int64_t i = 0; i < 6037; ++i) {
        block.gradients()[static_cast<std::size_t>(i)] += share * value(7 * i + step);
      }
      block.Completed(1);
      block.SumGradients();
      norms->push_back(block.GradientNorm());
      block.Step({.clip_norm = 3.0f}, 0.01, norms->back());
    }
  };
  ParameterBlock whole(runs);
  std::vector<double> norms;
  train(whole, 1.0f, &norms);
  const auto messages = RunRanks(GetParam(), [&](Communicator& ranks) {
    ParameterBlock block(runs, {.ranks = &ranks}, 777);
    std::vector<double> own;
    train(block, 1.0f / static_cast<float>(ranks.size()), &own);
    ExpectClose(own, norms, 1e-5);
    for (std::size_t i = 0; i < 6037; ++i) {
      ASSERT_NEAR(block.values()[i], whole.values()[i], 1e-5f) << i;
      ASSERT_EQ(block.gradients()[i], 0.0f);
    }
  });
  EXPECT_THAT(messages, Each(""));
}

TEST_P(TrainRanks, TheRankWithABrokenGradientIsFound) {
  for (const std::int64_t place : {0, 699, 400}) {
    const auto messages = RunRanks(GetParam(), [&](Communicator& ranks) {
      ParameterBlock block({{700, true, 0}}, {.ranks = &ranks}, 350);
      if (ranks.rank() == 1) {
        block.gradients()[static_cast<std::size_t>(place)] =
            std::numeric_limits<float>::quiet_NaN();
      }
      block.SumGradients();
      EXPECT_TRUE(std::isnan(block.GradientNorm()));
      EXPECT_EQ(block.RankOfBrokenGradients(), 1) << place;
    });
    EXPECT_THAT(messages, Each(""));
  }
}

INSTANTIATE_TEST_SUITE_P(Train, TrainRanks, ::testing::Values(2, 3));

TEST(TrainRanksResume, GoesOnWithAnotherNumberOfThem) {
  const TemporaryFolder folder;
  EXPECT_THAT(TrainOn(1, Options(), folder / "one"), Each(""));
  TrainOptions options = Options();
  const fs::path out = folder / "some";
  EXPECT_THAT(TrainOn(2, options, out, /*stop_at=*/3), Each(""));
  EXPECT_EQ(Losses(out).size(), 3u);
  options.run.resume = true;
  EXPECT_THAT(TrainOn(3, options, out, /*stop_at=*/6), Each(""));
  EXPECT_THAT(TrainOn(2, options, out, /*stop_at=*/7), Each(""));
  EXPECT_THAT(TrainOn(1, options, out), Each(""));
  ExpectClose(Losses(out), Losses(folder / "one"), 1e-4);
  EXPECT_FALSE(fs::exists(out / "checkpoint"));
}

TEST(TrainRanksRefusal, EverybodyEndsWithOneCause) {
  const TemporaryFolder folder;
  TrainOptions options = Options();
  options.shape.batch = 2;
  EXPECT_THAT(TrainOn(3, options, folder / "few"),
              Each(HasSubstr("a batch of 2 cannot be shared by 3 ranks")));

  // Another text on one of them.
  const Model start = RandomModel(kTiny, 1);
  const auto messages = RunRanks(2, [&](Communicator& ranks) {
    TrainOptions own = Options();
    own.run.together.ranks = &ranks;
    Train(start, Tokens(700 + ranks.rank()), {}, own, folder / "text", {});
  });
  EXPECT_THAT(messages, Each(HasSubstr("rank 1 was given another model, text or option")));
  EXPECT_FALSE(fs::exists(folder / "text/metrics.jsonl"));

  // A rate that breaks it: all see it, and who was first is named.
  options = Options();
  options.schedule.peak = 1e30;
  options.schedule.warmup = 0;
  EXPECT_THAT(TrainOn(2, options, folder / "rate"), Each(HasSubstr("of 2")));
}

TEST(TrainRanksWire, Bf16GradientsLearnAlike) {
  const TemporaryFolder folder;
  EXPECT_THAT(TrainOn(1, Options(30), folder / "one"), Each(""));
  TrainOptions options = Options(30);
  options.run.together.wire = DType::kBF16;
  EXPECT_THAT(TrainOn(2, options, folder / "bf16"), Each(""));
  ExpectClose(Losses(folder / "bf16"), Losses(folder / "one"), 0.02);
}

}  // namespace
}  // namespace clearhead
