// SPDX-License-Identifier: MIT
#include "model/import.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "model/run.h"
#include "support/golden_models.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

// A Llama of Hugging Face's as llama2.c would store it.
std::string Llama2cBytes(const Model& model, bool legacy, bool tied) {
  const ModelConfig& c = model.config;
  std::string bytes;
  const auto add = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto vocabulary = static_cast<std::int32_t>(legacy && !tied ? -c.vocabulary : c.vocabulary);
  const std::int32_t sizes[] = {
      static_cast<std::int32_t>(c.width),      static_cast<std::int32_t>(c.inner),
      static_cast<std::int32_t>(c.layers),     static_cast<std::int32_t>(c.heads),
      static_cast<std::int32_t>(c.kv_heads()), vocabulary,
      static_cast<std::int32_t>(c.positions)};
  if (!legacy) {
    const std::int32_t magic = 0x616b3432, version = 1;
    add(&magic, 4);
    add(&version, 4);
  }
  add(sizes, sizeof(sizes));
  if (!legacy) {
    bytes.push_back(tied ? 1 : 0);
    bytes.resize(256, '\0');
  }
  const std::int64_t D = c.head_size();
  const auto tensor = [&](Role role, std::int64_t layer) {
    for (const ParameterSpec& spec : ParameterTable(c)) {
      if (spec.role != role || spec.layer != layer) continue;
      const float* values = model.weights(role, layer).f32();
      if (role != Role::kQueryWeight && role != Role::kKeyWeight) {
        return add(values, static_cast<std::size_t>(spec.shape.size()) * 4);
      }
      for (std::int64_t row = 0; row < spec.shape[0]; ++row) {  // half-split back to neighbours
        const std::int64_t source = row / D * D + row % 2 * (D / 2) + row % D / 2;
        add(values + source * c.width, static_cast<std::size_t>(c.width) * 4);
      }
    }
  };
  const auto all = [&](Role role) {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) tensor(role, layer);
  };
  if (legacy) {
    tensor(Role::kTokenEmbedding, kOutsideBlocks);
    all(Role::kAttentionNormWeight);
  } else {
    all(Role::kAttentionNormWeight);
    all(Role::kMlpNormWeight);
    tensor(Role::kFinalNormWeight, kOutsideBlocks);
    tensor(Role::kTokenEmbedding, kOutsideBlocks);
  }
  for (const Role role :
       {Role::kQueryWeight, Role::kKeyWeight, Role::kValueWeight, Role::kProjectionWeight}) {
    all(role);
  }
  if (legacy) all(Role::kMlpNormWeight);
  for (const Role role : {Role::kMlpGateWeight, Role::kMlpOutWeight, Role::kMlpInWeight}) all(role);
  if (legacy) {
    tensor(Role::kFinalNormWeight, kOutsideBlocks);
    bytes.append(static_cast<std::size_t>(c.positions * D) * 4, '\7');  // tables, not read
  }
  if (!tied) tensor(Role::kOutput, kOutsideBlocks);
  return bytes;
}

TEST(ImportModel, ReadsBothFormsOfLlama2c) {
  for (const char* name : {"llama/llama-plain", "llama/llama-gqa"}) {
    Model model = LoadModel(GoldenModel(name));
    model.config.norm_epsilon = 1e-5f;  // llama2.c's, which its files do not tell
    const GoldenCase c = GoldenCases(GoldenModel(name))[0];
    const auto expected = RunCapture(model, c.ids, c.batch, {}).at("logits").values;
    for (const bool legacy : {true, false}) {
      const TemporaryFolder folder;
      WriteFile(folder / "model.bin", Llama2cBytes(model, legacy, model.config.tied));
      const Model imported = ImportModel(folder / "model.bin");
      EXPECT_EQ(imported.config.kv_heads(), model.config.kv_heads());
      EXPECT_EQ(imported.config.tied, model.config.tied);
      EXPECT_EQ(imported.config.begin_of_text, 1);
      EXPECT_EQ(RunCapture(imported, c.ids, c.batch, {}).at("logits").values, expected) << name;
    }
  }
}

TEST(ImportModel, RefusesWhatIsNoSuchFile) {
  const Model model = LoadModel(GoldenModel("llama/llama-plain"));
  const std::string legacy = Llama2cBytes(model, true, true);
  const std::string version1 = Llama2cBytes(model, false, true);
  const auto with = [](std::string bytes, std::size_t at, std::int32_t value) {
    std::memcpy(bytes.data() + at, &value, 4);
    return bytes;
  };
  const struct {
    std::string bytes;
    const char* part;
  } kCases[] = {
      {"", "too few"},
      {legacy.substr(0, 27), "too few"},
      {legacy.substr(0, legacy.size() - 1), "has"},
      {legacy + "x", "has"},
      {with(legacy, 0, 0), "no llama2.c model"},
      {with(legacy, 0, -32), "no llama2.c model"},
      {with(legacy, 20, INT32_MIN), "no llama2.c model"},
      {with(legacy, 8, 1 << 30), "no llama2.c model"},
      {with(legacy, 12, 3), "do not fit together"},
      {with(legacy, 16, 3), "do not fit together"},
      {with(version1, 4, 2), "version 2"},
      {version1.substr(0, 100), "cut short"},
      {with(version1, 8, 1 << 17), "has"},
  };
  for (const auto& c : kCases) {
    const TemporaryFolder folder;
    WriteFile(folder / "model.bin", c.bytes);
    try {
      ImportModel(folder / "model.bin");
      ADD_FAILURE() << c.part;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(c.part), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace clearhead
