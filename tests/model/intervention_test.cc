// SPDX-License-Identifier: MIT
// Interventions: what they change, what they leave alone, and the gradients around them.
#include "model/intervention.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

constexpr std::int64_t kBatch = 2, kLength = 11;

struct Subject {
  explicit Subject(const ModelConfig& c, std::uint64_t seed = 21)
      : config(c), model(LivelyModel(c, seed)), ids(RandomIds(c, kBatch * kLength, seed + 1)) {}

  ModelRun Run(std::vector<Intervention> interventions, std::vector<TapId> taps = {},
               bool gradients = false) const {
    return RunModel(model, ids, kBatch,
                    {.taps = std::move(taps),
                     .gradients = gradients,
                     .interventions = std::move(interventions)});
  }
  std::vector<float> LogitsOf(std::int64_t sequence, std::int64_t position,
                              const ModelRun& run) const {
    const auto first = run.logits.begin() + (sequence * kLength + position) * config.vocabulary;
    return {first, first + config.vocabulary};
  }

  ModelConfig config;
  Model model;
  std::vector<std::int32_t> ids;
};

std::vector<TapId> Changeable(const ModelConfig& config) {
  std::vector<TapId> taps;
  for (const TapId id : AllTaps(config)) {
    if (HasGradient(id.tap)) taps.push_back(id);
  }
  return taps;
}

Intervention Scale(TapId tap, float factor) {
  const int rank = AxesOf(tap.tap) == TapAxes::kPosition ? 3 : 4;
  Shape ones;
  for (int axis = 0; axis < rank; ++axis) ones.Append(1);
  return {.tap = tap, .change = Change::kScale, .values = {factor}, .values_shape = ones};
}

TEST(Intervention, OwnValueChangesNothing) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const ModelRun plain = subject.Run({}, AllTaps(config));
    for (const TapId tap : Changeable(config)) {
      const ModelRun patched = subject.Run({WithValues(tap, Change::kSet, plain.taps.at(tap))});
      EXPECT_LE(MaxRelativeDifference(patched.logits, plain.logits), 2e-6) << TapName(tap);
    }
  }
}

// The other side of the coin: every tap that can be changed has an effect when it is.
TEST(Intervention, ZeroAtEveryTapHasAnEffect) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const ModelRun plain = subject.Run({});
    for (const TapId tap : Changeable(config)) {
      const ModelRun zeroed = subject.Run({{.tap = tap}}, {tap});
      EXPECT_GT(MaxRelativeDifference(zeroed.logits, plain.logits), 1e-3) << TapName(tap);
      for (const float value : zeroed.taps.at(tap).values) ASSERT_EQ(value, 0.0f) << TapName(tap);
    }
  }
}

TEST(Intervention, ZeroHeadIsZeroRowsOfTheProjection) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const std::int64_t D = config.head_size(), C = config.width;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      for (std::int64_t head = 0; head < config.heads; ++head) {
        std::vector<float> parameters = LivelyParameters(config, 21);
        float* weight = BindContiguous(config, parameters.data())
                            .blocks[static_cast<std::size_t>(layer)][Role::kProjectionWeight];
        for (std::int64_t i = 0; i < D * C; ++i) {  // what the head's values are multiplied with
          const std::int64_t input = head * D + i / C, output = i % C;
          const bool in_out = FamilyOf(config).order == Order::kInOut;
          weight[in_out ? input * C + output : output * config.heads_width() + input] = 0.0f;
        }
        const ModelRun expected = RunModel(ModelOf(config, parameters), subject.ids, kBatch);
        for (const Tap tap : {Tap::kZ, Tap::kResult}) {
          const ModelRun zeroed = subject.Run({{.tap = {tap, layer}, .heads = {head}}});
          EXPECT_LE(MaxRelativeDifference(zeroed.logits, expected.logits), 2e-6)
              << layer << " " << head;
        }
      }
    }
  }
}

TEST(Intervention, ResidualStreamOfAnotherPromptGivesItsLogits) {
  const Subject subject(OddConfig());
  const std::vector<std::int32_t> other = RandomIds(subject.config, kBatch * kLength, 99);
  const TapId tap{Tap::kResidPre, 0};
  const ModelRun donor = RunModel(subject.model, other, kBatch, {.taps = {tap}});
  const ModelRun patched = subject.Run({WithValues(tap, Change::kSet, donor.taps.at(tap))});
  EXPECT_EQ(patched.logits, donor.logits);
  EXPECT_NE(patched.logits, subject.Run({}).logits);
}

TEST(Intervention, IdentityPatternPassesValuesOn) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    Intervention identity{.tap = {Tap::kPattern, 1},
                          .change = Change::kSet,
                          .values_shape = {1, 1, kLength, kLength}};
    identity.values.assign(kLength * kLength, 0.0f);
    for (std::size_t i = 0; i < kLength; ++i) identity.values[i * (kLength + 1)] = 1.0f;
    const ModelRun run = subject.Run({identity}, {{Tap::kV, 1}, {Tap::kZ, 1}});
    const auto &z = run.taps.at({Tap::kZ, 1}).values, &v = run.taps.at({Tap::kV, 1}).values;
    const std::int64_t D = config.head_size(), H = config.heads, K = config.kv_heads();
    const float limit = config.clip_qkv.value_or(1e30f);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(z.size()); ++i) {
      const std::int64_t row = i / (H * D), h = i / D % H, d = i % D;
      const float value = v[static_cast<std::size_t>((row * K + h / (H / K)) * D + d)];
      ASSERT_EQ(z[static_cast<std::size_t>(i)], std::clamp(value, -limit, limit));
    }
  }
}

TEST(Intervention, ScaleAndAddAgree) {
  const Subject subject(OddConfig());
  for (const TapId tap : {TapId{Tap::kMlpOut, 0}, TapId{Tap::kQ, 1}, TapId{Tap::kPattern, 0}}) {
    const ModelRun plain = subject.Run({}, {tap});
    const ModelRun scaled = subject.Run({Scale(tap, 2.0f)});
    const ModelRun added = subject.Run({WithValues(tap, Change::kAdd, plain.taps.at(tap))});
    EXPECT_LE(MaxRelativeDifference(scaled.logits, added.logits), 2e-6) << TapName(tap);
    EXPECT_GT(MaxRelativeDifference(scaled.logits, plain.logits), 1e-3) << TapName(tap);
  }
}

// In order: doubling what was set is not setting what was doubled.
TEST(Intervention, AreAppliedInOrder) {
  const Subject subject(OddConfig());
  const TapId tap{Tap::kAttnOut, 1};
  const Intervention set{
      .tap = tap, .change = Change::kSet, .values = {0.5f}, .values_shape = {1, 1, 1}};
  const ModelRun set_first = subject.Run({set, Scale(tap, 2.0f)}, {tap});
  const ModelRun scaled_first = subject.Run({Scale(tap, 2.0f), set}, {tap});
  for (const float value : set_first.taps.at(tap).values) ASSERT_EQ(value, 1.0f);
  for (const float value : scaled_first.taps.at(tap).values) ASSERT_EQ(value, 0.5f);
}

TEST(Intervention, OneSequenceAndPosition) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const ModelRun plain = subject.Run({});
    for (const Tap tap :
         {Tap::kResidPre, Tap::kZ, Tap::kMlpPost, Tap::kK, Tap::kPattern, Tap::kQInput}) {
      const ModelRun changed = subject.Run({{.tap = {tap, 0}, .sequences = {1}, .positions = {4}}});
      for (std::int64_t b = 0; b < kBatch; ++b) {
        for (std::int64_t t = 0; t < kLength; ++t) {
          const double difference =
              MaxRelativeDifference(subject.LogitsOf(b, t, changed), subject.LogitsOf(b, t, plain));
          if (b == 1 && t == 4) {
            EXPECT_GT(difference, 1e-4) << TapName({tap, 0});
          } else if (b == 0 || t < 4) {  // another sequence, or before the change
            EXPECT_LE(difference, 2e-6) << TapName({tap, 0}) << " " << b << " " << t;
          }
        }
      }
    }
  }
}

// hook_attn_scores and hook_pattern of one query and key: exactly that element.
TEST(Intervention, OneQueryAndKey) {
  const Subject subject(OddConfig());
  const TapId tap{Tap::kPattern, 1};
  const ModelRun plain = subject.Run({}, {tap});
  const ModelRun changed = subject.Run(
      {{.tap = tap, .sequences = {1}, .positions = {6}, .heads = {2}, .keys = {3, 5}}}, {tap});
  std::vector<float> expected = plain.taps.at(tap).values;
  for (const std::size_t key : {3, 5}) {
    float& weight = expected[((1 * 3 + 2) * kLength + 6) * kLength + key];
    EXPECT_GT(weight, 0.0f);
    weight = 0.0f;
  }
  EXPECT_EQ(changed.taps.at(tap).values, expected);
}

TEST(Intervention, SplitInputOfOneHeadReachesThatHeadOnly) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const TapId z{Tap::kZ, 1};
    const ModelRun plain = subject.Run({}, {z});
    for (const Tap input : {Tap::kQInput, Tap::kKInput, Tap::kVInput}) {
      // Keys and values may belong to several heads; norms over all heads mix them.
      const std::int64_t heads = input == Tap::kQInput ? config.heads : config.kv_heads();
      if (config.query_key_norm == QueryKeyNorm::kWhole && input != Tap::kVInput) continue;
      for (std::int64_t head = 0; head < heads; ++head) {
        const ModelRun changed = subject.Run({{.tap = {input, 1}, .heads = {head}}}, {z});
        const auto& before = plain.taps.at(z).values;
        const auto& after = changed.taps.at(z).values;
        std::vector<double> difference(static_cast<std::size_t>(config.heads), 0.0);
        for (std::size_t i = 0; i < before.size(); ++i) {
          const std::size_t h = i / static_cast<std::size_t>(config.head_size()) %
                                static_cast<std::size_t>(config.heads);
          difference[h] = std::max(difference[h], std::abs(double{after[i]} - before[i]));
        }
        for (std::int64_t h = 0; h < config.heads; ++h) {
          if (h / (config.heads / heads) == head) {
            EXPECT_GT(difference[static_cast<std::size_t>(h)], 1e-3) << TapName({input, 1});
          } else {
            EXPECT_LE(difference[static_cast<std::size_t>(h)], 1e-6) << TapName({input, 1});
          }
        }
      }
    }
  }
}

// All three inputs of all heads set to another prompt's stream: attention computes what it did
// there.
TEST(Intervention, SplitInputsTogetherAreTheCommonInput) {
  const Subject subject(OddConfig());
  const std::vector<TapId> inputs = {{Tap::kQInput, 1}, {Tap::kKInput, 1}, {Tap::kVInput, 1}};
  std::vector<TapId> taps = inputs;
  taps.push_back({Tap::kAttnOut, 1});
  const ModelRun donor = RunModel(subject.model, RandomIds(subject.config, kBatch * kLength, 77),
                                  kBatch, {.taps = taps});
  std::vector<Intervention> patches;
  for (const TapId tap : inputs)
    patches.push_back(WithValues(tap, Change::kSet, donor.taps.at(tap)));
  const ModelRun patched = subject.Run(patches, {{Tap::kAttnOut, 1}});
  EXPECT_LE(MaxRelativeDifference(patched.taps.at({Tap::kAttnOut, 1}).values,
                                  donor.taps.at({Tap::kAttnOut, 1}).values),
            2e-6);
}

TEST(Intervention, OpenMaskIsTheDenseModel) {
  const Subject subject(GatedConfig());
  std::vector<Intervention> open;
  for (std::int64_t layer = 0; layer < subject.config.layers; ++layer) {
    open.push_back({.tap = {Tap::kSparseMask, layer},
                    .change = Change::kSet,
                    .values = {1.0f},
                    .values_shape = {1, 1, 1, 1}});
  }
  const ModelRun dense = RunModel(subject.model, subject.ids, kBatch, {.gates = {.open = true}});
  EXPECT_LE(MaxRelativeDifference(subject.Run(open).logits, dense.logits), 2e-6);
  EXPECT_GT(MaxRelativeDifference(subject.Run({}).logits, dense.logits), 1e-3);
}

// A closed gate takes its weight away and gives it to nobody.
TEST(Intervention, ClosedMaskIsNotRenormalised) {
  const Subject subject(GatedConfig());
  const TapId pattern{Tap::kPattern, 0};
  const ModelRun plain = subject.Run({}, {pattern});
  const ModelRun closed =
      subject.Run({{.tap = {Tap::kSparseMask, 0}, .heads = {1}, .keys = {0}}}, {pattern});
  std::vector<float> expected = plain.taps.at(pattern).values;
  double taken = 0.0;
  for (std::size_t row = 0; row < kBatch * 3 * kLength; ++row) {
    if (row / kLength % 3 != 1) continue;
    taken += expected[row * kLength];
    expected[row * kLength] = 0.0f;
  }
  EXPECT_GT(taken, 0.1);
  EXPECT_EQ(closed.taps.at(pattern).values, expected);
}

TEST(Intervention, RefusesWhatDoesNotFit) {
  const ModelConfig config = OddConfig();
  const auto refused = [&](const Intervention& intervention) {
    return ErrorOf([&] { CheckIntervention(intervention, config, kBatch, kLength); });
  };
  const auto expect = [&](const Intervention& intervention, std::string_view part) {
    EXPECT_NE(refused(intervention).find(part), std::string::npos)
        << refused(intervention) << " | " << part;
  };
  EXPECT_EQ(refused({.tap = {Tap::kZ, 1}, .heads = {0, 2}}), "");
  expect({.tap = {Tap::kLn1Scale, 0}}, "blocks.0.ln1.hook_scale can be read but not changed");
  expect({.tap = {Tap::kZ, 2}}, "layers 0 to 1");
  expect({.tap = {Tap::kZ, -1}}, "layers 0 to 1");
  expect({.tap = {Tap::kZ, 0}, .heads = {3}}, "index 3");
  expect({.tap = {Tap::kZ, 0}, .positions = {11}}, "index 11");
  expect({.tap = {Tap::kZ, 0}, .sequences = {-1}}, "index -1");
  expect({.tap = {Tap::kPattern, 0}, .keys = {11}}, "index 11");
  expect({.tap = {Tap::kResidMid, 0}, .heads = {0}}, "no heads");
  expect({.tap = {Tap::kZ, 0}, .keys = {0}}, "no keys");
  expect({.tap = {Tap::kSparseMask, 0}}, "gate");
  expect({.tap = {Tap::kZ, 0}, .change = Change::kSet}, "do not fit");
  expect(
      {.tap = {Tap::kZ, 0}, .change = Change::kAdd, .values = {1, 2}, .values_shape = {1, 1, 1, 2}},
      "do not fit");
  expect({.tap = {Tap::kZ, 0},
          .change = Change::kScale,
          .values = {1, 2},
          .values_shape = {1, 1, 1, 1}},
         "do not fit");
  expect({.tap = {Tap::kZ, 0}, .change = Change::kScale, .values = {1}, .values_shape = {1, 1, 1}},
         "do not fit");
}

// --- Gradients
// -------------------------------------------------------------------------------------

// Keeps about half of the elements: directions that see errors in single components.
GoldenTensor HalfOf(const GoldenTensor& gradient, std::uint64_t seed) {
  RandomStream random(seed);
  GoldenTensor half = gradient;
  for (float& value : half.values) {
    if (random.Below(2) == 0) value = 0.0f;
  }
  return half;
}

double SquaredNorm(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

// (loss(x + e u) - loss(x - e u)) / 2e against gradient . u = |u|^2 for u made of the gradient's
// elements. The step changes the loss by about 2 * 3e-3: far above fp32 noise, small enough for the
// cubic term.
template <typename LossAt>
void ExpectDirectionalDerivative(const std::vector<float>& direction, const LossAt& loss_at,
                                 const std::string& what) {
  const double expected = SquaredNorm(direction);
  ASSERT_GT(expected, 1e-8) << what << ": the gradient vanishes, nothing is tested";
  const double step = 3e-3 / expected;
  const double measured = (loss_at(step) - loss_at(-step)) / (2.0 * step);
  EXPECT_NEAR(measured / expected, 1.0, 1e-2) << what;
}

void ExpectTapGradients(const Subject& subject, const std::vector<TapId>& taps) {
  const ModelRun run = subject.Run({}, taps, /*gradients=*/true);
  for (const TapId tap : taps) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const GoldenTensor direction = HalfOf(run.tap_gradients.at(tap), seed);
      ExpectDirectionalDerivative(
          direction.values,
          [&](double step) {
            GoldenTensor move = direction;
            for (float& value : move.values) value = static_cast<float>(step * value);
            return subject.Run({WithValues(tap, Change::kAdd, move)}).loss;
          },
          TapName(tap));
    }
  }
}

TEST(TapGradients, MatchFiniteDifferences) {
  for (ModelConfig config : TestConfigs()) {
    if (config.attention == AttentionKind::kGated) continue;
    SCOPED_TRACE(NameOf(config));
    if (config.clip_qkv) config.clip_qkv = 100.0f;  // differences would step over the clamp's edges
    ExpectTapGradients(Subject(config), Changeable(config));
  }
}

// Through a gate the gradient is straight-through, not the derivative; after the last gate it is.
TEST(TapGradients, OfGatedModelsMatchFiniteDifferencesAfterTheLastGate) {
  const ModelConfig config = GatedConfig();
  std::vector<TapId> taps;
  for (const Tap tap :
       {Tap::kVInput, Tap::kV, Tap::kSparseMask, Tap::kPattern, Tap::kZ, Tap::kResult,
        Tap::kAttnOut, Tap::kResidMid, Tap::kMlpIn, Tap::kLn2Normalized, Tap::kMlpPre,
        Tap::kMlpPost, Tap::kMlpOut, Tap::kResidPost}) {
    taps.push_back({tap, config.layers - 1});
  }
  taps.push_back({Tap::kLnFinalNormalized, 0});
  ExpectTapGradients(Subject(config), taps);
}

// The residual stream before a block feeds the stream after attention and every head's three
// inputs.
TEST(TapGradients, StreamIsTheSumOfItsReaders) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Subject subject(config);
    const ModelRun run = subject.Run({}, AllTaps(config), /*gradients=*/true);
    const std::int64_t C = config.width;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      std::vector<float> sum = run.tap_gradients.at({Tap::kResidMid, layer}).values;
      for (const Tap input : {Tap::kQInput, Tap::kKInput, Tap::kVInput}) {
        const auto& part = run.tap_gradients.at({input, layer}).values;
        const std::int64_t H = input == Tap::kQInput ? config.heads : config.kv_heads();
        for (std::size_t i = 0; i < part.size(); ++i) {
          const std::int64_t row = static_cast<std::int64_t>(i) / (H * C);
          sum[static_cast<std::size_t>(row * C + static_cast<std::int64_t>(i) % C)] += part[i];
        }
      }
      EXPECT_LE(MaxRelativeDifference(run.tap_gradients.at({Tap::kResidPre, layer}).values, sum),
                5e-6);
      // And after attention: the stream behind the block, and the MLP.
      std::vector<float> mid = run.tap_gradients.at({Tap::kResidPost, layer}).values;
      const auto& mlp_in = run.tap_gradients.at({Tap::kMlpIn, layer}).values;
      for (std::size_t i = 0; i < mid.size(); ++i) mid[i] += mlp_in[i];
      EXPECT_LE(MaxRelativeDifference(run.tap_gradients.at({Tap::kResidMid, layer}).values, mid),
                5e-6);
    }
  }
}

TEST(TapGradients, AreZeroBeforeAFullSet) {
  const Subject subject(OddConfig());
  const TapId tap{Tap::kResidMid, 1};
  const ModelRun plain = subject.Run({}, {tap});
  const ModelRun run = subject.Run({WithValues(tap, Change::kSet, plain.taps.at(tap))},
                                   AllTaps(subject.config), /*gradients=*/true);
  EXPECT_GT(SquaredNorm(run.tap_gradients.at(tap).values), 1e-6);
  EXPECT_GT(SquaredNorm(run.tap_gradients.at({Tap::kMlpPre, 1}).values), 1e-6);
  for (const TapId earlier : Changeable(subject.config)) {
    const bool before = earlier.tap == Tap::kEmbed || earlier.tap == Tap::kPosEmbed ||
                        (IsPerLayer(earlier.tap) && (earlier.layer == 0 || earlier.tap < tap.tap));
    if (!before) continue;
    for (const float value : run.tap_gradients.at(earlier).values)
      ASSERT_EQ(value, 0.0f) << TapName(earlier);
  }
  std::vector<float> gradients = run.parameter_gradients;
  const ModelValues d = BindContiguous(subject.config, gradients.data());
  EXPECT_EQ(SquaredNorm({d(Role::kTokenEmbedding), d(Role::kTokenEmbedding) + 23 * 15}), 0.0);
  EXPECT_EQ(SquaredNorm({d(Role::kPositionEmbedding), d(Role::kPositionEmbedding) + 17 * 15}), 0.0);
  EXPECT_EQ(SquaredNorm({d.blocks[1][Role::kQkvWeight], d.blocks[1][Role::kQkvWeight] + 15 * 45}),
            0.0);
  EXPECT_GT(
      SquaredNorm({d.blocks[1][Role::kMlpInWeight], d.blocks[1][Role::kMlpInWeight] + 15 * 29}),
      1e-6);
}

// Parameter gradients of a model with interventions: what each changed value is made of must know.
TEST(TapGradients, OfParametersUnderInterventionsMatchFiniteDifferences) {
  const ModelConfig config = OddConfig();
  const Subject subject(config);
  for (const TapId tap : Changeable(config)) {
    if (tap.tap == Tap::kQInput || tap.tap == Tap::kKInput || tap.tap == Tap::kVInput) continue;
    Intervention change = Scale(tap, 0.5f);
    change.positions = {1, 4, 5, 8};
    if (AxesOf(tap.tap) != TapAxes::kPosition) change.heads = {0, 2};
    const ModelRun run = subject.Run({change}, {}, /*gradients=*/true);
    const std::vector<float> parameters = LivelyParameters(config, 21);
    // Tensor by tensor, so that a small one cannot hide behind a large one.
    std::size_t first = 0;
    for (const ParameterSpec& spec : ParameterTable(config)) {
      const auto count = static_cast<std::size_t>(spec.shape.size());
      std::vector<float> direction(run.parameter_gradients.size(), 0.0f);
      std::copy_n(run.parameter_gradients.begin() + static_cast<std::ptrdiff_t>(first), count,
                  direction.begin() + static_cast<std::ptrdiff_t>(first));
      first += count;
      if (SquaredNorm(direction) < 1e-8) continue;
      ExpectDirectionalDerivative(
          direction,
          [&](double step) {
            std::vector<float> moved = parameters;
            for (std::size_t i = 0; i < moved.size(); ++i)
              moved[i] += static_cast<float>(step * direction[i]);
            return RunModel(ModelOf(config, moved), subject.ids, kBatch,
                            {.interventions = {change}})
                .loss;
          },
          TapName(tap) + " halved, " + spec.name);
    }
  }
}

TEST(TapGradients, RefuseWhatHasNoDerivative) {
  const Subject softmax(OddConfig());
  EXPECT_NE(ErrorOf([&] {
              softmax.Run({{.tap = {Tap::kQInput, 0}}}, {}, true);
            }).find("hook_q_input"),
            std::string::npos);
  const Subject gated(GatedConfig());
  EXPECT_NE(ErrorOf([&] {
              gated.Run({{.tap = {Tap::kSparseMask, 0}}}, {}, true);
            }).find("hook_sparse_mask"),
            std::string::npos);
}

}  // namespace
}  // namespace clearhead
