// SPDX-License-Identifier: MIT
// Taps: names, shapes, that each is seen once, and what they must add up to.
#include "model/taps.h"

#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace clearhead {
namespace {

// Counts what passes by, and remembers the shapes.
class Counter final : public Hooks {
 public:
  explicit Counter(bool gradients) : gradients_(gradients) {}
  bool Wants(TapId) const override { return true; }
  void Visit(TapId id, const TensorView<float>& value) override {
    ++visits[id];
    shapes[id] = value.shape;
  }
  bool WantsGradient(TapId) const override { return gradients_; }
  void VisitGradient(TapId id, const TensorView<float>& gradient) override {
    ++gradient_visits[id];
    EXPECT_EQ(gradient.shape, shapes[id]) << TapName(id);
  }

  std::map<TapId, int> visits, gradient_visits;
  std::map<TapId, Shape> shapes;

 private:
  bool gradients_;
};

TEST(Taps, EachIsSeenOnceWithItsShape) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    for (const auto& [batch, length] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 1}, {1, 17}, {2, 7}}) {
      SCOPED_TRACE(fmt::format("{} x {}", batch, length));
      const std::vector<std::int32_t> ids = RandomIds(config, batch * length, 3);
      Counter counter(/*gradients=*/true);
      const Pass pass{.model = model, .batch = batch, .length = length, .hooks = &counter};
      Activations activations(config, batch, length, Keep::kAll, 5);
      std::vector<std::int32_t> targets(ids.size(), 1);
      std::vector<float> gradients(static_cast<std::size_t>(config.ParameterCount()), 0.0f);
      ModelValues bound = BindContiguous(config, gradients.data());
      PackedBf16 scratch;
      ForwardBackward(pass, ids.data(), targets.data(), 1.0f, activations, &bound, &scratch);

      std::size_t with_gradient = 0;
      for (const TapId id : AllTaps(config)) {
        EXPECT_EQ(counter.visits[id], 1) << TapName(id);
        EXPECT_EQ(counter.shapes[id], TapShape(id.tap, config, batch, length)) << TapName(id);
        EXPECT_EQ(counter.gradient_visits[id], HasGradient(id.tap) ? 1 : 0) << TapName(id);
        with_gradient += HasGradient(id.tap) ? 1 : 0;
      }
      // Nothing else passed by.
      EXPECT_EQ(counter.visits.size(), AllTaps(config).size());
      EXPECT_EQ(with_gradient, static_cast<std::size_t>(std::count_if(
                                   counter.gradient_visits.begin(), counter.gradient_visits.end(),
                                   [](const auto& entry) { return entry.second > 0; })));
    }
  }
}

TEST(Taps, NamesParseBack) {
  const ModelConfig config = GatedConfig();
  const std::vector<TapId> all = AllTaps(config);
  EXPECT_EQ(all.size(), static_cast<std::size_t>(4 + 2 * (kTapCount - 4 - 3)));
  std::map<std::string, int> names;
  for (const TapId id : all) {
    const auto parsed = ParseTap(TapName(id), config);
    ASSERT_TRUE(parsed.has_value()) << TapName(id);
    EXPECT_EQ(*parsed, id) << TapName(id);
    ++names[TapName(id)];
  }
  EXPECT_EQ(names.size(), all.size()) << "two taps share a name";
  for (const char* wrong : {"", "hook_embed ", "blocks.2.hook_resid_pre",
                            "blocks.01.hook_resid_pre", "blocks.-1.hook_resid_pre",
                            "blocks.0.hook_embed", "hook_resid_pre", "blocks.0.attn.hook_Q", "*"}) {
    EXPECT_FALSE(ParseTap(wrong, config).has_value()) << wrong;
  }
  // A softmax model has no gates to look at.
  EXPECT_FALSE(ParseTap("blocks.0.attn.hook_sparse_mask", OddConfig()).has_value());
  EXPECT_FALSE(ParseTap("blocks.0.attn.hook_gate_prob", OddConfig()).has_value());
}

TEST(Taps, PatternsMatch) {
  const ModelConfig config = OddConfig();
  const auto names = [&](std::string_view patterns) {
    std::vector<std::string> result;
    for (const TapId id : MatchTaps(patterns, config)) result.push_back(TapName(id));
    return result;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(MatchTaps("all", config), AllTaps(config));
  EXPECT_EQ(MatchTaps("*", config), AllTaps(config));
  EXPECT_EQ(names("blocks.*.attn.hook_pattern"),
            (List{"blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"}));
  // Each once and in the order of the forward pass, however often and in whatever order they are
  // named.
  EXPECT_EQ(names("blocks.1.hook_mlp_out,hook_*,*hook_embed,blocks.1.*mlp_o*t"),
            (List{"hook_embed", "hook_pos_embed", "blocks.1.hook_mlp_out"}));
  EXPECT_EQ(names("ln_final.*"), (List{"ln_final.hook_scale", "ln_final.hook_normalized"}));
  for (const char* wrong : {"", ",", "hook_embed,", ",hook_embed", "nothing",
                            "hook_embed,blocks.9.*", "blocks.*.attn.hook_sparse_mask", "ALL"}) {
    EXPECT_NE(ErrorOf([&] { MatchTaps(wrong, config); }), "") << wrong;
  }
  EXPECT_NE(ErrorOf([&] { MatchTaps("hook_embed,blocks.9.*", config); }).find("'blocks.9.*'"),
            std::string::npos);
}

TEST(Taps, ManyStarsStayFast) {
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*h*o";
  EXPECT_NE(ErrorOf([&] { MatchTaps(pattern, OddConfig()); }), "");
}

// Sums over heads and the residual stream's additions, for softmax and gated models.
TEST(Taps, AddUp) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 5);
    const std::int64_t B = 2, T = 11, C = config.width, H = config.heads, R = B * T;
    const ModelRun run = RunModel(model, RandomIds(config, R, 6), B, {.taps = AllTaps(config)});
    const auto tap = [&](Tap name, std::int64_t layer) -> const std::vector<float>& {
      return run.taps.at({name, layer}).values;
    };
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      std::vector<float> sum(static_cast<std::size_t>(R * C)), mid, post;
      const Weight& bias = model.weights(Role::kProjectionBias, layer);
      const std::vector<float>& result = tap(Tap::kResult, layer);
      for (std::int64_t r = 0; r < R; ++r) {
        for (std::int64_t i = 0; i < C; ++i) {
          double total = bias.empty() ? 0.0f : bias.f32()[i];
          for (std::int64_t h = 0; h < H; ++h)
            total += result[static_cast<std::size_t>((r * H + h) * C + i)];
          sum[static_cast<std::size_t>(r * C + i)] = static_cast<float>(total);
        }
      }
      if (config.norm_place == NormPlace::kBefore) {
        EXPECT_LE(MaxRelativeDifference(tap(Tap::kAttnOut, layer), sum), 1e-6);
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        mid.push_back(tap(Tap::kResidPre, layer)[i] + tap(Tap::kAttnOut, layer)[i]);
        post.push_back(tap(Tap::kResidMid, layer)[i] + tap(Tap::kMlpOut, layer)[i]);
      }
      EXPECT_EQ(tap(Tap::kResidMid, layer), mid);
      EXPECT_EQ(tap(Tap::kResidPost, layer), post);
      EXPECT_EQ(tap(Tap::kMlpIn, layer), mid);
      if (layer + 1 < config.layers) {
        EXPECT_EQ(tap(Tap::kResidPre, layer + 1), post);
      }
      for (const Tap split : {Tap::kQInput, Tap::kKInput, Tap::kVInput}) {
        const std::int64_t heads = split == Tap::kQInput ? H : config.kv_heads();
        for (std::int64_t r = 0; r < R * heads; ++r) {
          for (std::int64_t i = 0; i < C; ++i) {
            ASSERT_EQ(tap(split, layer)[static_cast<std::size_t>(r * C + i)],
                      tap(Tap::kResidPre, layer)[static_cast<std::size_t>(r / heads * C + i)]);
          }
        }
      }
    }
    std::vector<float> start;
    for (std::size_t i = 0; i < static_cast<std::size_t>(R * C); ++i) {
      const bool learned = config.position == PositionKind::kLearned;
      start.push_back(tap(Tap::kEmbed, 0)[i] + (learned ? tap(Tap::kPosEmbed, 0)[i] : 0.0f));
    }
    EXPECT_EQ(tap(Tap::kResidPre, 0), start);
  }
}

// Calls f(row of T weights, query) for every row of a [B,H,T,T] tap.
template <typename F>
void ForRows(const GoldenTensor& matrix, const F& f) {
  const std::int64_t T = matrix.shape[3];
  for (std::size_t row = 0; row * static_cast<std::size_t>(T) < matrix.values.size(); ++row) {
    f(matrix.values.data() + row * static_cast<std::size_t>(T), static_cast<std::int64_t>(row) % T);
  }
}

TEST(Taps, PatternRowsAreProbabilities) {
  const ModelConfig config = OddConfig();
  const ModelRun run =
      RunModel(LivelyModel(config, 7), RandomIds(config, 34, 8), 2, {.taps = AllTaps(config)});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ForRows(run.taps.at({Tap::kPattern, layer}), [](const float* row, std::int64_t query) {
      double sum = 0.0;
      for (std::int64_t key = 0; key < 17; ++key) {
        if (key > query) {
          EXPECT_EQ(row[key], 0.0f);
        }
        EXPECT_GE(row[key], 0.0f);
        sum += row[key];
      }
      EXPECT_NEAR(sum, 1.0, 1e-6);
    });
    ForRows(run.taps.at({Tap::kScores, layer}), [](const float* row, std::int64_t query) {
      for (std::int64_t key = 0; key < 17; ++key) EXPECT_EQ(std::isinf(row[key]), key > query);
    });
  }
}

// Gated: weights = softmax(scores) * mask, mask = scores + bias > 0, probability = its sigmoid.
TEST(Taps, GatesFollowFromScores) {
  const ModelConfig config = GatedConfig(0.4f);
  const ModelRun run =
      RunModel(LivelyModel(config, 9), RandomIds(config, 34, 10), 2, {.taps = AllTaps(config)});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto& scores = run.taps.at({Tap::kScores, layer});
    const auto& mask = run.taps.at({Tap::kSparseMask, layer}).values;
    const auto& probability = run.taps.at({Tap::kGateProb, layer}).values;
    const auto& pattern = run.taps.at({Tap::kPattern, layer}).values;
    std::size_t row_start = 0, open = 0, closed = 0;
    ForRows(scores, [&](const float* row, std::int64_t query) {
      double total = 0.0;
      for (std::int64_t key = 0; key <= query; ++key) total += std::exp(double{row[key]});
      for (std::int64_t key = 0; key <= query; ++key) {
        const std::size_t at = row_start + static_cast<std::size_t>(key);
        const double logit = double{row[key]} + 0.4f;
        if (std::abs(logit) > 1e-5) {
          EXPECT_EQ(mask[at], logit > 0 ? 1.0f : 0.0f);
        }
        EXPECT_NEAR(probability[at], 1.0 / (1.0 + std::exp(-logit)), 1e-6);
        EXPECT_NEAR(pattern[at], mask[at] * std::exp(double{row[key]}) / total, 1e-6);
        (mask[at] > 0 ? open : closed) += 1;
      }
      for (std::int64_t key = query + 1; key < 17; ++key) {
        const std::size_t at = row_start + static_cast<std::size_t>(key);
        EXPECT_EQ(mask[at], 0.0f);
        EXPECT_EQ(pattern[at], 0.0f);
      }
      row_start += 17;
    });
    EXPECT_GT(open, 50u);  // the test means something only with both kinds
    EXPECT_GT(closed, 50u);
  }
}

TEST(Taps, StagedAndFusedAgree) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 11);
    for (const std::int64_t length : {1, 2, 7, 17}) {
      const std::vector<std::int32_t> ids = RandomIds(config, 3 * length, 12);
      const ModelRun fused = RunModel(model, ids, 3, {.gradients = length > 1});
      const ModelRun staged =
          RunModel(model, ids, 3, {.taps = AllTaps(config), .gradients = length > 1});
      EXPECT_LE(MaxRelativeDifference(staged.logits, fused.logits), 3e-6) << length;
      if (length == 1) continue;
      EXPECT_LE(MaxRelativeDifference(staged.parameter_gradients, fused.parameter_gradients), 5e-6)
          << length;
      EXPECT_NEAR(fused.library_loss, fused.loss, 1e-6);
    }
  }
}

// Asking for one matrix only takes other ways through the staged code than asking for all.
TEST(Taps, AloneOrTogetherTheyAreTheSame) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 13);
    const std::vector<std::int32_t> ids = RandomIds(config, 22, 14);
    const ModelRun all = RunModel(model, ids, 2, {.taps = AllTaps(config), .gradients = true});
    for (const TapId id : AllTaps(config)) {
      const ModelRun one = RunModel(model, ids, 2, {.taps = {id}, .gradients = true});
      ASSERT_EQ(one.taps.size(), 1u);
      EXPECT_LE(MaxRelativeDifference(one.taps.at(id).values, all.taps.at(id).values), 2e-6)
          << TapName(id);
      EXPECT_LE(MaxRelativeDifference(one.logits, all.logits), 2e-6) << TapName(id);
      if (!HasGradient(id.tap)) continue;
      EXPECT_LE(
          MaxRelativeDifference(one.tap_gradients.at(id).values, all.tap_gradients.at(id).values),
          1e-5)
          << TapName(id);
    }
  }
}

}  // namespace
}  // namespace clearhead
