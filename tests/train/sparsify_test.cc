// SPDX-License-Identifier: MIT
// Sparse post-training: the multiplier, the distilled loss, the step's gradients, the loop.
#include "train/sparsify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/file.h"
#include "core/random.h"
#include "core/safetensors.h"
#include "kernels/loss.h"
#include "model/run.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "train/metrics_log.h"
#include "use/evaluate.h"
#include "use/record.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

TEST(Multiplier, PressesWhereThereIsRoomAndYieldsWhereThereIsNot) {
  const MultiplierOptions options{
      .initial = 1.0, .minimum = 0.5, .maximum = 2.0, .rate = 0.1, .ema = 0.5, .scale = 0.1};
  Multiplier m(options);
  m.Update(-0.05);  // v = -0.5, average -0.25
  EXPECT_NEAR(m.average(), -0.25, 1e-12);
  EXPECT_NEAR(m.beta(), std::exp(0.025), 1e-12);
  for (int i = 0; i < 100; ++i) m.Update(-10.0);  // clamped to -1
  EXPECT_EQ(m.beta(), 2.0);
  for (int i = 0; i < 200; ++i) m.Update(10.0);
  EXPECT_EQ(m.beta(), 0.5);
}

TEST(Multiplier, HeldItRisesButDoesNotFall) {
  const MultiplierOptions options{
      .initial = 1.0, .minimum = 0.5, .maximum = 2.0, .rate = 0.1, .ema = 0.5, .scale = 0.1};
  Multiplier m(options);
  for (int i = 0; i < 10; ++i) m.Update(10.0, /*hold=*/true);
  EXPECT_EQ(m.beta(), 1.0);
  EXPECT_GT(m.average(), 0.9);  // it is not forgotten
  for (int i = 0; i < 20; ++i) m.Update(-10.0, /*hold=*/true);
  EXPECT_GT(m.beta(), 1.5);
}

TEST(DistilledCrossEntropy, MatchesDouble) {
  for (const auto& [V, label] :
       {std::pair{std::int64_t{2}, 1.0f}, {7, 0.0f}, {33, 1.0f}, {5003, 0.5f}}) {
    const std::int64_t rows = 3;
    RandomStream random(static_cast<std::uint64_t>(V));
    std::vector<float> student(static_cast<std::size_t>(rows * V)), teacher(student.size());
    for (float& x : student) x = static_cast<float>(3 * random.Normal());
    for (float& x : teacher) x = static_cast<float>(3 * random.Normal());
    const std::vector<std::int32_t> targets = {0, static_cast<std::int32_t>(V - 1),
                                               static_cast<std::int32_t>(V / 2)};
    auto gradient = student;
    std::vector<float> loss(rows), teacher_loss(rows), divergence(rows);
    DistilledCrossEntropy({rows, V, targets.data(), teacher.data(), 0.7f, 0.25f, label},
                          gradient.data(), {loss.data(), teacher_loss.data(), divergence.data()});
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum_s = 0, sum_t = 0, kl = 0;
      for (std::int64_t v = 0; v < V; ++v) {
        sum_s += std::exp(static_cast<double>(student[static_cast<std::size_t>(r * V + v)]));
        sum_t += std::exp(static_cast<double>(teacher[static_cast<std::size_t>(r * V + v)]));
      }
      const std::int32_t target = targets[static_cast<std::size_t>(r)];
      for (std::int64_t v = 0; v < V; ++v) {
        const auto at = static_cast<std::size_t>(r * V + v);
        const double p = std::exp(static_cast<double>(student[at])) / sum_s;
        const double q = std::exp(static_cast<double>(teacher[at])) / sum_t;
        kl += q * (std::log(q) - std::log(p));
        EXPECT_NEAR(gradient[at], 0.25 * (label * (p - (v == target ? 1 : 0)) + 0.7 * (p - q)),
                    1e-6);
      }
      const auto row = static_cast<std::size_t>(r);
      EXPECT_NEAR(loss[row], std::log(sum_s) - student[static_cast<std::size_t>(r * V + target)],
                  1e-5);
      EXPECT_NEAR(teacher_loss[row],
                  std::log(sum_t) - teacher[static_cast<std::size_t>(r * V + target)], 1e-5);
      EXPECT_NEAR(divergence[row], kl, 1e-4);
    }
  }
}

// "a+b=cd\n" over digits, one sum per line of 7 tokens.
std::vector<std::int32_t> Sums(int count, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  RandomStream random(seed);
  for (int i = 0; i < count; ++i) {
    const auto a = static_cast<std::int32_t>(random.Below(10)),
               b = static_cast<std::int32_t>(random.Below(10));
    for (const std::int32_t t : {a, 10, b, 11, (a + b) / 10, (a + b) % 10, 12}) tokens.push_back(t);
  }
  return tokens;
}

ModelConfig AdderConfig() {
  return {.layers = 2, .heads = 4, .width = 32, .vocabulary = 13, .positions = 14, .inner = 128};
}

SparsifyOptions AdderOptions() {
  SparsifyOptions options;
  options.shape = {.batch = 16, .context = 14};
  options.steps = 12;
  options.run.eval_every = 4;
  options.run.checkpoint_every = 5;
  options.tolerance = 10.0;  // everything is feasible: the bookkeeping is what is tested
  options.seed = 3;
  return options;
}

TEST(SparsifyStep, TheStudentStartsAsTheDenseModelWhenEveryGateIsOpen) {
  const Model dense = RandomModel(AdderConfig(), 1);
  Model student = dense;
  student.config.attention = AttentionKind::kGated;
  student.config.gate_bias = 39.0f;
  Optimizer optimizer(student, {});
  const auto tokens = Sums(100, 1);
  Batches batches(tokens, 14, 1);
  SparsifyStep step(student.config, {.shape = {.batch = 4, .context = 14}});
  const SparsifyStepResult r = step.Gradients(optimizer, dense, batches, 0, 0.5);
  EXPECT_NEAR(r.loss, r.dense_loss, 1e-6);
  EXPECT_NEAR(r.divergence, 0.0, 1e-6);
  EXPECT_EQ(r.open_share, 1.0);
  EXPECT_NEAR(r.penalty, 1.0, 1e-6);
}

TEST(SparsifyStep, HardGatesAreThoseOfUse) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const Model student = GatedCopy(dense, 0.05f, false);
  Optimizer optimizer(student, {});
  auto tokens = Sums(3, 1);
  tokens.resize(15);  // one sequence: every batch is the text
  Batches batches(tokens, 14, 1);
  SparsifyStep step(student.config, {.shape = {.batch = 1, .context = 14}});
  const Evaluation use = Evaluate(student, tokens, {.context = 14});
  const SparsifyStepResult hard =
      step.Gradients(optimizer, dense, batches, 0, 0.5, GateMode::kHard);
  const SparsifyStepResult sampled = step.Gradients(optimizer, dense, batches, 0, 0.5);
  EXPECT_NEAR(hard.loss, use.loss, 1e-6);
  EXPECT_NE(hard.open_share, sampled.open_share);
  EXPECT_NEAR(hard.penalty, sampled.penalty, 1e-5);  // probabilities have no noise
}

TEST(SparsifyStep, OnOwnTextThereIsNothingToLearnWhereEveryGateIsOpen) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const Model student = GatedCopy(dense, 39.0f, false);
  const auto tokens = Sums(100, 1);
  const auto norm = [&](bool own_text) {
    Optimizer optimizer(student, {});
    Batches batches(tokens, 14, 1);
    SparsifyStep step(student.config, {.shape = {.batch = 4, .context = 14}, .own_text = own_text});
    return step.Gradients(optimizer, dense, batches, 0, 0.0).gradient_norm;
  };
  EXPECT_GT(norm(false), 0.1);
  EXPECT_LT(norm(true), 1e-5);
}

TEST(SparsifyStep, AccumulationEqualsTheLargeBatch) {
  const Model dense = RandomModel(AdderConfig(), 1);
  Model student = dense;
  student.config.attention = AttentionKind::kGated;
  const auto tokens = Sums(100, 1);
  std::vector<std::vector<float>> gradients;
  std::vector<SparsifyStepResult> results;
  for (const StepShape shape : {StepShape{.batch = 6, .context = 14},
                                StepShape{.batch = 2, .context = 14, .accumulation = 3}}) {
    Optimizer optimizer(student, {});
    Batches batches(tokens, 14, 1);
    SparsifyStep step(student.config, {.shape = shape, .seed = 5});
    results.push_back(step.Gradients(optimizer, dense, batches, 2, 0.5));
    const float* first = optimizer.gradients()(Role::kTokenEmbedding);
    gradients.emplace_back(first, first + student.config.ParameterCount());
  }
  EXPECT_NEAR(results[0].loss, results[1].loss, 1e-6);
  EXPECT_EQ(results[0].open_share, results[1].open_share);  // the same noise for the same samples
  EXPECT_NEAR(results[0].penalty, results[1].penalty, 1e-9);
  EXPECT_LE(MaxRelativeDifference(gradients[0], gradients[1]), 1e-5);
}

TEST(Sparsify, ResumeContinuesBitForBitAndKeepsTheSparsestFeasible) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  const SparsifyOptions options = AdderOptions();
  const SparsifyResult whole = Sparsify(dense, tokens, valid, options, folder / "whole", {});
  ASSERT_TRUE(whole.finished);
  ASSERT_TRUE(whole.best.has_value());
  double fewest = 1.0;
  for (const Json& line : ReadMetrics(folder / "whole/metrics.jsonl")) {
    if (line.contains("valid"))
      fewest = std::min(fewest, line["valid"]["edge_fraction"].get<double>());
  }
  EXPECT_EQ(whole.best->edge_fraction, fewest);
  const Model saved = LoadModel(folder / "whole");
  EXPECT_EQ(saved.config.attention, AttentionKind::kGated);
  EXPECT_EQ(saved.config.gate_bias, 2.0f);
  EXPECT_NEAR(Evaluate(saved, valid, {.context = 14}).loss, whole.best->loss, 1e-6);

  for (const int stop_after : {3, 5, 9}) {
    const fs::path out = folder / ("part" + std::to_string(stop_after));
    int steps = 0;
    SparsifyCallbacks callbacks;
    callbacks.should_stop = [&] { return ++steps == stop_after; };
    EXPECT_FALSE(Sparsify(dense, tokens, valid, options, out, callbacks).finished);
    SparsifyOptions resume = options;
    resume.run.resume = true;
    EXPECT_TRUE(Sparsify(dense, tokens, valid, resume, out, {}).finished);
    EXPECT_EQ(ReadFile(out / "model.safetensors"), ReadFile(folder / "whole/model.safetensors"));
    EXPECT_FALSE(fs::exists(out / "checkpoint"));
    EXPECT_FALSE(fs::exists(out / "best"));
  }
}

TEST(Sparsify, RefusesAnotherRunsFolderAndWildTokens) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  const auto message = [&](const std::vector<std::int32_t>& train, const fs::path& out) {
    try {
      SparsifyCallbacks callbacks;
      callbacks.should_stop = [] { return true; };
      Sparsify(dense, train, valid, AdderOptions(), out, callbacks);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(tokens, folder / "run"), "");
  EXPECT_THAT(message(tokens, folder / "run"), ::testing::HasSubstr("--resume"));
  auto wild = tokens;
  wild.back() = 13;
  EXPECT_THAT(message(wild, folder / "out"), ::testing::HasSubstr("13"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Sparsify, ATargetOutOfReachLeavesTheLastModelApart) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  SparsifyOptions options = AdderOptions();
  options.tolerance = -100.0;
  const SparsifyResult result = Sparsify(dense, tokens, valid, options, folder / "out", {});
  EXPECT_TRUE(result.finished);
  EXPECT_FALSE(result.best.has_value());
  EXPECT_FALSE(fs::exists(folder / "out/model.safetensors"));
  EXPECT_NEAR(Evaluate(LoadModel(folder / "out" / kLastModel), valid, {.context = 14}).loss,
              result.last.loss, 1e-6);
}

TEST(Sparsify, GoesOnFromASparseModel) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  auto tokens = Sums(300, 1);
  const auto valid = Sums(40, 2);
  SparsifyOptions options = AdderOptions();
  options.bias_by_head = true;
  options.cut_vocabulary = true;
  Sparsify(dense, tokens, valid, options, folder / "first", {});
  const Model first = LoadModel(folder / "first");

  // A rate of almost nothing leaves it as it was, with its own biases; so do tokens that the new
  // text lacks.
  for (std::int32_t& token : tokens) token = token == 9 ? 8 : token;
  options.from = first;
  options.lr = 1e-12;
  options.steps = 2;
  Sparsify(dense, tokens, valid, options, folder / "second", {});
  const Model second = LoadModel(folder / "second");
  EXPECT_EQ(second.config.gate_bias, first.config.gate_bias);
  ASSERT_TRUE(second.config.gate_bias_by_head);
  const auto loss = [&](const Model& model) {
    return Evaluate(model, valid, {.context = 14}).loss;
  };
  EXPECT_NEAR(loss(second), loss(first), 1e-6);
  EXPECT_GT(std::abs(loss(first) - loss(GatedCopy(dense, 2.0f, true))), 1e-3);

  // The weights at hand do not tell who the teacher was; a resumed run asks.
  SparsifyCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  ASSERT_FALSE(Sparsify(dense, tokens, valid, options, folder / "part", callbacks).finished);
  options.run.resume = true;
  EXPECT_THROW(Sparsify(RandomModel(AdderConfig(), 2), tokens, valid, options, folder / "part", {}),
               Error);
  EXPECT_TRUE(Sparsify(dense, tokens, valid, options, folder / "part", {}).finished);
  options.run.resume = false;

  options.from = dense;
  EXPECT_THROW(Sparsify(dense, tokens, valid, options, folder / "third", {}), std::exception);
  ModelConfig wider = AdderConfig();
  wider.inner = 64;
  options.from = GatedCopy(RandomModel(wider, 1), 2.0f, false);
  EXPECT_THROW(Sparsify(dense, tokens, valid, options, folder / "third", {}), Error);
}

TEST(Sparsify, OnOwnTextTheMultiplierFollowsTheDivergence) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  for (const bool own_text : {false, true}) {
    SparsifyOptions options = AdderOptions();
    options.own_text = own_text;
    const fs::path out = folder / (own_text ? "own" : "foreign");
    Sparsify(dense, tokens, valid, options, out, {});
    Multiplier multiplier(options.multiplier);
    for (const Json& line : ReadMetrics(out / "metrics.jsonl")) {
      EXPECT_NEAR(line["beta"].get<double>(), multiplier.beta(), 1e-9) << line;
      const double above = own_text ? line["divergence"].get<double>()
                                    : line["loss"].get<double>() - line["dense_loss"].get<double>();
      multiplier.Update(above - line["slack"].get<double>());
    }
  }
}

TEST(Sparsify, SettlesInTheGatesOfUseAtTheEnd) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  SparsifyOptions options = AdderOptions();
  Sparsify(dense, tokens, valid, options, folder / "noisy", {});
  options.settle = 0.25;  // 3 of 12 steps
  Sparsify(dense, tokens, valid, options, folder / "settled", {});
  const auto noisy = ReadMetrics(folder / "noisy/metrics.jsonl"),
             settled = ReadMetrics(folder / "settled/metrics.jsonl");
  ASSERT_EQ(settled.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(noisy[i]["sampled_edge_fraction"] == settled[i]["sampled_edge_fraction"], i < 9) << i;
    EXPECT_EQ(noisy[i]["loss"] == settled[i]["loss"], i < 9) << i;
  }
}

// What trains changes, what is frozen stays as it was, bit for bit.
TEST(TrainedPart, OnlyThePartChanges) {
  const Model dense = RandomModel(AdderConfig(), 1);
  Model student = dense;
  student.config.attention = AttentionKind::kGated;
  student.config.gate_bias = 2.0f;
  const auto tokens = Sums(100, 1);
  const std::int64_t C = 32;
  for (const std::string part : {"all", "attention", "qk", "lora:3"}) {
    Optimizer optimizer(student, {.weight_decay = 0.0f, .part = ParseTrainedPart(part)});
    EXPECT_EQ(ToText(ParseTrainedPart(part)), part);
    Batches batches(tokens, 14, 1);
    SparsifyStep step(student.config, {.shape = {.batch = 4, .context = 14}});
    for (int i = 0; i < 3; ++i) {
      const SparsifyStepResult r = step.Gradients(optimizer, dense, batches, i, 0.5);
      optimizer.Step(1e-2, r.gradient_norm);
    }
    ModelWeights before = dense.weights, after = optimizer.model().weights;
    std::map<std::string, const float*> old;
    VisitParameters(dense.config, before, [&](const ParameterSpec& spec, const Weight& weight) {
      old[spec.name] = weight.f32();
    });
    VisitParameters(dense.config, after, [&](const ParameterSpec& spec, const Weight& weight) {
      const float* values = weight.f32();
      const bool scores = spec.name.find("attn.c_attn") != std::string::npos;
      const bool projection = spec.name.find("attn.c_proj") != std::string::npos;
      std::int64_t changed = 0, outside = 0;
      for (std::int64_t i = 0; i < spec.shape.size(); ++i) {
        const bool differs = values[i] != old[spec.name][i];
        changed += differs;
        outside += differs && scores && i % (3 * C) >= 2 * C;
      }
      const bool expected = part == "all" || scores || (part == "attention" && projection);
      EXPECT_EQ(changed > 0, expected) << part << " " << spec.name;
      if (part == "qk") {
        EXPECT_EQ(outside, 0) << spec.name;
      }
    });
  }
  for (const char* wrong : {"", "none", "lora", "lora:", "lora:0", "lora:-1", "lora:2x"}) {
    EXPECT_THROW(ParseTrainedPart(wrong), Error) << wrong;
  }
  EXPECT_THROW(Optimizer(student, {.weight_decay = 0.0f, .part = ParseTrainedPart("lora:33")}),
               Error);
}

// The factors' gradients against differences of the loss itself.
TEST(Lora, GradientsOfTheFactorsMatchDifferences) {
  Model model = RandomModel(AdderConfig(), 1);
  const Lora lora(model, 3);
  const auto count = static_cast<std::size_t>(lora.size());
  std::vector<float> trained(count), gradients(count);
  lora.Fill(trained.data());
  RandomStream random(4);
  for (float& value : trained) value += static_cast<float>(0.05 * random.Normal());
  std::vector<float> weights(static_cast<std::size_t>(model.config.ParameterCount())),
      d_weights(weights.size(), 0.0f);
  FillRandom(model.config, 1, weights.data());
  ModelValues tensors = BindContiguous(model.config, weights.data());
  ModelValues d_tensors = BindContiguous(model.config, d_weights.data());
  Model merged = model;
  merged.weights = BindWeights(model.config, weights.data());
  const auto tokens = Sums(9, 1);
  Activations activations(model.config, 4, 14, Keep::kAll, 56);
  const auto loss = [&](ModelValues* into) {
    lora.Merge(trained.data(), tensors);
    return ForwardBackward({.model = merged, .batch = 4, .length = 14}, tokens.data(),
                           tokens.data() + 1, 1.0f, activations, into, nullptr);
  };
  loss(&d_tensors);
  lora.Project(d_tensors, trained.data(), gradients.data());
  double largest = 0.0;
  for (const float g : gradients) largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (std::size_t i = 0; i < count; i += 97) {
    const float kept = trained[i];
    const double h = 1e-2;
    trained[i] = static_cast<float>(kept + h);
    const double above = loss(nullptr);
    trained[i] = static_cast<float>(kept - h);
    const double below = loss(nullptr);
    trained[i] = kept;
    EXPECT_NEAR(gradients[i], (above - below) / (2 * h), 5e-3 * largest) << i;
  }
}

TEST(Lora, StartsAsTheModelItIsGiven) {
  const Model model = RandomModel(AdderConfig(), 1);
  Optimizer optimizer(model, {.weight_decay = 0.0f, .part = ParseTrainedPart("lora:5")});
  optimizer.Restored();  // merges
  ModelWeights before = model.weights;
  VisitParameters(model.config, before, [&](const ParameterSpec& spec, const Weight& weight) {
    const float *a = weight.f32(), *b = optimizer.model().weights(spec.role, spec.layer).f32();
    EXPECT_TRUE(std::equal(a, a + spec.shape.size(), b)) << spec.name;
    EXPECT_EQ(a == b, !IsTrained(TrainedPart::Kind::kLora, spec.role)) << "frozen ones stay put";
  });
}

TEST(Sparsify, LoraResumesBitForBitAndSavesAPlainModel) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(300, 1), valid = Sums(40, 2);
  SparsifyOptions options = AdderOptions();
  options.optimizer.part = ParseTrainedPart("lora:2");
  ASSERT_TRUE(Sparsify(dense, tokens, valid, options, folder / "whole", {}).best.has_value());
  int steps = 0;
  SparsifyCallbacks callbacks;
  callbacks.should_stop = [&] { return ++steps == 6; };
  EXPECT_FALSE(Sparsify(dense, tokens, valid, options, folder / "part", callbacks).finished);
  options.run.resume = true;
  const Model other = RandomModel(AdderConfig(), 2);
  EXPECT_THROW(Sparsify(other, tokens, valid, options, folder / "part", {}), Error);
  EXPECT_TRUE(Sparsify(dense, tokens, valid, options, folder / "part", {}).finished);
  EXPECT_EQ(ReadFile(folder / "part/model.safetensors"),
            ReadFile(folder / "whole/model.safetensors"));
}

// Sequences of 15 tokens: 14 inputs, and the last is only a target.
TEST(StoredLogits, TrainLikeTheModelThatWroteThem) {
  const TemporaryFolder folder;
  const Model dense = RandomModel(
      {.layers = 2, .heads = 4, .width = 32, .vocabulary = 13, .positions = 15, .inner = 128}, 1);
  auto ids = Sums(90, 1);
  ids.resize(30 * 15);
  WriteRecording(Record(dense, ids, 30, {}), folder / "logits.safetensors");
  const StoredLogits stored(folder / "logits.safetensors", dense.config);
  ASSERT_EQ(stored.sequences(), 30);
  ASSERT_EQ(stored.ids(), ids);
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < 30; ++i) starts.push_back(15 * i);
  Model student = dense;
  student.config.attention = AttentionKind::kGated;
  student.config.gate_bias = -1.0f;
  std::vector<SparsifyStepResult> results;
  std::vector<std::vector<float>> gradients;
  for (const StoredLogits* teacher : {static_cast<const StoredLogits*>(nullptr), &stored}) {
    Optimizer optimizer(student, {.weight_decay = 0.0f});
    Batches batches(ids, 14, 1, starts);
    SparsifyStep step(student.config,
                      {.shape = {.batch = 7, .context = 14}, .distill = 2.0f, .stored = teacher});
    results.push_back(step.Gradients(optimizer, dense, batches, 3, 0.5));
    const float* first = optimizer.gradients()(Role::kTokenEmbedding);
    gradients.emplace_back(first, first + student.config.ParameterCount());
  }
  EXPECT_GT(results[0].divergence, 2e-5);
  EXPECT_NEAR(results[0].divergence, results[1].divergence, 1e-6);
  EXPECT_NEAR(results[0].dense_loss, results[1].dense_loss, 1e-6);
  EXPECT_LE(MaxRelativeDifference(gradients[0], gradients[1]), 1e-5);
}

TEST(StoredLogits, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const ModelConfig config = AdderConfig();
  const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6};
  const std::vector<float> logits(6 * 13, 0.0f);
  const auto message = [&](const std::vector<TensorToWrite>& tensors) -> std::string {
    WriteSafetensors(folder / "f.safetensors", tensors);
    try {
      StoredLogits(folder / "f.safetensors", config);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto write_ids = [](const std::vector<std::int32_t>& values,
                            std::vector<std::int64_t> shape) {
    return TensorToWrite{.name = "ids",
                         .dtype = DType::kI32,
                         .shape = std::move(shape),
                         .raw = std::as_bytes(std::span(values))};
  };
  const TensorToWrite good{.name = "logits", .shape = {2, 3, 13}, .data = logits.data()};
  EXPECT_EQ(message({write_ids(ids, {2, 3}), good}), "");
  EXPECT_THAT(message({good}), ::testing::HasSubstr("ids"));
  EXPECT_THAT(message({write_ids(ids, {6}), good}), ::testing::HasSubstr("expected I32"));
  EXPECT_THAT(message({write_ids(ids, {6, 1}), good}), ::testing::HasSubstr("at least one of two"));
  EXPECT_THAT(message({write_ids(ids, {3, 2}), good}), ::testing::HasSubstr("[3,2,13]"));
  const std::vector<std::int32_t> wild = {1, 2, 3, 4, 13, 6};
  EXPECT_THAT(message({write_ids(wild, {2, 3}), good}), ::testing::HasSubstr("token 13"));
}

// The gradient of the penalty alone: that of a pass with it, less that of one without. With one
// layer nothing but scores stands between the parameters and the gates, so central differences of
// the penalty itself must agree, for the bias of every head too.
TEST(GatePenalty, GradientsMatchDifferences) {
  ModelConfig config = AdderConfig();
  config.layers = 1;
  const Model dense = RandomModel(config, 1);
  Model gated = GatedCopy(dense, 0.4f, /*bias_by_head=*/true);
  std::vector<float> values(static_cast<std::size_t>(gated.config.ParameterCount()));
  RandomStream random(6);
  for (float& value : values) value = static_cast<float>(0.3 * random.Normal());
  gated.weights = BindWeights(gated.config, values.data());
  const auto tokens = Sums(9, 1);
  constexpr std::int64_t kBatch = 4, kLength = 14, kHeads = 4;
  Activations activations(gated.config, kBatch, kLength, Keep::kAll, kBatch * kLength);
  for (const float concentrate : {0.0f, 0.7f}) {
    const auto gradients = [&](float weight) {
      std::vector<float> d(values.size(), 0.0f);
      ModelValues tensors = BindContiguous(gated.config, d.data());
      GateRun gates{.penalty_weight = weight, .concentrate = concentrate};
      ForwardBackward({.model = gated, .batch = kBatch, .length = kLength, .gates = gates},
                      tokens.data(), tokens.data() + 1, 1.0f, activations, &tensors, nullptr);
      return d;
    };
    constexpr double kWeight = 50.0;
    const std::vector<float> with = gradients(kWeight), without = gradients(0.0f);
    const auto penalty = [&] {
      ForwardToFinalNorm({.model = gated, .batch = kBatch, .length = kLength}, tokens.data(),
                         activations);
      const double pairs = kBatch * 0.5 * kLength * (kLength + 1);
      double sum = 0.0;
      for (std::int64_t h = 0; h < kHeads; ++h) {
        double mean = 0.0;
        for (std::int64_t b = 0; b < kBatch; ++b) {
          mean += activations.gate_probability_sum[b * kHeads + h] / pairs;
        }
        sum += concentrate == 0.0f ? mean : concentrate * std::sqrt(mean + kConcentrateFloor);
      }
      return sum / kHeads;
    };
    double largest = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(with[i] - without[i])));
    }
    const auto expect = [&](std::size_t i) {
      const float kept = values[i];
      const double step = 1e-2;
      values[i] = static_cast<float>(kept + step);
      const double above = penalty();
      values[i] = static_cast<float>(kept - step);
      const double below = penalty();
      values[i] = kept;
      EXPECT_NEAR(with[i] - without[i], kWeight * (above - below) / (2 * step), 2e-3 * largest)
          << i << " concentrate " << concentrate;
    };
    for (std::size_t i = 0; i < values.size(); i += 131) expect(i);
    for (std::size_t i = values.size() - kHeads; i < values.size(); ++i) expect(i);  // the biases
  }
}

TEST(SparsifyStep, ConcentrateStartsWithTheGradientOfThePlainMean) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const Model student = GatedCopy(dense, 0.5f, false);
  const auto tokens = Sums(100, 1);
  Optimizer optimizer(student, {});
  Batches batches(tokens, 14, 1);
  SparsifyStep step(student.config,
                    {.shape = {.batch = 4, .context = 14}, .seed = 5, .concentrate = true});
  EXPECT_EQ(step.concentrate_scale(), 0.0);
  const SparsifyStepResult r = step.Gradients(optimizer, dense, batches, 0, 0.5);
  // Heads of fresh weights are alike: each has the slope 1 / (2 sqrt(P)).
  EXPECT_NEAR(step.concentrate_scale(), 2.0 * std::sqrt(r.penalty), 1e-2);
  const double first = step.concentrate_scale();
  step.Gradients(optimizer, dense, batches, 1, 0.5);
  EXPECT_EQ(step.concentrate_scale(), first);
}

TEST(SparsifyStep, OpeningGatesGainsWhereTheyAreMissed) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const auto tokens = Sums(100, 1);
  Batches batches(tokens, 14, 1);
  const auto gain = [&](float bias) {
    const Model student = GatedCopy(dense, bias, true);
    Optimizer optimizer(student, {});
    SparsifyStep step(student.config, {.shape = {.batch = 4, .context = 14}});
    step.Gradients(optimizer, dense, batches, 0, 0.5);
    return step.GainOfOpening(optimizer.model(), 100.0);
  };
  EXPECT_EQ(gain(60.0f), 0.0);  // nothing is closed
  EXPECT_NE(gain(-60.0f), 0.0);
}

// Adam's first step is the rate times the gradient's sign.
TEST(Optimizer, GroupsHaveRatesOfTheirOwn) {
  const Model start = GatedCopy(RandomModel(AdderConfig(), 1), 2.0f, true);
  Optimizer optimizer(
      start, {.weight_decay = 0.0f, .clip_norm = 0.0f, .gate_bias_rate = 5.0f, .rest_rate = 0.25f});
  std::span<float> gradients = optimizer.parameters().gradients();
  std::fill(gradients.begin(), gradients.end(), 1.0f);
  optimizer.Step(1e-3, optimizer.GradientNorm());
  ModelWeights after = optimizer.model().weights;
  VisitParameters(start.config, after, [&](const ParameterSpec& spec, const Weight& weight) {
    const double moved = start.weights(spec.role, spec.layer).f32()[0] - weight.f32()[0];
    const double rate = spec.role == Role::kGateBias    ? 5.0
                        : MakesQueriesOrKeys(spec.role) ? 1.0
                                                        : 0.25;
    EXPECT_NEAR(moved, 1e-3 * rate, 2e-6) << spec.name;
  });
}

TEST(RateProbe, TakesTheFastestRateThatDoesNoHarm) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const Model gated = GatedCopy(dense, 2.0f, false);
  const auto tokens = Sums(300, 1);
  Batches batches(tokens, 14, 1);
  SparsifyStep step(gated.config, {.shape = {.batch = 8, .context = 14}});
  const auto probe = [&](double lr) {
    return ProbeRestRate(gated, dense, {.weight_decay = 0.0f}, {}, batches, step,
                         {.steps = 6, .lr = lr}, {})
        .value();
  };
  // Far too fast for fresh weights: every rate but the slowest, if any, does harm.
  const RateProbe fast = probe(1.0);
  EXPECT_GE(fast.tried.size(), 4u);
  EXPECT_LT(fast.chosen, 0.2);
  for (std::size_t i = 1; i + 1 < fast.tried.size(); ++i) {
    EXPECT_GT(fast.tried[i].divergence, 1.1 * std::max(fast.start, fast.tried[0].divergence)) << i;
  }
  const RateProbe slow = probe(1e-7);
  EXPECT_EQ(slow.tried.size(), 2u);
  EXPECT_EQ(slow.chosen, 1e-7);
  const RateProbe back = ProbeOf(ProbeJson(fast), "x");
  EXPECT_EQ(back.chosen, fast.chosen);
  EXPECT_EQ(back.tried.size(), fast.tried.size());
  EXPECT_THROW(ProbeOf(Json::object(), "x"), Error);
  EXPECT_FALSE(
      ProbeRestRate(gated, dense, {.weight_decay = 0.0f}, {}, batches, step, {.steps = 6}, [] {
        return true;
      }).has_value());
}

TEST(SweepBias, FewerEdgesAtALowerBias) {
  const Model dense = RandomModel(AdderConfig(), 1);
  const Model gated = GatedCopy(dense, 2.0f, true);
  const auto valid = Sums(40, 2);
  const std::vector<double> shifts = {50.0, 0.0, -2.0, -50.0};
  const QualityWindows windows{.tokens = valid, .context = 14};
  const double dense_loss = MeasureQuality(dense, windows).loss;
  const auto points = SweepBias(gated, dense_loss, windows, shifts);
  EXPECT_EQ(points[0].quality.edge_fraction, 1.0);
  EXPECT_NEAR(points[0].above, 0.0, 1e-6);
  EXPECT_EQ(points[3].quality.edge_fraction, 0.0);
  EXPECT_EQ(points[3].bias, -48.0);
  EXPECT_EQ(FewestEdges(points, 10.0), &points[3]);
  EXPECT_EQ(FewestEdges(points, -10.0), nullptr);
}

}  // namespace
}  // namespace clearhead
