// SPDX-License-Identifier: MIT
#include "use/steer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/head_weights.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

// A direction that the output reads for a token raises that token with every dose.
TEST(Steer, ATokensOwnDirectionRaisesIt) {
  const Model model = LivelyModel(OddConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 6, 2);
  std::vector<float> direction = OutputRow(model, 7);
  const Norm norm = FinalNormOf(model);
  for (std::size_t i = 0; i < direction.size(); ++i) direction[i] *= norm.weight[i];
  // Only the last layer is left to answer; its halves are small beside a dose of 40.
  const std::vector<SteerPoint> points =
      DoseResponse(model.config, ids, {.doses = {-40, 0, 40}, .targets = {7}},
                   AddDirection(model, ids, direction, 1, {5}, {}));
  ASSERT_EQ(points.size(), 3u);
  EXPECT_LT(points[0].probabilities[0], points[1].probabilities[0]);
  EXPECT_GT(points[2].probabilities[0], points[1].probabilities[0]);
  EXPECT_EQ(points[1].divergence, 0.0);
  EXPECT_GT(points[2].divergence, 0.0);
  // The prompt's own losses end before the last position: nothing reaches them.
  EXPECT_EQ(points[0].loss, points[1].loss);
}

// A head's output once less is the head switched off, where nothing else of its layer sees it: in a
// layer whose MLP writes nothing.
TEST(Steer, AHeadOnceLessIsTheHeadSwitchedOff) {
  ModelConfig config = OddConfig();
  std::vector<float> parameters = LivelyParameters(config, 1);
  ModelValues values = BindContiguous(config, parameters.data());
  std::fill_n(values(Role::kMlpOutWeight, 0), config.inner * config.width, 0.0f);
  const Model model = ModelOf(config, parameters);
  const std::vector<std::int32_t> ids = RandomIds(config, 6, 9);
  const std::int64_t last = 5;
  const std::vector<float> output = HeadOutput(model, ids, 0, 2, last, {});
  const std::vector<float> less = AddDirection(model, ids, output, 1, {last}, {})(-1.0);
  const Knockout off =
      KnockOut(model, ids, std::vector<EdgeCut>{{.layer = 0, .head = 2, .query = last}}, {});
  const PromptOutcome steered = OutcomeOf(less, ids, 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steered.likeliest[last][i].token, off.after.likeliest[last][i].token);
    EXPECT_NEAR(steered.likeliest[last][i].probability, off.after.likeliest[last][i].probability,
                1e-5);
  }
}

// One dose of the difference, at the end of the one text, is the other text's end.
TEST(Steer, TheDifferenceOfTwoTextsLeadsFromOneToTheOther) {
  const Model model = LivelyModel(OddConfig());
  std::vector<std::int32_t> a = RandomIds(model.config, 1, 2), b = RandomIds(model.config, 1, 8);
  ASSERT_NE(a, b);
  const std::vector<float> difference = StreamDifference(model, b, a, 1, {});
  const std::vector<float> led = AddDirection(model, a, difference, 1, {}, {})(1.0);
  const std::vector<float> there = AddDirection(model, b, difference, 1, {}, {})(0.0);
  for (std::size_t i = 0; i < there.size(); ++i) EXPECT_NEAR(led[i], there[i], 1e-4);
}

TEST(Steer, RefusesWhatDoesNotFit) {
  const Model model = LivelyModel(OddConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 5, 1);
  EXPECT_THROW(AddDirection(model, ids, std::vector<float>(3), 0, {}, {}), Error);
  EXPECT_THROW(AddDirection(model, ids, std::vector<float>(15), 2, {}, {}), Error);
  EXPECT_THROW(HeadOutput(model, ids, 0, 3, 0, {}), Error);
  EXPECT_THROW(HeadOutput(model, ids, 0, 0, 5, {}), Error);
  EXPECT_THROW(StreamDifference(model, ids, {}, 0, {}), Error);
  const DosedRun run = AddDirection(model, ids, std::vector<float>(15), 0, {}, {});
  EXPECT_THROW(DoseResponse(model.config, ids, {.doses = {1}, .targets = {23}}, run), Error);
  EXPECT_THROW(DoseResponse(model.config, ids, {.doses = {std::nan("")}}, run), Error);
}

}  // namespace
}  // namespace clearhead
