// SPDX-License-Identifier: MIT
#include "model/ungroup.h"

#include <gtest/gtest.h>

#include "model/head_weights.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

TEST(Ungroup, GivesTheSameLogitsWithEveryHeadOnItsOwn) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const Model apart = Ungroup(model);
    EXPECT_EQ(apart.config.kv_heads(), config.heads);
    const std::vector<std::int32_t> ids = RandomIds(config, 22, 4);
    EXPECT_LE(MaxRelativeDifference(RunModel(apart, ids, 2).logits, RunModel(model, ids, 2).logits),
              2e-6);
  }
}

// A head's matrices, from its input to the stream, are what the taps say.
TEST(HeadWeights, GiveQueriesKeysValuesAndResults) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const std::int64_t T = 5, C = config.width, D = config.head_size(), layer = 1;
    const std::vector<std::int32_t> ids = RandomIds(config, T, 4);
    const bool before = config.norm_place == NormPlace::kBefore;
    const TapId in{before ? Tap::kLn1Normalized : Tap::kResidPre, layer};
    const TapId q{Tap::kQ, layer}, k{Tap::kK, layer}, v{Tap::kV, layer}, z{Tap::kZ, layer},
        result{Tap::kResult, layer};
    const ModelRun run = RunModel(model, ids, 1, {.taps = {in, q, k, v, z, result}});
    const std::int64_t share = config.heads / config.kv_heads();
    for (std::int64_t h = 0; h < config.heads; ++h) {
      const HeadWeights head = HeadWeightsOf(model, layer, h);
      const auto expect = [&](const Linear& linear, const float* x, std::int64_t x_stride,
                              TapId tap, std::int64_t heads, std::int64_t at) {
        std::vector<float> y(static_cast<std::size_t>(T * linear.out));
        LinearForward(linear, T, {x, x_stride}, {y.data(), linear.out});
        const std::vector<float>& values = run.taps.at(tap).values;
        for (std::int64_t t = 0; t < T; ++t) {
          for (std::int64_t i = 0; i < linear.out; ++i) {
            EXPECT_NEAR(y[static_cast<std::size_t>(t * linear.out + i)],
                        values[static_cast<std::size_t>((t * heads + at) * linear.out + i)], 2e-5)
                << TapName(tap);
          }
        }
      };
      const float* x = run.taps.at(in).values.data();
      expect(head.query, x, C, q, config.heads, h);
      expect(head.key, x, C, k, config.kv_heads(), h / share);
      expect(head.value, x, C, v, config.kv_heads(), h / share);
      expect(head.output, run.taps.at(z).values.data() + h * D, config.heads_width(), result,
             config.heads, h);
    }
  }
}

}  // namespace
}  // namespace clearhead
