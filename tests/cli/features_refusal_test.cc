// SPDX-License-Identifier: MIT
// Features that do not fit or are damaged: every command that takes them ends with one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/program.h"
#include "cli/small_model.h"
#include "core/safetensors.h"
#include "features/feature_testing.h"
#include "features/transcoder_files.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;

class FeaturesRefusal : public testing::Test {
 protected:
  FeaturesRefusal() : model_(MakeSmallModel(folder_ / "m")) {
    WriteFile(folder_ / "text", SmallText());
    transcoder_ = RandomTranscoder(model_);
    SaveTranscoder(transcoder_, folder_ / "f", DType::kF32);
    SaveTranscoder(RandomTranscoder(model_, {.kind = TranscoderKind::kPerLayer}), folder_ / "set",
                   DType::kF32);
  }
  std::string at(const std::string& name) const { return folder_ / name; }

  // All of features' commands, and capture.
  void ExpectRefused(const std::string& model, const std::string& features,
                     const std::vector<std::string>& parts) const {
    const std::vector<std::string> commands[] = {
        {"features", "eval", at(model), at(features), "--text", at("text")},
        {"features", "index", at(model), at(features), "--text", at("text"), "--out", at("index")},
        {"features", "show", at(model), at(features), "L0F1"},
        {"capture", at(model), "--features", at(features), "--ids", "1,2,3", "--out", at("run")},
    };
    for (const std::vector<std::string>& command : commands) {
      SCOPED_TRACE(command[0] + " " + command[1]);
      ExpectFailure(command, 1, parts);
    }
    EXPECT_FALSE(fs::exists(folder_ / "index/index.safetensors"));
    EXPECT_FALSE(fs::exists(folder_ / "run"));
    fs::remove_all(folder_ / "index");  // where it ends in the middle of the run
  }

  // A tensor of one of the files of "f" or "set" made anew, in a copy of the folder.
  void Spoil(const std::string& from, const std::string& to, const std::string& file,
             const std::string& tensor, const std::vector<std::int64_t>& shape,
             const std::vector<float>& values) const {
    fs::remove_all(folder_ / to);
    fs::copy(folder_ / from, folder_ / to);
    const std::string bytes = ReadFile(folder_ / to / file);
    const auto old = SafetensorsFile::FromBytes(std::as_bytes(std::span(bytes)), file);
    std::vector<TensorToWrite> tensors;
    for (const TensorEntry& entry : old.tensors()) {
      if (entry.name == tensor) {
        tensors.push_back({.name = tensor, .shape = shape, .data = values.data()});
      } else {
        tensors.push_back(
            {.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .raw = entry.bytes});
      }
    }
    WriteSafetensors(folder_ / to / file, tensors);
  }

  TemporaryFolder folder_;
  Model model_;
  Transcoder transcoder_;
};

TEST_F(FeaturesRefusal, OtherModels) {
  const auto save = [&](const ModelConfig& config, const std::string& name) {
    fs::copy(folder_ / "m", folder_ / name);
    SaveModel(LivelyModel(config, 99), folder_ / name);
  };
  ModelConfig config = model_.config;
  save(config, "same-shape");
  ExpectRefused("same-shape", "f", {transcoder_.config.model_hash, "fingerprint"});
  config.layers = 1;
  save(config, "shallow");
  ExpectRefused("shallow", "f", {"2 layers of width 15", "1 of width 15"});
  config = model_.config;
  config.width = 18;
  save(config, "wide");
  ExpectRefused("wide", "f", {"2 layers of width 15", "2 of width 18"});
}

TEST_F(FeaturesRefusal, OtherHooks) {
  const auto with = [&](const std::string& field) {
    std::string text = ReadFile(folder_ / "f/config.yaml");
    const std::size_t begin = text.find(field.substr(0, field.find(':')));
    ASSERT_NE(begin, std::string::npos);
    text.replace(begin, text.find('\n', begin) - begin, field);
    fs::remove_all(folder_ / "hook");
    fs::copy(folder_ / "f", folder_ / "hook");
    WriteFile(folder_ / "hook/config.yaml", text);
  };
  with("feature_input_hook: hook_resid_pre");
  ExpectRefused("m", "hook",
                {"config.yaml", "feature_input_hook", "'hook_resid_pre'", "hook_resid_mid"});
  with("feature_output_hook: hook_attn_out");
  ExpectRefused("m", "hook", {"config.yaml", "feature_output_hook", "'hook_attn_out'"});
  with("feature_output_hook: [a");
  ExpectRefused("m", "hook", {"config.yaml", "not valid YAML"});
}

TEST_F(FeaturesRefusal, TruncatedAndHugeFiles) {
  for (const auto& [folder, file] : {std::pair{"f", "W_dec_1.safetensors"},
                                     {"f", "W_enc_0.safetensors"},
                                     {"set", "layer_1.safetensors"}}) {
    const std::string bytes = ReadFile(folder_ / folder / file);
    for (const std::size_t size : {bytes.size() - 1, std::size_t{40}, std::size_t{0}}) {
      fs::remove_all(folder_ / "cut");
      fs::copy(folder_ / folder, folder_ / "cut");
      WriteFile(folder_ / "cut" / file, bytes.substr(0, size));
      ExpectRefused("m", "cut", {file});
    }
    // Shapes of terabytes: refused by what the file has, not by what they would take.
    fs::remove_all(folder_ / "huge");
    fs::copy(folder_ / folder, folder_ / "huge");
    std::string header =
        R"({"W":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,64]}})";
    header.resize(128, ' ');
    std::string huge(8, '\0');
    huge[0] = static_cast<char>(128);
    WriteFile(folder_ / "huge" / file, huge + header + std::string(64, '\0'));
    ExpectRefused("m", "huge", {file});
    huge[7] = 1;  // a header of 2^56 bytes
    WriteFile(folder_ / "huge" / file, huge + header + std::string(64, '\0'));
    ExpectRefused("m", "huge", {file});
  }
  fs::remove_all(folder_ / "huge");
  fs::copy(folder_ / "f", folder_ / "huge");
  WriteFile(folder_ / "huge/config.yaml", "# " + std::string(3 << 20, 'x'));
  ExpectRefused("m", "huge", {"config.yaml", "bytes"});
}

TEST_F(FeaturesRefusal, OtherShapes) {
  const std::vector<float> values(37 * 2 * 15, 0.25f);
  Spoil("f", "bad", "W_enc_1.safetensors", "W_enc_1", {37, 14}, values);
  ExpectRefused("m", "bad", {"W_enc_1", "[37,14]", "[37,15]"});
  Spoil("f", "bad", "W_dec_0.safetensors", "W_dec_0", {37, 1, 15}, values);
  ExpectRefused("m", "bad", {"W_dec_0", "[37,1,15]", "[37,2,15]"});
  Spoil("set", "bad", "layer_0.safetensors", "b_enc", {36}, values);
  ExpectRefused("m", "bad", {"b_enc", "[36]", "[37]"});
}

TEST_F(FeaturesRefusal, WeightsThatAreNotNumbers) {
  std::vector<float> values(37 * 2 * 15, 0.25f);
  values[20] = std::numeric_limits<float>::quiet_NaN();
  Spoil("f", "bad", "W_enc_0.safetensors", "b_enc_0", {37}, values);
  ExpectRefused("m", "bad", {"W_enc_0.safetensors", "b_enc_0", "nan", "at 20"});
  // Matrices are read where they are used: here by feature 1 of the first layer.
  Spoil("f", "bad", "W_enc_0.safetensors", "W_enc_0", {37, 15}, values);
  ExpectRefused("m", "bad", {"not finite"});
  std::fill(values.begin(), values.end(), std::numeric_limits<float>::infinity());
  Spoil("f", "bad", "W_dec_0.safetensors", "W_dec_0", {37, 2, 15}, values);
  fs::copy(folder_ / "f/W_enc_0.safetensors", folder_ / "bad/W_enc_0.safetensors",
           fs::copy_options::overwrite_existing);
  ExpectFailure({"features", "eval", at("m"), at("bad"), "--text", at("text")}, 1, {"not finite"});
  ExpectFailure({"features", "show", at("m"), at("bad"), "L0F1"}, 1, {"L0F1 writes", "not finite"});
}

}  // namespace
}  // namespace clearhead
