// SPDX-License-Identifier: MIT
// What the library refuses by itself, whoever calls it, and buffers that serve several passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Refusals : public testing::Test {
 protected:
  Model model_ = ModelOf(OddConfig(), LivelyParameters(OddConfig(), 3));
  std::vector<std::int32_t> ids_ = {1, 2, 3, 4, 5, 6}, targets_ = {2, 3, -1, 5, 6, -1};
  Activations activations_{model_.config, 2, 3, Keep::kAll, 6};
  std::vector<float> logits_ = std::vector<float>(6 * 23);

  std::string ForwardBackwardMessage() {
    return MessageOf([&] {
      ForwardBackward({.model = model_, .batch = 2, .length = 3}, ids_.data(), targets_.data(),
                      1.0f, activations_, nullptr, nullptr);
    });
  }
};

TEST_F(Refusals, TokensAndTargetsOutsideTheVocabulary) {
  EXPECT_EQ(ForwardBackwardMessage(), "");
  for (const std::int32_t wild : {-1, 23, 1 << 30}) {
    ids_[4] = wild;
    EXPECT_THAT(ForwardBackwardMessage(), HasSubstr(std::to_string(wild)));
    EXPECT_THAT(MessageOf([&] {
                  Forward({.model = model_, .batch = 2, .length = 3}, ids_.data(), activations_,
                          logits_.data());
                }),
                HasSubstr(std::to_string(wild)));
  }
  ids_[4] = 5;
  for (const std::int32_t wild : {23, 1 << 30}) {
    targets_[1] = wild;
    EXPECT_THAT(ForwardBackwardMessage(), HasSubstr(std::to_string(wild)));
    EXPECT_THAT(MessageOf([&] {
                  LossForward({.model = model_, .batch = 2, .length = 3}, targets_.data(),
                              activations_);
                }),
                HasSubstr(std::to_string(wild)));
  }
}

TEST_F(Refusals, MoreTokensThanPositionsOrRoomInTheCache) {
  const std::int64_t T = model_.config.positions + 1;
  const std::vector<std::int32_t> many(static_cast<std::size_t>(T), 1);
  Activations large(model_.config, 1, T, Keep::kNothing, 0);
  EXPECT_THAT(MessageOf([&] {
                ForwardToFinalNorm({.model = model_, .batch = 1, .length = T}, many.data(), large);
              }),
              HasSubstr("positions"));
  KeyValueCache cache(model_.config, 2, 5);
  const Pass pass{.model = model_, .batch = 2, .length = 3, .cache = &cache};
  EXPECT_EQ(MessageOf([&] { ForwardToFinalNorm(pass, ids_.data(), activations_); }), "");
  EXPECT_THAT(MessageOf([&] { ForwardToFinalNorm(pass, ids_.data(), activations_); }),
              ::testing::AllOf(HasSubstr("3 of 5"), HasSubstr("cache")));
  EXPECT_EQ(cache.length, 3);
  KeyValueCache narrow(model_.config, 1, 5);
  EXPECT_THAT(MessageOf([&] {
                ForwardToFinalNorm({.model = model_, .batch = 2, .length = 3, .cache = &narrow},
                                   ids_.data(), activations_);
              }),
              HasSubstr("cache"));
}

TEST_F(Refusals, BackwardOfAPassWithACache) {
  KeyValueCache cache(model_.config, 2, 9);
  const Pass pass{.model = model_, .batch = 2, .length = 3, .cache = &cache};
  EXPECT_THAT(MessageOf([&] {
                ForwardBackward(pass, ids_.data(), targets_.data(), 1.0f, activations_, nullptr,
                                nullptr);
              }),
              HasSubstr("cache"));
  EXPECT_EQ(cache.length, 0);  // refused before the pass
}

TEST(Sizes, ThatCannotBeCountedAreRefused) {
  const ModelConfig config = OddConfig();
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_THAT(MessageOf([&] { Activations(config, large, large, Keep::kAll, 1); }),
              HasSubstr("too large"));
  EXPECT_THAT(MessageOf([&] { Activations::Plan(config, large, large / 32, Keep::kAll, 1); }),
              HasSubstr("too large"));
  EXPECT_THAT(MessageOf([&] { KeyValueCache(config, large, large); }), HasSubstr("too large"));
}

// Hooks that change one tap of every layer.
class Doubling final : public Hooks {
 public:
  explicit Doubling(Tap tap) : tap_(tap) {}
  bool Wants(TapId id) const override { return id.tap == tap_; }
  bool Changes(TapId id) const override { return id.tap == tap_; }
  bool WantsGradient(TapId id) const override { return id.tap == tap_; }
  void Visit(TapId, const TensorView<float>& value) override { Double(value); }
  void VisitGradient(TapId, const TensorView<float>& gradient) override { Double(gradient); }

 private:
  static void Double(const TensorView<float>& view) {
    for (std::int64_t i = 0; i < view.shape.size(); ++i) view.data[i] *= 2.0f;  // contiguous taps
  }
  Tap tap_;
};

// Hooks that only look at the gradient of a tap.
class Looking final : public Hooks {
 public:
  bool Wants(TapId) const override { return false; }
  void Visit(TapId, const TensorView<float>&) override {}
  bool WantsGradient(TapId id) const override { return id.tap == Tap::kMlpIn; }
};

// What a pass with hooks kept beside its values must not reach the next pass.
TEST(Activations, AnotherPassWithOtherHooksSeesNothingOfTheFirst) {
  const Model model = ModelOf(OddConfig(), LivelyParameters(OddConfig(), 3));
  const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6}, targets = {2, 3, -1, 5, 6, -1};
  const auto gradients = [&](Activations& activations, Hooks* hooks) {
    std::vector<float> values(static_cast<std::size_t>(model.config.ParameterCount()), 0.0f);
    ModelValues tensors = BindContiguous(model.config, values.data());
    ForwardBackward({.model = model, .batch = 2, .length = 3, .hooks = hooks}, ids.data(),
                    targets.data(), 1.0f, activations, &tensors, nullptr);
    return values;
  };
  Looking looking;
  for (Hooks* second : {static_cast<Hooks*>(nullptr), static_cast<Hooks*>(&looking)}) {
    Activations fresh(model.config, 2, 3, Keep::kAll, 6);
    const std::vector<float> expected = gradients(fresh, second);
    for (const Tap tap : {Tap::kZ, Tap::kMlpIn}) {
      Activations reused(model.config, 2, 3, Keep::kAll, 6);
      Doubling doubling(tap);
      EXPECT_NE(gradients(reused, &doubling), expected);
      EXPECT_EQ(gradients(reused, second), expected);
    }
  }
}

}  // namespace
}  // namespace clearhead
