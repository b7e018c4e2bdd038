// SPDX-License-Identifier: MIT
// `clearhead convert`: a model stored in another type.
#include <cmath>

#include "cli/program.h"
#include "cli/small_model.h"
#include "core/safetensors.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

std::vector<float> Weights(const fs::path& folder) {
  const SafetensorsFile file(folder / "model.safetensors");
  std::vector<float> all;
  for (const TensorEntry& tensor : file.tensors()) {
    const std::size_t at = all.size();
    all.resize(at + static_cast<std::size_t>(tensor.size()));
    ConvertToFloat(tensor, all.data() + at);
  }
  return all;
}

TEST(ConvertCommand, RoundsOnceAndCarriesTheRest) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "model", /*gated=*/true);
  // Fields and files that clearhead does not use, as folders from elsewhere have them.
  Json config = ReadJsonFile(folder / "model/config.json");
  config.erase("dtype");
  config["torch_dtype"] = "float32";
  config["summary_first_dropout"] = 0.1;
  WriteJsonFile(folder / "model/config.json", config);
  WriteFile(folder / "model/generation_config.json", "{}\n");
  WriteFile(folder / "model/notes.txt", "mine");
  const std::vector<float> before = Weights(folder / "model");

  for (const auto& [name, stored, spelled, half_step] :
       {std::tuple{"bf16", "BF16", "bfloat16", 0x1p-8}, {"f16", "F16", "float16", 0x1p-11}}) {
    const fs::path out = folder / name;
    const Json json = SucceedJson({"convert", folder / "model", "--dtype", name, "--out", out});
    EXPECT_EQ(json["from"], "F32");
    EXPECT_EQ(json["to"], stored);
    EXPECT_EQ(json["parameters"], before.size());
    EXPECT_EQ(json["bytes"], fs::file_size(out / "model.safetensors"));
    EXPECT_EQ(FilesIn(out),
              (std::vector<std::string>{"config.json", "generation_config.json", "merges.txt",
                                        "model.safetensors", "vocab.json"}));
    for (const char* file : {"vocab.json", "merges.txt", "generation_config.json"}) {
      EXPECT_EQ(ReadFile(out / file), ReadFile(folder / "model" / file)) << file;
    }
    Json expected = config;
    expected.erase("torch_dtype");
    expected["dtype"] = spelled;
    EXPECT_EQ(ReadJsonFile(out / "config.json"), expected);
    EXPECT_LT(fs::file_size(out / "model.safetensors"),
              fs::file_size(folder / "model/model.safetensors") / 3 * 2);

    const std::vector<float> after = Weights(out);
    ASSERT_EQ(after.size(), before.size());
    std::size_t changed = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      // 2^-24 is the step of f16 below its smallest normal number.
      ASSERT_NEAR(after[i], before[i], half_step * std::abs(before[i]) + 0x1p-25) << i;
      changed += after[i] != before[i];
    }
    EXPECT_GT(changed, before.size() / 2);

    // Back in 32 bits the rounded values stay, and a second rounding changes nothing.
    const std::string back = folder / (std::string(name) + "-back"),
                      again = folder / (std::string(name) + "-again");
    Succeed({"convert", out, "--dtype", "f32", "--out", back});
    EXPECT_EQ(Weights(back), after);
    EXPECT_EQ(LoadModel(back).stored_as, DType::kF32);
    Succeed({"convert", back, "--dtype", name, "--out", again});
    EXPECT_EQ(ReadFile(fs::path(again) / "model.safetensors"), ReadFile(out / "model.safetensors"));

    const Model loaded = LoadModel(out);
    EXPECT_EQ(loaded.config.attention, AttentionKind::kGated);
    EXPECT_EQ(loaded.config.gate_bias, 0.25f);
  }
}

TEST(ConvertCommand, RefusesWhatTheTypeCannotHold) {
  const TemporaryFolder folder;
  Model model = MakeSmallModel(folder / "small");
  // 65519 rounds down to the largest half; 65520 is the tie, and goes to infinity.
  for (const auto& [value, fits] : {std::pair{65519.0f, true}, {-65520.0f, false}}) {
    std::vector<float> parameters = LivelyParameters(model.config, 71);
    const std::int64_t after_wte = model.config.vocabulary * model.config.width;
    parameters[static_cast<std::size_t>(after_wte + 5)] = value;
    const std::string from = folder / (fits ? "large" : "too-large");
    SaveModel(ModelOf(model.config, parameters), from);
    const std::string out = from + "-f16";
    if (fits) {
      Succeed({"convert", from, "--dtype", "f16", "--out", out});
      continue;
    }
    ExpectFailure({"convert", from, "--dtype", "f16", "--out", out}, 1,
                  {"transformer.wpe.weight", "-65520", "at 5", "F16", "BF16"});
    EXPECT_TRUE(FilesIn(out).empty());
    Succeed({"convert", from, "--dtype", "bf16", "--out", out});  // the folder is still usable
  }
}

TEST(ConvertCommand, OneLineForWhatCannotBe) {
  const TemporaryFolder folder;
  const std::string model = folder / "model";
  MakeSmallModel(model);
  ExpectFailure({"convert", model, "--dtype", "bf16", "--out", model}, 1,
                {"holds a model already"});
  ExpectFailure({"convert", model, "--dtype", "int4", "--out", folder / "x"}, 2, {"int4", "bf16"});
  ExpectFailure({"convert", model, "--out", folder / "x"}, 2, {"--dtype"});
  ExpectFailure({"convert", folder / "none", "--dtype", "f16", "--out", folder / "x"}, 1, {"none"});
  EXPECT_FALSE(fs::exists(folder / "x"));
}

}  // namespace
}  // namespace clearhead
