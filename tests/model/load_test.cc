// SPDX-License-Identifier: MIT
// Loading, saving and making models.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/threads.h"
#include "model/model_testing.h"
#include "support/golden_models.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

std::vector<float> AllWeights(const Model& model) {
  std::vector<float> values;
  ModelWeights weights = model.weights;
  VisitParameters(model.config, weights, [&](const ParameterSpec& spec, const Weight& weight) {
    const float* data = weight.f32();
    values.insert(values.end(), data, data + spec.shape.size());
  });
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LoadModel, StorageVariantsAreOneModel) {
  const std::vector<float> expected = AllWeights(LoadModel(GoldenModel("c/prefix")));
  for (const char* variant : {"noprefix", "noprefix-buffers", "noprefix-buffers-u8",
                              "prefix-lmhead", "noprefix-lmhead", "sharded"}) {
    const Model model = LoadModel(GoldenModel(std::string("c/") + variant));
    EXPECT_TRUE(SameBits(AllWeights(model), expected)) << variant;
    EXPECT_EQ(OutputMatrix(model.config, model.weights).data,
              model.weights(Role::kTokenEmbedding).data)
        << variant;
    EXPECT_EQ(model.stored_as, DType::kF32) << variant;
  }
  const auto rounded = [&](const char* variant, double step, DType dtype) {
    const Model model = LoadModel(GoldenModel(variant));
    const std::vector<float> values = AllWeights(model);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i], step * std::abs(expected[i]) + 1e-7) << variant;
    }
    EXPECT_EQ(model.stored_as, dtype);
  };
  rounded("c/f16", 0x1p-11, DType::kF16);
  rounded("c/bf16", 0x1p-8, DType::kBF16);
}

// --- Refusals
// ----------------------------------------------------------------------------------------

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  DType dtype = DType::kF32;
};
using StoredModel = std::vector<StoredTensor>;

ModelConfig TinyConfig() {
  ModelConfig config{
      .layers = 1, .heads = 1, .width = 2, .vocabulary = 5, .positions = 4, .inner = 3};
  return config;
}

StoredModel TinyTensors() {
  StoredModel tensors;
  float next = 0.0f;
  for (const ParameterSpec& spec : ParameterTable(TinyConfig())) {
    StoredTensor tensor{.name = spec.name};
    for (int axis = 0; axis < spec.shape.rank(); ++axis) tensor.shape.push_back(spec.shape[axis]);
    for (std::int64_t i = 0; i < spec.shape.size(); ++i) tensor.values.push_back(next += 0.125f);
    tensors.push_back(tensor);
  }
  return tensors;
}

StoredTensor& Find(StoredModel& model, std::string_view name) {
  return *std::find_if(model.begin(), model.end(),
                       [&](const StoredTensor& t) { return t.name == name; });
}

void Remove(StoredModel& model, std::string_view name) {
  std::erase_if(model, [&](const StoredTensor& t) { return t.name == name; });
}

void Store(const StoredModel& model, const fs::path& file) {
  std::vector<TensorToWrite> tensors;
  for (const StoredTensor& tensor : model) {
    TensorToWrite write{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
    if (IsConvertibleFloat(tensor.dtype)) {
      write.data = tensor.values.data();
    } else {  // any bytes of the right number; all types used here have four each
      write.raw = std::as_bytes(std::span(tensor.values));
    }
    tensors.push_back(write);
  }
  WriteSafetensors(file, tensors);
}

void StoreConfig(const ModelConfig& config, const fs::path& folder) {
  WriteJsonFile(folder / "config.json", ToJson(config, "float32"));
}

std::string Refusal(const fs::path& folder) {
  return ErrorOf([&] { LoadModel(folder); });
}

void ExpectRefusal(const fs::path& folder, const std::vector<std::string>& parts) {
  const std::string message = Refusal(folder);
  EXPECT_NE(message, "") << "was loaded";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find(folder.string()), std::string::npos)
      << message << " does not name the place";
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << "'" << message << "' lacks '" << part << "'";
  }
}

TEST(LoadModel, RefusesWrongTensorsByName) {
  struct Case {
    const char* what;
    void (*change)(StoredModel&);
    std::vector<std::string> message;
  };
  const std::vector<Case> cases = {
      {"missing",
       [](StoredModel& m) { Remove(m, "h.0.mlp.c_fc.bias"); },
       {"'h.0.mlp.c_fc.bias'", "[3]", "missing"}},
      {"missing first",
       [](StoredModel& m) { Remove(m, "wte.weight"); },
       {"'wte.weight'", "missing"}},
      {"nothing", [](StoredModel& m) { m.clear(); }, {"'wte.weight'", "missing"}},
      {"unknown",
       [](StoredModel& m) {
         m.push_back({"h.0.attn.extra", {1}, {1.0f}});
       },
       {"unknown tensor 'h.0.attn.extra'", "[1]"}},
      {"a layer too many",
       [](StoredModel& m) {
         m.push_back({"h.1.ln_1.weight", {2}, {1.0f, 1.0f}});
       },
       {"unknown tensor 'h.1.ln_1.weight'"}},
      {"almost a mask",
       [](StoredModel& m) {
         m.push_back({"h..attn.bias", {1}, {1.0f}});
       },
       {"unknown tensor 'h..attn.bias'"}},
      {"doubled",
       [](StoredModel& m) {
         m.push_back({"transformer.ln_f.bias", {2}, {1.0f, 1.0f}});
       },
       {"'ln_f.bias'", "twice"}},
      {"transposed",
       [](StoredModel& m) {
         Find(m, "h.0.mlp.c_fc.weight").shape = {3, 2};
       },
       {"'h.0.mlp.c_fc.weight' is [3,2]", "[2,3]"}},
      {"other rank",
       [](StoredModel& m) {
         Find(m, "ln_f.weight").shape = {2, 1};
       },
       {"'ln_f.weight' is [2,1]", "[2]"}},
      {"smaller",
       [](StoredModel& m) {
         Find(m, "wpe.weight").shape = {3, 2};
         Find(m, "wpe.weight").values.resize(6);
       },
       {"'wpe.weight' is [3,2]", "[4,2]"}},
      {"integers",
       [](StoredModel& m) { Find(m, "ln_f.weight").dtype = DType::kI32; },
       {"'ln_f.weight'", "I32", "F32, F16 or BF16"}},
      {"another head",
       [](StoredModel& m) {
         m.push_back({"lm_head.weight", {5, 2}, Find(m, "wte.weight").values});
         m.back().values[9] += 1.0f;
       },
       {"'lm_head.weight' differs from 'wte.weight'", "tie_word_embeddings"}},
      {"a head of another type",
       [](StoredModel& m) {
         m.push_back({"lm_head.weight", {5, 2}, Find(m, "wte.weight").values, DType::kF16});
       },
       {"'lm_head.weight' differs"}},
      {"a head of another shape",
       [](StoredModel& m) {
         m.push_back({"lm_head.weight", {2, 5}, Find(m, "wte.weight").values});
       },
       {"'lm_head.weight' is [2,5]"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const TemporaryFolder folder;
    StoreConfig(TinyConfig(), folder.path());
    StoredModel tensors = TinyTensors();
    c.change(tensors);
    Store(tensors, folder / "model.safetensors");
    ExpectRefusal(folder.path(), c.message);
  }
  const TemporaryFolder folder;  // and unchanged it loads
  StoreConfig(TinyConfig(), folder.path());
  Store(TinyTensors(), folder / "model.safetensors");
  EXPECT_EQ(Refusal(folder.path()), "");
}

TEST(LoadModel, UntiedNeedsItsHead) {
  const TemporaryFolder folder;
  ModelConfig config = TinyConfig();
  config.tied = false;
  StoreConfig(config, folder.path());
  Store(TinyTensors(), folder / "model.safetensors");
  ExpectRefusal(folder.path(), {"'lm_head.weight'", "missing"});
}

TEST(LoadModel, IgnoresTheMaskOfOldFiles) {
  const TemporaryFolder folder;
  StoreConfig(TinyConfig(), folder.path());
  StoredModel tensors = TinyTensors();
  tensors.push_back({"h.0.attn.bias", {1, 1, 4, 1}, {1, 1, 1, 1}});
  tensors.push_back({"transformer.h.11.attn.masked_bias", {}, {-1e4f}});
  Store(tensors, folder / "model.safetensors");
  EXPECT_EQ(Refusal(folder.path()), "");
}

TEST(LoadModel, RefusesBrokenFolders) {
  const TemporaryFolder folder;
  ExpectRefusal(folder.path(), {"config.json"});
  StoreConfig(TinyConfig(), folder.path());
  ExpectRefusal(folder.path(), {"expected model.safetensors"});
  WriteFile(folder / "pytorch_model.bin", "PK");
  ExpectRefusal(folder.path(), {"pytorch_model.bin", "pickle", "safe_serialization"});
  fs::create_directory(folder / "model.safetensors");
  ExpectRefusal(folder.path(), {"model.safetensors", "not a regular file"});
  fs::remove(folder / "model.safetensors");
  WriteFile(folder / "model.safetensors", "");
  ExpectRefusal(folder.path(), {"model.safetensors"});
  EXPECT_NE(Refusal(folder / "absent").find("absent/config.json"), std::string::npos);
}

TEST(LoadModel, RefusesWrongIndexes) {
  struct Case {
    const char* what;
    Json index;
    std::vector<std::string> message;
  };
  const TemporaryFolder folder;
  StoreConfig(TinyConfig(), folder.path());
  StoredModel all = TinyTensors(), first(all.begin(), all.begin() + 3),
              second(all.begin() + 3, all.end());
  Store(first, folder / "1.safetensors");
  Store(second, folder / "2.safetensors");
  Json good = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  for (const StoredTensor& tensor : first) good["weight_map"][tensor.name] = "1.safetensors";
  for (const StoredTensor& tensor : second) good["weight_map"][tensor.name] = "2.safetensors";
  const auto with = [&](const std::string& tensor, const Json& file) {
    Json index = good;
    index["weight_map"][tensor] = file;
    return index;
  };
  Json two_sources = good;
  two_sources["weight_map"]["wte.weight"] = "3.safetensors";
  StoredModel third = first;
  Store(third, folder / "3.safetensors");

  const std::vector<Case> cases = {
      {"outside", with("wte.weight", "../1.safetensors"), {"'wte.weight'", "'../1.safetensors'"}},
      {"absolute", with("wte.weight", "/etc/passwd"), {"'/etc/passwd'"}},
      {"folder", with("wte.weight", "a/1.safetensors"), {"'a/1.safetensors'"}},
      {"parent", with("wte.weight", ".."), {"'..'"}},
      {"empty", with("wte.weight", ""), {"'wte.weight'"}},
      {"number", with("wte.weight", 7), {"'wte.weight'", "not a string"}},
      {"absent file", with("wte.weight", "4.safetensors"), {"4.safetensors"}},
      {"not in that shard",
       with("wte.weight", "2.safetensors"),
       {"'wte.weight'", "'2.safetensors'"}},
      {"in no shard", with("extra", "2.safetensors"), {"'extra'", "'2.safetensors'"}},
      {"in two shards", two_sources, {"twice"}},
      {"no map", {{"metadata", 1}}, {"weight_map"}},
      {"map of another type", {{"weight_map", {"a"}}}, {"weight_map"}},
      {"empty map", {{"weight_map", Json::object()}}, {"'wte.weight'", "missing"}},
      {"array", Json::array(), {"weight_map"}},
      {"null", nullptr, {"weight_map"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    WriteJsonFile(folder / "model.safetensors.index.json", c.index);
    ExpectRefusal(folder.path(), c.message);
  }
  WriteJsonFile(folder / "model.safetensors.index.json", good);
  EXPECT_EQ(Refusal(folder.path()), "");
  WriteFile(folder / "model.safetensors.index.json", "{\"weight_map\": {");
  ExpectRefusal(folder.path(), {"model.safetensors.index.json", "not valid JSON"});
}

// --- Saving
// ------------------------------------------------------------------------------------------

TEST(SaveModel, ComesBack) {
  ModelConfig plain = OddConfig();
  plain.tied = true;
  ModelConfig other = GatedConfig(-1.75f);
  other.activation = Activation::kSilu;
  other.scale_attention = false;
  other.scale_by_inverse_layer = true;
  other.norm_epsilon = 3e-6f;
  other.end_of_text = {22};
  for (const ModelConfig& config : {plain, OddConfig(), other}) {
    const Model model = LivelyModel(config, 51);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const TemporaryFolder folder;
      SaveModel(model, folder / "deep/model", dtype);
      const Model loaded = LoadModel(folder / "deep/model");
      EXPECT_EQ(ToJson(loaded.config, "x"), ToJson(config, "x"));
      EXPECT_EQ(loaded.config.gate_bias, config.gate_bias);
      EXPECT_EQ(loaded.config.norm_epsilon, config.norm_epsilon);
      EXPECT_EQ(loaded.config.end_of_text, config.end_of_text);
      EXPECT_EQ(loaded.stored_as, dtype);
      const std::vector<float> before = AllWeights(model), after = AllWeights(loaded);
      if (dtype == DType::kF32) {
        EXPECT_TRUE(SameBits(before, after));
      } else {
        const double step =
            dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;  // half a unit in the last place
        for (std::size_t i = 0; i < before.size(); ++i) {
          ASSERT_NEAR(after[i], before[i], step * std::abs(before[i]) + 1e-7);
        }
        // What is rounded once stays: the second file is the first, byte for byte.
        SaveModel(loaded, folder / "again", dtype);
        EXPECT_EQ(ReadFile(folder / "again/model.safetensors"),
                  ReadFile(folder / "deep/model/model.safetensors"));
        EXPECT_EQ(ReadFile(folder / "again/config.json"),
                  ReadFile(folder / "deep/model/config.json"));
      }
      std::size_t files = 0;
      for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder / "deep/model"))
        ++files;
      EXPECT_EQ(files, 2u) << "no temporaries";
    }
  }
}

TEST(SaveModel, UsesTheNamesOfHuggingFace) {
  const TemporaryFolder folder;
  SaveModel(LivelyModel(OddConfig(), 52), folder.path());
  const SafetensorsFile file(folder / "model.safetensors");
  EXPECT_NE(file.Find("transformer.h.1.attn.c_attn.weight"), nullptr);
  EXPECT_NE(file.Find("lm_head.weight"), nullptr);
  EXPECT_EQ(file.Find("transformer.lm_head.weight"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), ParameterTable(OddConfig()).size());
}

TEST(SaveModel, NamesThePlaceItCannotWrite) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "x");
  const std::string message =
      ErrorOf([&] { SaveModel(LivelyModel(OddConfig()), folder / "file/model"); });
  EXPECT_NE(message.find("file/model"), std::string::npos) << message;
}

// --- Fresh weights
// -----------------------------------------------------------------------------------

TEST(RandomModel, IsAFunctionOfTheSeedAlone) {
  ModelConfig config = OddConfig();
  config.vocabulary = 1009;
  const std::vector<float> expected = AllWeights(RandomModel(config, 61));
  for (const int count : {1, 2, 3}) {
    const UseThreads scope(count);
    EXPECT_TRUE(SameBits(AllWeights(RandomModel(config, 61)), expected)) << count;
  }
  EXPECT_FALSE(SameBits(AllWeights(RandomModel(config, 62)), expected));
}

TEST(RandomModel, HasTheMomentsOfHuggingFace) {
  ModelConfig config{
      .layers = 3, .heads = 2, .width = 64, .vocabulary = 500, .positions = 128, .inner = 256};
  Model model = RandomModel(config, 63);
  std::vector<float> all_normal;
  VisitParameters(config, model.weights, [&](const ParameterSpec& spec, const Weight& weight) {
    const float* data = weight.f32();
    const std::int64_t n = spec.shape.size();
    if (!spec.decays()) {
      const float expected = spec.name.ends_with(".weight") ? 1.0f : 0.0f;
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data[i], expected) << spec.name;
      return;
    }
    const double deviation = spec.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(6.0) : 0.02;
    double sum = 0.0, squares = 0.0, fourth = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = data[i] / deviation;
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      all_normal.push_back(data[i]);
    }
    const double count = static_cast<double>(n);
    // Five standard errors of each estimate for a normal distribution.
    EXPECT_NEAR(sum / count, 0.0, 5.0 / std::sqrt(count)) << spec.name;
    EXPECT_NEAR(squares / count, 1.0, 5.0 * std::sqrt(2.0 / count)) << spec.name;
    EXPECT_NEAR(fourth / count, 3.0, 5.0 * std::sqrt(96.0 / count)) << spec.name;
  });
  // No tensor repeats another.
  std::sort(all_normal.begin(), all_normal.end());
  const auto unique = std::unique(all_normal.begin(), all_normal.end()) - all_normal.begin();
  EXPECT_GT(static_cast<double>(unique), 0.95 * static_cast<double>(all_normal.size()));
}

}  // namespace
}  // namespace clearhead
