// SPDX-License-Identifier: MIT
// clearhead attention, end to end.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/program.h"
#include "cli/small_model.h"
#include "support/golden_models.h"

namespace clearhead {
namespace {

class AttentionCommand : public testing::TestWithParam<bool> {
 protected:
  AttentionCommand() : model_(MakeSmallModel(folder_ / "m", GetParam())) {}
  std::string path() const { return folder_ / "m"; }

  TemporaryFolder folder_;
  Model model_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionCommand, testing::Bool(),
                         [](const auto& info) { return info.param ? "gated" : "softmax"; });

constexpr const char* kPrompt = "The cat sat on the other mat";

TEST_P(AttentionCommand, JsonHasThePatternOfEveryHead) {
  const Json json = SucceedJson({"attention", path(), "--prompt", kPrompt});
  const std::vector<std::int32_t> ids = json["ids"].get<std::vector<std::int32_t>>();
  EXPECT_EQ(ids, Tokenizer::Load(path()).Encode(kPrompt));
  EXPECT_EQ(json["tokens"].size(), ids.size());
  EXPECT_EQ(json["tokens"][0], "The");
  Succeed({"capture", path(), "--prompt", kPrompt, "--out", folder_ / "run", "--taps",
           "blocks.*.attn.hook_pattern"});
  const std::map<std::string, GoldenTensor> golden = ReadGolden(folder_ / "run");
  ASSERT_EQ(json["heads"].size(), 6u);
  int closed = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const GoldenTensor& pattern = golden.at(fmt::format("blocks.{}.attn.hook_pattern", layer));
    const std::size_t T = ids.size();
    for (std::size_t h = 0; h < 3; ++h) {
      const Json& rows = json["heads"][fmt::format("L{}H{}", layer, h)];
      ASSERT_EQ(rows.size(), T);
      for (std::size_t q = 0; q < T; ++q) {
        ASSERT_EQ(rows[q].size(), q + 1);
        double sum = 0.0;
        for (std::size_t k = 0; k <= q; ++k) {
          const float weight = rows[q][k].get<float>();
          EXPECT_EQ(weight, pattern.values[(h * T + q) * T + k]);
          sum += weight;
          closed += weight == 0.0f;
        }
        // Gated weights are not renormalised.
        if (GetParam()) {
          EXPECT_LE(sum, 1.0 + 1e-5);
        } else {
          EXPECT_NEAR(sum, 1.0, 1e-5);
        }
      }
    }
  }
  EXPECT_EQ(closed > 0, GetParam());
}

TEST_P(AttentionCommand, OneLayerAndOpenGates) {
  const Json one = SucceedJson({"attention", path(), "--prompt", kPrompt, "--layer", "1"});
  ASSERT_EQ(one["heads"].size(), 3u);
  const Json all = SucceedJson({"attention", path(), "--prompt", kPrompt});
  // Layer 0 ran fused in one and in stages in the other: equal but for rounding.
  for (std::size_t q = 0; q < all["heads"]["L1H2"].size(); ++q) {
    for (std::size_t k = 0; k <= q; ++k) {
      EXPECT_NEAR(one["heads"]["L1H2"][q][k].get<float>(), all["heads"]["L1H2"][q][k].get<float>(),
                  1e-5);
    }
  }
  const std::vector<std::string> open = {"attention", path(),    "--prompt",
                                         kPrompt,     "--gates", "open"};
  if (!GetParam()) return ExpectFailure(open, 1, {"--gates", "gated model"});
  const Json opened = SucceedJson(open);  // named, so that it outlives the loop
  for (const auto& [name, rows] : opened["heads"].items()) {
    for (const Json& row : rows) {
      double sum = 0.0;
      for (const Json& weight : row) sum += weight.get<double>();
      EXPECT_NEAR(sum, 1.0, 1e-5) << name;
    }
  }
}

TEST_P(AttentionCommand, DrawsForPeople) {
  const std::string out = Succeed({"attention", path(), "--prompt", kPrompt}).out;
  for (const char* label : {"L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"}) {
    EXPECT_NE(out.find(label), std::string::npos) << out;
  }
  const std::string ascii = Succeed({"attention", path(), "--prompt", kPrompt, "--ascii"}).out;
  EXPECT_TRUE(std::all_of(ascii.begin(), ascii.end(), [](char c) {
    return c == '\n' || (c >= ' ' && c <= '~');
  })) << ascii;
}

TEST_P(AttentionCommand, RefusesWhatItCannotDo) {
  ExpectFailure({"attention", path()}, 2, {"--prompt"});
  ExpectFailure({"attention", path(), "--prompt", "a", "--layer", "2"}, 1,
                {"--layer 2", "layers 0 to 1"});
  ExpectFailure({"attention", path(), "--prompt", "a", "--layer", "-1"}, 2, {"--layer"});
  ExpectFailure({"attention", path(), "--prompt", SmallText()}, 1, {"48 positions"});
  ExpectFailure({"attention", path(), "--prompt", ""}, 1, {});
  ExpectFailure({"attention", folder_ / "absent", "--prompt", "a"}, 1, {"absent"});
  ExpectFailure({"attention", path(), "--prompt", "a"}, 1, {"standard output"},
                {.out = "/dev/full"});
}

}  // namespace
}  // namespace clearhead
