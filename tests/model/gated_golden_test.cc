// SPDX-License-Identifier: MIT
// Whole models with gated attention against the official sparse attention inside Hugging Face's
// GPT-2 and Llama.
#include <gtest/gtest.h>

#include "support/golden_models.h"

namespace clearhead {
namespace {

struct GatedCase {
  Model model;
  std::vector<std::int32_t> ids;
  std::int64_t batch;
  double ce;
  RecordOptions options;
  std::map<std::string, GoldenTensor> golden;
  Json json;
};

void AddCases(const std::string& folder_name, const std::string& prefix,
              std::vector<GatedCase>& cases) {
  const std::filesystem::path folder = GoldenFolder() / folder_name;
  const Json golden = ReadJsonFile(folder / "golden.json");
  for (const Json& json : golden["cases"]) {
    GatedCase c;
    c.json = json;
    c.model = LoadModel(GoldenModel(
        prefix + std::filesystem::path(json["model"].get<std::string>()).filename().string()));
    c.model.config.attention = AttentionKind::kGated;
    c.model.config.gate_bias = json["gate_bias"].get<float>();
    c.ids = Flatten(json["input_ids"]);
    c.batch = static_cast<std::int64_t>(json["input_ids"].size());
    c.ce = json["ce"].get<double>();
    c.golden = ReadGolden(folder / json["tensors"].get<std::string>());
    c.options.gradients = true;
    c.options.gates.penalty_weight = json["alpha"].get<float>();
    c.options.gates.mode = json["sample"].get<bool>() ? GateMode::kSampled : GateMode::kHard;
    cases.push_back(std::move(c));
  }
}

std::vector<GatedCase> GatedCases() {
  std::vector<GatedCase> cases;
  AddCases("sparse-gpt2", "", cases);
  AddCases("llama/sparse-llama", "llama/", cases);
  // Pointers into the case: set once it has its final place.
  for (GatedCase& c : cases) {
    if (c.options.gates.mode == GateMode::kSampled)
      c.options.gates.uniform = c.golden.at("u").values.data();
  }
  return cases;
}

void Compare(const GatedCase& c, const std::map<std::string, GoldenTensor>& run, bool with_taps) {
  EXPECT_LE(MaxAbsDifference(run.at("logits").values, c.golden.at("logits").values), 1e-4);
  EXPECT_NEAR(run.at("loss").values[0], c.ce, 1e-5);
  int gradients = 0;
  for (const auto& [name, expected] : c.golden) {
    if (name.starts_with("grad.")) {
      EXPECT_LE(MaxRelativeDifference(run.at(name).values, expected.values), 5e-5) << name;
      ++gradients;
    }
    if (!with_taps) continue;
    if (name.starts_with("attn.")) {
      const std::string tap = "blocks." + name.substr(5) + ".attn.hook_pattern";
      EXPECT_LE(MaxAbsDifference(run.at(tap).values, expected.values), 2e-5) << name;
    }
    const bool sampled = c.options.gates.mode == GateMode::kSampled;
    if (name.starts_with(sampled ? "edges." : "adj.")) {
      const std::string tap =
          "blocks." + name.substr(name.find('.') + 1) + ".attn.hook_sparse_mask";
      EXPECT_EQ(run.at(tap).values, expected.values) << name;
    }
  }
  EXPECT_EQ(gradients, static_cast<int>(ParameterTable(c.model.config).size()));
}

TEST(GatedGolden, FusedMatches) {
  for (const GatedCase& c : GatedCases()) {
    SCOPED_TRACE(c.json["tensors"].get<std::string>());
    Compare(c, RunCapture(c.model, c.ids, c.batch, c.options), /*with_taps=*/false);
  }
}

TEST(GatedGolden, StagedMatches) {
  for (const GatedCase& c : GatedCases()) {
    SCOPED_TRACE(c.json["tensors"].get<std::string>());
    RecordOptions options = c.options;
    options.taps = AllTaps(c.model.config);
    Compare(c, RunCapture(c.model, c.ids, c.batch, options), /*with_taps=*/true);
  }
}

}  // namespace
}  // namespace clearhead
