// SPDX-License-Identifier: MIT
// The training loop: data order, schedule, recomputation, resume bit for bit, stops, learning.
#include "train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "core/file.h"
#include "core/random.h"
#include "core/safetensors.h"
#include "model/run.h"
#include "support/golden_models.h"
#include "train/checkpoint.h"
#include "train/health.h"
#include "train/metrics_log.h"
#include "train/training_run.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

ModelConfig TinyConfig() {
  ModelConfig config{
      .layers = 2, .heads = 2, .width = 16, .vocabulary = 31, .positions = 12, .inner = 64};
  return config;
}

std::vector<std::int32_t> RandomTokens(std::int64_t count, std::int32_t vocabulary,
                                       std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(vocabulary))));
  }
  return tokens;
}

TrainOptions TinyOptions() {
  TrainOptions options;
  options.shape = {.batch = 3, .context = 12, .accumulation = 2};
  options.schedule = {.peak = 1e-2, .warmup = 2, .total = 9};
  options.seed = 5;
  options.run.eval_every = 4;
  options.run.checkpoint_every = 4;
  return options;
}

TEST(Batches, EveryStretchComesOncePerEpochAndTargetsFollowInputs) {
  std::vector<std::int32_t> tokens(103);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i);
  Batches batches(tokens, 7, 1);
  const std::int64_t samples = batches.samples_per_epoch();
  EXPECT_EQ(samples, 14);
  std::int32_t inputs[7], targets[7];
  std::set<std::int32_t> phases;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int32_t> stretches;
    for (std::int64_t i = 0; i < samples; ++i) {
      batches.Fill(epoch * samples + i, 1, inputs, targets);
      stretches.insert(inputs[0] / 7);
      phases.insert(inputs[0] % 7);
      for (int t = 0; t < 7; ++t) EXPECT_EQ(targets[t], inputs[t] + 1);
      EXPECT_LT(targets[6], 103);
    }
    EXPECT_EQ(stretches.size(), static_cast<std::size_t>(samples));
  }
  EXPECT_EQ(phases.size(), 7u);  // periodic texts meet every position
  // A pure function of the sample number.
  Batches again(tokens, 7, 1);
  std::int32_t other[7], other_targets[7];
  again.Fill(17, 1, other, other_targets);
  batches.Fill(17, 1, inputs, targets);
  EXPECT_TRUE(std::equal(inputs, inputs + 7, other));
  EXPECT_THROW(Batches(std::span(tokens).first(7), 7, 1), Error);
  EXPECT_NO_THROW(Batches(std::span(tokens).first(8), 7, 1).Fill(0, 1, inputs, targets));
}

TEST(Batches, SamplesStartWhereTheyAreTold) {
  std::vector<std::int32_t> tokens(50);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i);
  Batches batches(tokens, 7, 1, {0, 10, 31, 42, 43, 49});  // no room after 43
  EXPECT_EQ(batches.samples_per_epoch(), 4);
  std::multiset<std::int32_t> starts;
  std::int32_t inputs[7], targets[7];
  for (std::int64_t i = 0; i < 8; ++i) {
    batches.Fill(i, 1, inputs, targets);
    starts.insert(inputs[0]);
  }
  EXPECT_EQ(starts, (std::multiset<std::int32_t>{0, 0, 10, 10, 31, 31, 42, 42}));
  EXPECT_THROW(Batches(tokens, 7, 1, {44}), Error);
}

TEST(Schedule, WarmsUpAndDecays) {
  const Schedule s{.peak = 2.0, .warmup = 4, .total = 11, .final_fraction = 0.1};
  EXPECT_DOUBLE_EQ(LearningRate(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 3), 2.0);
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 2.0);
  EXPECT_NEAR(LearningRate(s, 7), 1.1, 1e-12);
  EXPECT_NEAR(LearningRate(s, 10), 0.2, 1e-12);
  EXPECT_NEAR(LearningRate({.peak = 1, .warmup = 0, .total = 1}, 0), 1.0, 1e-12);
}

TEST(Gradients, RecomputationGivesTheSameBits) {
  const Model model = RandomModel(TinyConfig(), 1);
  const auto ids = RandomTokens(36, 31, 2), targets = RandomTokens(36, 31, 3);
  std::vector<std::vector<float>> results;
  for (const Keep keep : {Keep::kAll, Keep::kInputs}) {
    Activations activations(model.config, 3, 12, keep, 10);
    std::vector<float> values(static_cast<std::size_t>(model.config.ParameterCount()), 0.0f);
    ModelValues gradients = BindContiguous(model.config, values.data());
    ForwardBackward({.model = model, .batch = 3, .length = 12}, ids.data(), targets.data(), 1.0f,
                    activations, &gradients, nullptr);
    results.push_back(values);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Gradients, AccumulationEqualsTheLargeBatch) {
  const Model model = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(500, 31, 2);
  std::vector<std::vector<float>> results;
  double losses[2];
  int i = 0;
  for (const StepShape shape : {StepShape{.batch = 6, .context = 12, .accumulation = 1},
                                StepShape{.batch = 2, .context = 12, .accumulation = 3}}) {
    Optimizer optimizer(model, {.clip_norm = 0.0f});
    Batches batches(tokens, 12, 9);
    TrainStep step(model.config, shape);
    losses[i++] = step.Gradients(optimizer, batches, 6).loss;
    const float* first = optimizer.gradients()(Role::kTokenEmbedding);
    results.emplace_back(first, first + model.config.ParameterCount());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
  EXPECT_LE(MaxRelativeDifference(results[0], results[1]), 1e-5);
}

std::string ModelBytes(const fs::path& folder) { return ReadFile(folder / "model.safetensors"); }

TEST(Train, ResumeContinuesBitForBit) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2), valid = RandomTokens(100, 31, 3);
  const TrainOptions options = TinyOptions();
  const TrainResult whole = Train(start, tokens, valid, options, folder / "whole", {});
  EXPECT_TRUE(whole.finished);
  EXPECT_FALSE(fs::exists(folder / "whole/checkpoint"));

  for (const int stop_after : {1, 4, 6, 8}) {
    const fs::path out = folder / ("part" + std::to_string(stop_after));
    int steps = 0;
    TrainCallbacks callbacks;
    callbacks.should_stop = [&] { return ++steps == stop_after; };
    const TrainResult part = Train(start, tokens, valid, options, out, callbacks);
    EXPECT_FALSE(part.finished);
    EXPECT_EQ(part.step, stop_after);
    EXPECT_FALSE(fs::exists(out / "model.safetensors"));
    TrainOptions resume = options;
    resume.run.resume = true;
    const TrainResult rest = Train(start, tokens, valid, resume, out, {});
    EXPECT_TRUE(rest.finished);
    EXPECT_EQ(rest.loss, whole.loss);
    EXPECT_EQ(rest.valid_loss, whole.valid_loss);
    EXPECT_EQ(ModelBytes(out), ModelBytes(folder / "whole"));
    const auto lines = ReadMetrics(out / "metrics.jsonl"),
               expected = ReadMetrics(folder / "whole/metrics.jsonl");
    ASSERT_EQ(lines.size(), expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["step"], i);
      EXPECT_EQ(lines[i]["loss"], expected[i]["loss"]);
    }
  }
}

TEST(Train, ACrashLosesOnlyTheWorkSinceTheLastCheckpoint) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2);
  const TrainOptions options = TinyOptions();
  Train(start, tokens, {}, options, folder / "whole", {});
  // As after kill -9 at step 7: the checkpoint of step 4, metrics of later steps, one line torn, a
  // temporary of a checkpoint that was being written.
  struct Killed {};
  TrainCallbacks callbacks;
  callbacks.on_step = [](const TrainProgress& p) {
    if (p.step == 7) throw Killed{};
  };
  const fs::path out = folder / "killed";
  EXPECT_THROW(Train(start, tokens, {}, options, out, callbacks), Killed);
  std::ofstream(out / "metrics.jsonl", std::ios::app) << "{\"step\":7,\"lo";
  std::ofstream(out / "checkpoint/checkpoint-8.safetensors.abcdef.tmp") << "half";
  TrainOptions resume = options;
  resume.run.resume = true;
  EXPECT_TRUE(Train(start, tokens, {}, resume, out, {}).finished);
  EXPECT_EQ(ModelBytes(out), ModelBytes(folder / "whole"));
  EXPECT_EQ(ReadMetrics(out / "metrics.jsonl").size(), 9u);
}

std::string MessageOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Train, ResumeRefusesOtherSettings) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2);
  TrainOptions options = TinyOptions();
  TrainCallbacks stop;
  stop.should_stop = [] { return true; };
  Train(start, tokens, {}, options, folder.path(), stop);
  options.run.resume = true;
  options.schedule.peak = 0.5;
  EXPECT_THAT(MessageOf([&] { Train(start, tokens, {}, options, folder.path(), {}); }),
              ::testing::HasSubstr("lr = 0.01"));
  options = TinyOptions();
  options.run.resume = true;
  const auto other = RandomTokens(700, 31, 3);
  EXPECT_THAT(MessageOf([&] { Train(start, other, {}, options, folder.path(), {}); }),
              ::testing::HasSubstr("text_hash"));
  EXPECT_THAT(MessageOf([&] { Train(start, tokens, {}, options, folder / "none", {}); }),
              ::testing::HasSubstr("no checkpoint"));
}

TEST(Train, ResumeRefusesOtherStartWeights) {
  const TemporaryFolder folder;
  const auto tokens = RandomTokens(700, 31, 2);
  TrainOptions options = TinyOptions();
  TrainCallbacks stop;
  stop.should_stop = [] { return true; };
  Train(RandomModel(TinyConfig(), 1), tokens, {}, options, folder.path(), stop);
  options.run.resume = true;
  EXPECT_THAT(MessageOf([&] {
                Train(RandomModel(TinyConfig(), 2), tokens, {}, options, folder.path(), {});
              }),
              ::testing::HasSubstr("start_hash"));
  EXPECT_TRUE(Train(RandomModel(TinyConfig(), 1), tokens, {}, options, folder.path(), {}).finished);
}

// What a run left is never mixed with another's: not its checkpoint, not its metrics.
TEST(Train, RefusesAFolderWithAnotherRun) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2);
  const TrainOptions options = TinyOptions();
  TrainCallbacks stop;
  stop.should_stop = [] { return true; };
  Train(start, tokens, {}, options, folder / "run", stop);
  const std::string metrics = ReadFile(folder / "run/metrics.jsonl");
  const auto train = [&] { Train(start, tokens, {}, options, folder / "run", {}); };
  EXPECT_THAT(MessageOf(train),
              ::testing::AllOf(::testing::HasSubstr("run"), ::testing::HasSubstr("--resume"),
                               ::testing::HasSubstr("another folder")));
  EXPECT_EQ(ReadFile(folder / "run/metrics.jsonl"), metrics);
  EXPECT_TRUE(FindCheckpoint(folder / "run/checkpoint").has_value());
  fs::remove_all(folder / "run/checkpoint");  // as of a finished run, or of one killed early
  EXPECT_THAT(MessageOf(train), ::testing::HasSubstr("metrics.jsonl"));
  EXPECT_EQ(ReadFile(folder / "run/metrics.jsonl"), metrics);
  fs::remove(folder / "run/metrics.jsonl");
  EXPECT_EQ(MessageOf(train), "");
}

// A checkpoint of n steps has the metrics of n steps beside it, whenever the process dies.
class CountingRun final : public TrainingRun {
 public:
  explicit CountingRun(std::filesystem::path out, std::int64_t size = 4)
      : out_(std::move(out)), block_({{size, true}}) {
    std::fill(block_.values().begin(), block_.values().end(), 1.0f);
  }
  std::int64_t steps() const override { return 6; }
  double tokens_per_step() const override { return 1.0; }
  double loss_of_guessing() const override { return 5.0; }
  Json Settings() const override { return Json::object(); }
  ParameterBlock& parameters() override { return block_; }
  RunStep Gradients(std::int64_t step) override {
    done_ = step + 1;
    return {.loss = 1.0, .gradient_norm = 1.0, .metrics = {{"loss", 1.0}}};
  }
  void Update(double, double) override {}
  bool Evaluate(Json&) override { return true; }
  Json StateOfNumbers(std::span<const double> numbers) const override {
    return {{"first", numbers[0]}};
  }
  Json State() const override {  // asked for while a checkpoint is made
    ++saved;
    EXPECT_EQ(ReadMetrics(out_ / "metrics.jsonl").size(), static_cast<std::size_t>(done_));
    return Json::object();
  }
  mutable int saved = 0;

 private:
  std::filesystem::path out_;
  ParameterBlock block_;
  std::int64_t done_ = 0;
};

TEST(RunTraining, MetricsAreWrittenBeforeTheCheckpoint) {
  const TemporaryFolder folder;
  CountingRun run(folder.path());
  RunTraining(run, {.eval_every = 2, .checkpoint_every = 3}, folder.path(), {});
  EXPECT_EQ(run.saved, 4);  // after steps 2, 3, 4 and 6
}

TEST(Train, RefusesShapesThatCannotBeCounted) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2);
  const std::int64_t large = std::int64_t{1} << 32;
  const auto train = [&](const StepShape& shape, std::int64_t steps) {
    TrainOptions options = TinyOptions();
    options.shape = shape;
    options.schedule.total = steps;
    return MessageOf([&] { Train(start, tokens, {}, options, folder / "out", {}); });
  };
  const auto too_large = ::testing::HasSubstr("too large");
  EXPECT_THAT(train({.batch = large, .context = 12, .accumulation = large}, 9), too_large);
  EXPECT_THAT(train({.batch = std::int64_t{1} << 60, .context = 12}, 9), too_large);
  EXPECT_THAT(train({.batch = 1, .context = 12, .accumulation = large}, large), too_large);
  EXPECT_THAT(MessageOf([&] {
                TrainStep::MemoryPlan(TinyConfig(),
                                      {.batch = std::int64_t{1} << 57, .context = 12});
              }),
              too_large);
  for (const StepShape shape :
       {StepShape{.batch = 0, .context = 12}, StepShape{.batch = 1, .context = 0},
        StepShape{.batch = 1, .context = 12, .accumulation = 0}}) {
    EXPECT_THAT(train(shape, 9), ::testing::HasSubstr("at least 1"));
  }
  EXPECT_THAT(train({.batch = 1, .context = 13}, 9), ::testing::HasSubstr("12 positions"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Train, RefusesTokensOutsideTheVocabulary) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto good = RandomTokens(700, 31, 2);
  for (const std::int32_t wild : {-1, 31, 1 << 30}) {
    auto tokens = good;
    tokens[699] = wild;  // only ever a target
    EXPECT_THAT(MessageOf([&] { Train(start, tokens, {}, TinyOptions(), folder / "out", {}); }),
                ::testing::HasSubstr(std::to_string(wild)));
    EXPECT_THAT(MessageOf([&] { Train(start, good, tokens, TinyOptions(), folder / "out", {}); }),
                ::testing::HasSubstr(std::to_string(wild)));
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Train, NanStopsWithTheStepAndKeepsTheCheckpoint) {
  const TemporaryFolder folder;
  const Model start = RandomModel(TinyConfig(), 1);
  const auto tokens = RandomTokens(700, 31, 2);
  TrainOptions options = TinyOptions();
  options.run.checkpoint_every = 1;
  options.optimizer.clip_norm = 0.0f;
  options.schedule.peak = 1e30;  // the second step overflows
  const std::string message =
      MessageOf([&] { Train(start, tokens, {}, options, folder.path(), {}); });
  EXPECT_THAT(message, ::testing::HasSubstr("training stopped at step 1"));
  EXPECT_TRUE(FindCheckpoint(folder / "checkpoint").has_value());
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
}

TEST(LossWatch, KnowsNanExplosionAndHardTimes) {
  LossWatch watch(std::log(1000.0));  // 6.9
  watch.Check(0, 6.9, 1.0, "x");
  for (int i = 1; i < 100; ++i) watch.Check(i, 3.0, 1.0, "x");
  EXPECT_NO_THROW(watch.Check(100, 6.5, 1.0, "x"));  // a hard batch
  EXPECT_THROW(watch.Check(101, 9.0, 1.0, "x"), Error);
  EXPECT_THROW(watch.Check(101, std::nan(""), 1.0, "x"), Error);
  EXPECT_THROW(watch.Check(101, 3.0, std::numeric_limits<double>::infinity(), "x"), Error);
}

TEST(Checkpoint, DamagedFilesAreRefused) {
  const TemporaryFolder folder;
  CountingRun run(folder.path());
  SaveCheckpoint(folder.path(), run.parameters(),
                 {.step = 3, .settings = {{"a", 1}}, .health = {}, .run = {{"b", 1.5}}});
  SaveCheckpoint(
      folder.path(), run.parameters(),
      {.step = 12, .settings = {{"a", 1}}, .health = {{"average", 0.1}}, .run = {{"b", 2.5}}});
  const auto file = FindCheckpoint(folder.path());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->filename(), "checkpoint-12.safetensors");
  EXPECT_FALSE(fs::exists(folder / "checkpoint-3.safetensors"));
  const CheckpointState state = LoadCheckpoint(*file, {{"a", 1}}, run);
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.run, Json({{"b", 2.5}}));
  EXPECT_EQ(state.health["average"].get<double>(), 0.1);
  const std::string bytes = ReadFile(*file);
  WriteFile(*file, bytes.substr(0, bytes.size() - 5));
  EXPECT_THROW(LoadCheckpoint(*file, {}, run), Error);
  WriteFile(*file, bytes);
  CountingRun other(folder.path(), 5);
  EXPECT_THAT(MessageOf([&] { LoadCheckpoint(*file, {}, other); }),
              ::testing::HasSubstr("another model"));
}

// As they were before the run's numbers had names.
TEST(Checkpoint, OlderOnesAreRead) {
  const TemporaryFolder folder;
  const float values[] = {1.0f, 2.0f, 3.0f, 4.0f};
  const std::int64_t counters[] = {7, 6};
  const double numbers[] = {0.25, 1.0, 9.0};
  const auto flat = [&](const char* name) {
    return TensorToWrite{.name = name, .shape = {4}, .data = values};
  };
  WriteSafetensors(folder / "checkpoint-7.safetensors",
                   std::vector<TensorToWrite>{flat("weights"),
                                              flat("first_moment"),
                                              flat("second_moment"),
                                              {.name = "counters",
                                               .dtype = DType::kI64,
                                               .shape = {2},
                                               .raw = std::as_bytes(std::span(counters))},
                                              {.name = "run",
                                               .dtype = DType::kF64,
                                               .shape = {3},
                                               .raw = std::as_bytes(std::span(numbers))}},
                   {{"settings", "{}"}});
  CountingRun run(folder.path());
  const CheckpointState state =
      LoadCheckpoint(folder / "checkpoint-7.safetensors", Json::object(), run);
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(run.parameters().steps(), 6);
  EXPECT_EQ(run.parameters().values()[3], 4.0f);
  EXPECT_EQ(state.health, Json({{"average", 0.25}, {"seen", 1.0}}));
  EXPECT_EQ(state.run, Json({{"first", 9.0}}));
}

}  // namespace
}  // namespace clearhead
