// SPDX-License-Identifier: MIT
// Documents written many at once, against the model run over each of them alone.
#include "use/write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "model/model_testing.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

std::vector<WrittenDocument> Written(const Model& model, const WriteOptions& options) {
  std::vector<WrittenDocument> documents;
  WriteDocuments(model, options,
                 [&](const WrittenDocument& document) { documents.push_back(document); });
  return documents;
}

// How far the uniform number lies outside the token's share of softmax(logits); 0 inside.
double OutsideShare(const float* logits, std::int64_t count, std::int32_t token, double uniform) {
  double sum = 0.0, before = 0.0, largest = *std::max_element(logits, logits + count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i == token) before = sum;
    sum += std::exp(logits[i] - largest);
  }
  const double low = before / sum, high = low + std::exp(logits[token] - largest) / sum;
  return std::max({0.0, low - uniform, uniform - high});
}

class WriteTest : public WithThreads {};
INSTANTIATE_TEST_SUITE_P(Threads, WriteTest, testing::Values(1, 2, 5));

// Documents end at different places, so that the batch shrinks again and again; every token must
// still be what the draw takes from the model's own distribution.
TEST_P(WriteTest, EveryTokenIsDrawnFromTheModelsOwnDistribution) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 41);
    const std::int64_t V = config.vocabulary;
    WriteOptions options{.documents = 13, .at_once = 5, .start = RandomIds(config, 2, 42)};
    options.first_document = 3;
    options.generate = {.max_new = 100, .temperature = 1.0, .seed = 7};
    for (std::int32_t id = 0; id < V; id += 7) options.generate.stop_tokens.push_back(id);
    const auto& stops = options.generate.stop_tokens;
    const std::vector<WrittenDocument> documents = Written(model, options);
    ASSERT_EQ(documents.size(), 13u);
    bool shorter = false;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const WrittenDocument& document = documents[i];
      EXPECT_EQ(document.number, static_cast<std::int64_t>(i) + 3);
      ASSERT_LE(document.ids.size(), 17u);
      if (document.ids.size() < 17) {
        EXPECT_TRUE(document.finished);
      }
      shorter |= document.ids.size() < 17;
      ASSERT_TRUE(std::equal(options.start.begin(), options.start.end(), document.ids.begin()));
      const std::vector<float> logits = RunModel(model, document.ids, 1).logits;
      for (std::size_t at = 2; at < document.ids.size(); ++at) {
        EXPECT_EQ(std::count(stops.begin(), stops.end(), document.ids[at]), 0);
        const double uniform = ToUniform(HashCoordinates(
            7, {static_cast<std::uint64_t>(document.number), static_cast<std::uint64_t>(at - 2)}));
        EXPECT_LE(OutsideShare(logits.data() + static_cast<std::int64_t>(at - 1) * V, V,
                               document.ids[at], uniform),
                  1e-4);
      }
    }
    EXPECT_TRUE(shorter) << "the test needs documents that end";
  }
}

TEST(Write, GreedyDocumentsAreGenerates) {
  const Model model = LivelyModel(OddConfig(), 43);
  WriteOptions options{.documents = 3, .at_once = 2, .start = {3, 1, 4}};
  options.generate = {.max_new = 6};
  const Generation expected = Generate(model, {3, 1, 4}, {.max_new = 6});
  for (const WrittenDocument& document : Written(model, options)) {
    EXPECT_EQ(document.ids, expected.ids);
    EXPECT_FALSE(document.finished);
  }
}

TEST(Write, StopsWhenAsked) {
  const Model model = LivelyModel(OddConfig(), 43);
  WriteOptions options{.documents = 100, .at_once = 2, .start = {3}};
  options.generate = {.max_new = 4};
  std::int64_t documents = 0, tokens = 0;
  WriteDocuments(
      model, options, [&](const WrittenDocument&) { ++documents; },
      [&](std::int64_t count) { return (tokens += count) < 20; });
  EXPECT_EQ(documents, 4);  // two batches of 8 tokens; the third is cut off
  EXPECT_EQ(tokens, 20);
}

TEST(Write, RefusesAStartThatTheModelCannotRead) {
  const Model model = LivelyModel(OddConfig(), 43);
  EXPECT_THROW(Written(model, {.documents = 1, .start = {}}), Error);
  EXPECT_THROW(Written(model, {.documents = 1, .start = {1 << 20}}), Error);
}

}  // namespace
}  // namespace clearhead
