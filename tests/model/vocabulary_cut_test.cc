// SPDX-License-Identifier: MIT
#include "model/vocabulary_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> Values(const Model& model, Role role) {
  std::vector<float> values(static_cast<std::size_t>(model.config.vocabulary * model.config.width));
  model.weights(role).CopyTo(0, std::ssize(values), values.data());
  return values;
}

TEST(VocabularyCut, KeepsWhatOccurs) {
  const std::vector<std::int32_t> ids = {5, 1, 5, 3};
  const VocabularyCut cut = CutToTokens(ids, 7);
  EXPECT_THAT(cut.kept, ElementsAre(1, 3, 5));
  EXPECT_THAT(cut.places, ElementsAre(-1, 0, -1, 1, -1, 2, -1));
  EXPECT_THAT(CutIds(ids, cut), ElementsAre(2, 0, 2, 1));
  for (const std::int32_t bad : {-1, 7}) {
    EXPECT_THAT([&] { CutToTokens(std::vector{bad}, 7); },
                ThrowsMessage<Error>(HasSubstr("outside the vocabulary of 7")));
  }
}

// Every family's form, tied and not: the logits of the tokens that are left have the same bits.
TEST(VocabularyCut, ChangesNoBitOfTheLogitsThatAreLeft) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const std::vector<std::int32_t> ids = RandomIds(config, 10, 4);
    const VocabularyCut cut = CutToTokens(ids, config.vocabulary);
    ASSERT_LT(std::ssize(cut.kept), config.vocabulary);
    const Model small = CutModel(model, cut);
    const std::vector<float> whole = RunModel(model, ids, 2).logits;
    const std::vector<float> left = RunModel(small, CutIds(ids, cut), 2).logits;
    const std::size_t V = static_cast<std::size_t>(config.vocabulary), n = cut.kept.size();
    ASSERT_EQ(left.size(), ids.size() * n);
    for (std::size_t row = 0; row < ids.size(); ++row) {
      for (std::size_t j = 0; j < n; ++j) {
        ASSERT_EQ(left[row * n + j], whole[row * V + static_cast<std::size_t>(cut.kept[j])]);
      }
    }
  }
}

TEST(VocabularyCut, ComesBackWithWhatWasLeftOut) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3), other = LivelyModel(config, 5);
    const VocabularyCut cut = CutToTokens(RandomIds(config, 10, 4), config.vocabulary);
    const Model back = UncutModel(CutModel(other, cut), model, cut);
    EXPECT_EQ(back.config.vocabulary, config.vocabulary);
    for (const Role role : {Role::kTokenEmbedding, Role::kOutput}) {
      if (model.weights(role).empty()) continue;
      const std::vector<float> values = Values(back, role), kept = Values(other, role),
                               left_out = Values(model, role);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t token = i / static_cast<std::size_t>(config.width);
        ASSERT_EQ(values[i], cut.places[token] >= 0 ? kept[i] : left_out[i]);
      }
    }
  }
}

}  // namespace
}  // namespace clearhead
