// SPDX-License-Identifier: MIT
// The whole model against Hugging Face's, every family: forward values, gradients, continuations.
#include <gtest/gtest.h>

#include "model/taps.h"
#include "support/golden_models.h"
#include "use/generate.h"

namespace clearhead {
namespace {

class GoldenModelTest : public testing::TestWithParam<std::string> {};

std::string Name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModelTest, testing::ValuesIn(GoldenModelNames()), Name);

void ExpectAbs(const std::map<std::string, GoldenTensor>& run, const std::string& ours,
               const GoldenTensor& expected, double tolerance) {
  ASSERT_TRUE(run.contains(ours)) << ours;
  EXPECT_EQ(run.at(ours).shape, expected.shape) << ours;
  EXPECT_LE(MaxAbsDifference(run.at(ours).values, expected.values), tolerance) << ours;
}

void ExpectRel(const std::map<std::string, GoldenTensor>& run, const std::string& ours,
               const GoldenTensor& expected, double tolerance) {
  ASSERT_TRUE(run.contains(ours)) << ours;
  EXPECT_EQ(run.at(ours).shape, expected.shape) << ours;
  EXPECT_LE(MaxRelativeDifference(run.at(ours).values, expected.values), tolerance) << ours;
}

// Where a golden tensor is among our taps; empty for those compared elsewhere.
std::string TapOf(const std::string& golden, std::int64_t layers) {
  const auto number = [&](std::size_t at) { return std::stoll(golden.substr(at)); };
  if (golden == "logits") return "logits";
  if (golden == "resid_final") return fmt::format("blocks.{}.hook_resid_post", layers - 1);
  if (golden.starts_with("attn.")) return fmt::format("blocks.{}.attn.hook_pattern", number(5));
  if (golden.starts_with("hidden.")) {
    const std::int64_t layer = number(7);
    return layer == layers ? "ln_final.hook_normalized"
                           : fmt::format("blocks.{}.hook_resid_pre", layer);
  }
  if (golden.starts_with("int.h.")) {
    const std::int64_t layer = number(6);
    const std::string part = golden.substr(golden.find('.', 6) + 1);
    const std::map<std::string, std::string> names = {
        {"ln_1", "ln1.hook_normalized"}, {"attn", "hook_attn_out"},
        {"ln_2", "ln2.hook_normalized"}, {"mlp.c_fc", "mlp.hook_pre"},
        {"mlp.act", "mlp.hook_post"},    {"mlp", "hook_mlp_out"}};
    const auto it = names.find(part);
    return it == names.end() ? "" : fmt::format("blocks.{}.{}", layer, it->second);
  }
  return "";
}

// The outputs of Hugging Face's sub-modules of Llama and its relatives among our taps.
std::string ModuleTap(const std::string& part, const ModelConfig& config) {
  const bool before = config.norm_place == NormPlace::kBefore;
  const std::map<std::string, std::string> names = {
      {"input_layernorm", "ln1.hook_normalized"},
      {"post_attention_layernorm", before ? "ln2.hook_normalized" : "hook_attn_out"},
      {"post_feedforward_layernorm", "hook_mlp_out"},
      {"self_attn", before ? "hook_attn_out" : ""},
      {"mlp", before ? "hook_mlp_out" : ""},
      {"self_attn.q_proj", "attn.hook_q"},
      {"self_attn.k_proj", "attn.hook_k"},
      {"self_attn.v_proj", "attn.hook_v"},
      {"q_rope", "attn.hook_rot_q"},
      {"k_rope", "attn.hook_rot_k"},
      {"mlp.gate_proj", "mlp.hook_pre"},
      {"mlp.up_proj", "mlp.hook_pre_linear"},
      {"mlp.act_fn", ""}};
  const auto it = names.find(part);
  return it == names.end() ? "" : it->second;
}

// [B,H,T,D] as [B,T,H,D].
std::vector<float> PositionsFirst(const GoldenTensor& tensor) {
  const auto B = tensor.shape[0], H = tensor.shape[1], T = tensor.shape[2], D = tensor.shape[3];
  std::vector<float> values(tensor.values.size());
  for (std::int64_t i = 0; i < B * H * T * D; ++i) {
    const std::int64_t d = i % D, t = i / D % T, h = i / D / T % H, b = i / D / T / H;
    values[static_cast<std::size_t>(((b * T + t) * H + h) * D + d)] =
        tensor.values[static_cast<std::size_t>(i)];
  }
  return values;
}

TEST_P(GoldenModelTest, SubModulesMatch) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  for (const GoldenCase& c : GoldenCases(GoldenModel(GetParam()))) {
    const auto golden = ReadGolden(c.tensors);
    const auto run = RunCapture(model, c.ids, c.batch, {.taps = AllTaps(model.config)});
    for (const auto& [name, expected] : golden) {
      constexpr std::string_view kPrefix = "int.layers.";
      if (!name.starts_with(kPrefix)) continue;
      const std::size_t dot = name.find('.', kPrefix.size());
      const std::string part = name.substr(dot + 1);
      const std::string tap = ModuleTap(part, model.config);
      if (tap.empty()) continue;
      const std::string layer = name.substr(kPrefix.size(), dot - kPrefix.size());
      const auto& ours = run.at(fmt::format("blocks.{}.{}", layer, tap)).values;
      const auto theirs = part.ends_with("_rope") ? PositionsFirst(expected) : expected.values;
      EXPECT_LE(MaxRelativeDifference(ours, theirs), 2e-5) << name;
    }
  }
}

TEST_P(GoldenModelTest, ForwardMatches) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  const auto cases = GoldenCases(GoldenModel(GetParam()));
  ASSERT_FALSE(cases.empty());
  for (const GoldenCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto golden = ReadGolden(c.tensors);
    const auto run = RunCapture(model, c.ids, c.batch, {.taps = AllTaps(model.config)});
    int compared = 0;
    for (const auto& [name, expected] : golden) {
      const std::string tap = TapOf(name, model.config.layers);
      if (tap.empty()) continue;
      ++compared;
      if (name == "logits") {
        ExpectAbs(run, tap, expected, 1e-4);
      } else if (name.starts_with("attn.")) {
        ExpectAbs(run, tap, expected, 1e-5);
      } else {
        ExpectRel(run, tap, expected, 2e-5);
      }
    }
    EXPECT_GE(compared, 1);
    // Queries, keys and values lie side by side in Hugging Face's tensor.
    for (std::int64_t layer = 0; layer < model.config.layers; ++layer) {
      const auto it = golden.find(fmt::format("int.h.{}.attn.c_attn", layer));
      if (it == golden.end()) continue;
      const std::int64_t C = model.config.width, R = c.batch * c.length;
      std::vector<float> joined(static_cast<std::size_t>(3 * C * R));
      int part = 0;
      for (const char* tap : {"q", "k", "v"}) {
        const auto& values = run.at(fmt::format("blocks.{}.attn.hook_{}", layer, tap)).values;
        for (std::int64_t r = 0; r < R; ++r) {
          std::copy_n(values.begin() + r * C, C, joined.begin() + r * 3 * C + part * C);
        }
        ++part;
      }
      EXPECT_LE(MaxRelativeDifference(joined, it->second.values), 2e-5) << it->first;
    }
  }
}

// Without taps the fused attention runs; it must give the same logits.
TEST_P(GoldenModelTest, ForwardWithoutTapsMatches) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  for (const GoldenCase& c : GoldenCases(GoldenModel(GetParam()))) {
    const auto run = RunCapture(model, c.ids, c.batch, {});
    EXPECT_EQ(run.size(), 1u);
    ExpectAbs(run, "logits", ReadGolden(c.tensors).at("logits"), 1e-4);
  }
}

void ExpectGradients(const Model& model, const GoldenCase& c, const RecordOptions& options,
                     double tolerance) {
  const auto golden = ReadGolden(c.tensors);
  const auto run = RunCapture(model, c.ids, c.batch, options);
  EXPECT_NEAR(run.at("loss").values[0], c.loss, 1e-5);
  std::size_t compared = 0;
  for (const auto& [name, expected] : golden) {
    if (!name.starts_with("grad.")) continue;
    ++compared;
    ExpectRel(run, name, expected, tolerance);
  }
  EXPECT_EQ(compared, ParameterTable(model.config).size());
}

TEST_P(GoldenModelTest, GradientsMatch) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  for (const GoldenCase& c : GoldenCases(GoldenModel(GetParam()))) {
    if (!c.has_grads) continue;
    SCOPED_TRACE(c.name);
    ExpectGradients(model, c, {.gradients = true}, 5e-5);
    // With every tap the staged attention runs, forward and backward.
    ExpectGradients(model, c, {.taps = AllTaps(model.config), .gradients = true}, 5e-5);
  }
}

TEST_P(GoldenModelTest, GreedyContinuationsMatch) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  const Json golden = ReadJsonFile(GoldenModel(GetParam()) / "golden.json");
  for (const Json& expected : golden["generate"]) {
    const auto prompt = expected["prompt"].get<std::vector<std::int32_t>>();
    const Generation result =
        Generate(model, prompt, {.max_new = expected["new_tokens"].get<std::int64_t>()});
    EXPECT_EQ(result.ids, expected["ids"].get<std::vector<std::int32_t>>());
  }
}

// 16-bit matrices used as they are mapped give what widened ones give, up to the order of sums.
TEST(SixteenBits, AsMappedMatch) {
  for (const char* name :
       {"c/bf16", "c/f16", "llama/forms/llama3/bf16", "llama/forms/llama3/f16"}) {
    SCOPED_TRACE(name);
    const Model mapped = LoadModel(GoldenModel(name), /*widen_up_to=*/0);
    ASSERT_FALSE(mapped.weights(Role::kTokenEmbedding).is_f32());
    for (const GoldenCase& c : GoldenCases(GoldenModel(name))) {
      const auto run = RunCapture(mapped, c.ids, c.batch, {});
      ExpectAbs(run, "logits", ReadGolden(c.tensors).at("logits"), 1e-4);
      if (c.has_grads) ExpectGradients(mapped, c, {.gradients = true}, 5e-5);
    }
    const TemporaryFolder folder;  // saved as it is held: the same bits
    SaveModel(mapped, folder / "copy");
    const Model copy = LoadModel(folder / "copy", /*widen_up_to=*/0);
    EXPECT_EQ(copy.weights(Role::kTokenEmbedding).dtype, mapped.stored_as);
  }
}

// Saved and loaded again, the model gives the same bits.
TEST_P(GoldenModelTest, SaveAndLoadGivesTheSameLogits) {
  const Model model = LoadModel(GoldenModel(GetParam()));
  const TemporaryFolder folder;
  SaveModel(model, folder / "copy");
  const Model copy = LoadModel(folder / "copy");
  const GoldenCase c = GoldenCases(GoldenModel(GetParam()))[0];
  EXPECT_EQ(RunCapture(model, c.ids, c.batch, {}).at("logits").values,
            RunCapture(copy, c.ids, c.batch, {}).at("logits").values);
}

}  // namespace
}  // namespace clearhead
