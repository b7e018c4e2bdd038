// SPDX-License-Identifier: MIT
// Transcoders of every kind and layout against values that another implementation computed.
#include "features/transcoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "features/golden_features.h"
#include "model/fingerprint.h"
#include "model/model.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class GoldenTranscoderTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, GoldenTranscoderTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

// Of the largest expected magnitude: ten times and more what fp32 costs the maker of the values.
constexpr double kTolerance = 1e-5;

TEST_P(GoldenTranscoderTest, EncodesAndReconstructs) {
  const FeatureCase golden = ReadFeatureCase(GetParam());
  const Transcoder transcoder = LoadTranscoder(GoldenTranscoder(golden.name));
  const std::int64_t L = transcoder.config.layers, C = transcoder.config.width,
                     F = transcoder.config.features;
  for (const GoldenPrompt& prompt : golden.prompts) {
    const std::int64_t T = prompt.length;
    const std::vector<float>& input = golden.Values(prompt.prefix + "input");
    std::vector<float> pre(static_cast<std::size_t>(L * T * F));
    std::vector<float> reconstruction(static_cast<std::size_t>(L * T * C));
    std::vector<SparseRows> active;
    std::vector<std::int32_t> features;
    std::vector<float> values;
    for (std::int64_t l = 0; l < L; ++l) {
      PreActivations(transcoder, l, T, input.data() + l * T * C, pre.data() + l * T * F);
      SparseRows from_pre;
      Activate(transcoder, l, T, pre.data() + l * T * F, from_pre);
      active.push_back(Encode(transcoder, l, T, input.data() + l * T * C));
      EXPECT_EQ(active.back().begin, from_pre.begin);
      EXPECT_EQ(active.back().column, from_pre.column);
      for (std::int64_t t = 0; t < T; ++t) {
        for (std::int64_t e = active.back().begin[t]; e < active.back().begin[t + 1]; ++e) {
          for (const std::int64_t index : {l, t, std::int64_t{active.back().column[e]}}) {
            features.push_back(static_cast<std::int32_t>(index));
          }
          values.push_back(active.back().value[e]);
        }
      }
      Reconstruct(transcoder, l, T, active, input.data() + l * T * C,
                  reconstruction.data() + l * T * C);
    }
    EXPECT_LE(MaxRelativeDifference(pre, golden.Values(prompt.prefix + "pre")), kTolerance);
    EXPECT_EQ(features, prompt.features);
    EXPECT_LE(MaxRelativeDifference(values, golden.Values(prompt.prefix + "values")), kTolerance);
    EXPECT_LE(
        MaxRelativeDifference(reconstruction, golden.Values(prompt.prefix + "reconstruction")),
        kTolerance);
  }
}

// Single rows say the same as the products: what feature 5 reads, and what it writes alone.
TEST_P(GoldenTranscoderTest, SingleRowsAreThoseOfTheProducts) {
  const Transcoder transcoder = LoadTranscoder(GoldenTranscoder(GetParam()));
  const TranscoderConfig& c = transcoder.config;
  std::vector<float> row(static_cast<std::size_t>(c.width)), unit(row.size()), y(row.size()),
      y0(row.size()), pre(static_cast<std::size_t>(c.features));
  for (std::int64_t l = 0; l < c.layers; ++l) {
    EncoderRow(transcoder, l, 5, row.data());
    for (std::int64_t i = 0; i < c.width; i += 3) {
      std::fill(unit.begin(), unit.end(), 0.0f);
      unit[static_cast<std::size_t>(i)] = 1.0f;
      PreActivations(transcoder, l, 1, unit.data(), pre.data());
      EXPECT_NEAR(pre[5] - transcoder.layers[static_cast<std::size_t>(l)].encoder.bias[5],
                  row[static_cast<std::size_t>(i)], 1e-6);
    }
    for (std::int64_t t = l; t < LastTarget(c, l); ++t) {
      std::vector<SparseRows> active(static_cast<std::size_t>(c.layers));
      for (SparseRows& layer : active) layer.begin = {0, 0};
      std::fill(unit.begin(), unit.end(), 0.0f);
      Reconstruct(transcoder, t, 1, active, unit.data(), y0.data());
      active[static_cast<std::size_t>(l)] = {{0, 1}, {5}, {2.0f}};
      Reconstruct(transcoder, t, 1, active, unit.data(), y.data());
      DecoderRow(transcoder, l, 5, t, row.data());
      for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(y[i] - y0[i], 2 * row[i], 1e-6);
    }
  }
}

TEST(Transcoder, EncodesALongInputInPieces) {
  const Transcoder transcoder = LoadTranscoder(GoldenTranscoder("gated-plt-topk"));
  const std::int64_t F = transcoder.config.features, C = transcoder.config.width;
  const std::int64_t rows = (1 << 22) / F + 100;  // more than one piece
  std::vector<float> x(static_cast<std::size_t>(rows * C));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const SparseRows all = Encode(transcoder, 1, rows, x.data());
  ASSERT_EQ(all.rows(), rows);
  ASSERT_EQ(all.size(), rows * transcoder.config.k);
  const SparseRows end = Encode(transcoder, 1, 3, x.data() + (rows - 3) * C);
  const std::int64_t from = all.begin[static_cast<std::size_t>(rows - 3)];
  EXPECT_TRUE(std::equal(end.column.begin(), end.column.end(), all.column.begin() + from));
}

TEST(Transcoder, RefusesValuesThatAreNotFinite) {
  const Transcoder transcoder = LoadTranscoder(GoldenTranscoder("dense-clt-relu"));
  std::vector<float> x(static_cast<std::size_t>(transcoder.config.width), 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { Encode(transcoder, 1, 1, x.data()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("layer 1"), HasSubstr("not finite"))));
  const std::vector<SparseRows> active = {{{0, 1}, {2}, {std::numeric_limits<float>::infinity()}}};
  std::vector<float> y(x.size());
  EXPECT_THAT([&] { Reconstruct(transcoder, 0, 1, active, nullptr, y.data()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("layer 0"), HasSubstr("not finite"))));
}

TEST(Transcoder, SaysWhichModelItFits) {
  const Model dense = LoadModel(FeatureGoldens() / "models/dense");
  const Model gated = LoadModel(FeatureGoldens() / "models/gated");
  Transcoder transcoder = LoadTranscoder(GoldenTranscoder("dense-clt-ln2"));
  CheckFits(transcoder, dense);
  EXPECT_THAT(
      [&] { CheckFits(transcoder, gated); },
      ThrowsMessage<Error>(AllOf(HasSubstr("2 layers of width 16"), HasSubstr("3 of width 32"))));
  transcoder.config.model = "tale";
  transcoder.config.model_hash = fmt::format("{:016x}", WeightsFingerprint(dense));
  CheckFits(transcoder, dense);
  transcoder.config.model_hash = "00000000deadbeef";
  EXPECT_THAT([&] { CheckFits(transcoder, dense); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'tale'"), HasSubstr("00000000deadbeef"))));

  // Norms behind the halves: nothing normalised is read by the MLP.
  const Model olmo =
      LoadModel(std::filesystem::path(CLEARHEAD_TEST_DATA) / "golden/llama/models/olmo2");
  transcoder.config.model_hash.clear();
  transcoder.config.layers = olmo.config.layers;
  transcoder.config.width = olmo.config.width;
  EXPECT_THAT([&] { CheckFits(transcoder, olmo); },
              ThrowsMessage<Error>(HasSubstr("hook_resid_mid")));
  transcoder.config.reads = Tap::kResidMid;
  CheckFits(transcoder, olmo);
}

}  // namespace
}  // namespace clearhead
