// SPDX-License-Identifier: MIT
// Folders of transcoders: written and read back, read by another program, refused.
#include "features/transcoder_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "core/yaml.h"
#include "features/golden_features.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

float Narrow(float value, DType dtype) {
  return dtype == DType::kF16    ? HalfToFloat(FloatToHalf(value))
         : dtype == DType::kBF16 ? BFloat16ToFloat(FloatToBFloat16(value))
                                 : value;
}

// The matrices of `b` are those of `a` rounded to `dtype`; vectors keep every bit.
void ExpectStored(const Transcoder& a, const Transcoder& b, DType dtype) {
  const TranscoderConfig& c = a.config;
  EXPECT_EQ(b.config.kind, c.kind);
  EXPECT_EQ(b.config.activation, c.activation);
  EXPECT_EQ(b.config.reads, c.reads);
  EXPECT_EQ(b.config.k, c.k);
  EXPECT_EQ(b.config.model, c.model);
  EXPECT_EQ(b.config.model_hash, c.model_hash);
  EXPECT_EQ(b.config.first_position, c.first_position);
  ASSERT_EQ(b.config.layers, c.layers);
  ASSERT_EQ(b.config.width, c.width);
  ASSERT_EQ(b.config.features, c.features);
  std::vector<float> from(static_cast<std::size_t>(c.width)), to(from.size());
  const auto expect_row = [&](const char* what) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(to[i], Narrow(from[i], dtype)) << what;
    }
  };
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const TranscoderLayer& x = a.layers[static_cast<std::size_t>(l)];
    const TranscoderLayer& y = b.layers[static_cast<std::size_t>(l)];
    for (std::int64_t f = 0; f < c.features; ++f) {
      EncoderRow(a, l, f, from.data());
      EncoderRow(b, l, f, to.data());
      expect_row("W_enc");
      for (std::int64_t t = l; t < LastTarget(c, l); ++t) {
        DecoderRow(a, l, f, t, from.data());
        DecoderRow(b, l, f, t, to.data());
        expect_row("W_dec");
      }
      ASSERT_EQ(x.encoder.bias[f], y.encoder.bias[f]);
      ASSERT_EQ(x.threshold == nullptr, y.threshold == nullptr);
      if (x.threshold != nullptr) {
        ASSERT_EQ(x.threshold[f], y.threshold[f]);
      }
    }
    for (std::int64_t i = 0; i < c.width; ++i) ASSERT_EQ(x.decoder_bias[i], y.decoder_bias[i]);
    ASSERT_EQ(x.skip.has_value(), y.skip.has_value());
    for (std::int64_t i = 0; x.skip && i < c.width; ++i) {
      CopyMatrix(OutputsOf(*x.skip, i, 1), from.data());
      CopyMatrix(OutputsOf(*y.skip, i, 1), to.data());
      expect_row("W_skip");
    }
  }
}

class TranscoderFilesTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, TranscoderFilesTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

TEST_P(TranscoderFilesTest, ComeBackAsWritten) {
  Transcoder transcoder = LoadTranscoder(GoldenTranscoder(GetParam()));
  transcoder.config.model = "a model: \"odd\" name";
  transcoder.config.first_position = 1;
  transcoder.config.model_hash = "1234567890123456";  // a number to readers that see no quotes
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TemporaryFolder folder;
    SaveTranscoder(transcoder, folder / "t", dtype);
    const Transcoder back = LoadTranscoder(folder / "t");
    ExpectStored(transcoder, back, dtype);
    // What is stored in 16 bits can be stored again, in that type and in others.
    SaveTranscoder(back, folder / "again", dtype);
    ExpectStored(back, LoadTranscoder(folder / "again"), dtype);
    SaveTranscoder(back, folder / "again", DType::kF32);
    ExpectStored(back, LoadTranscoder(folder / "again"), DType::kF32);
  }
}

TEST_P(TranscoderFilesTest, AreReadByAnotherProgram) {
#ifndef CLEARHEAD_PYTHON
  GTEST_SKIP() << "no Python interpreter was found when this was built";
#else
  const Transcoder transcoder = LoadTranscoder(GoldenTranscoder(GetParam()));
  const TranscoderConfig& c = transcoder.config;
  const FeatureCase golden = ReadFeatureCase(GetParam());
  const GoldenPrompt& prompt = golden.prompts[0];
  const std::vector<float>& input = golden.Values("p0.input");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (dtype != DType::kF32 && GetParam() != "gated-clt-jumprelu") continue;  // same reader
    const TemporaryFolder folder;
    SaveTranscoder(transcoder, folder / "t", dtype);
    const Transcoder stored = LoadTranscoder(folder / "t");
    const std::int64_t position = 4;
    Json inputs = Json::array(), features = Json::array();
    std::vector<std::vector<float> > outputs;
    std::vector<SparseRows> active;
    for (std::int64_t l = 0; l < c.layers; ++l) {
      const float* x = input.data() + (l * prompt.length + position) * c.width;
      inputs.push_back(std::vector<float>(x, x + c.width));
      active.push_back(Encode(stored, l, 1, x));
      outputs.emplace_back(static_cast<std::size_t>(c.width));
      Reconstruct(stored, l, 1, active, x, outputs.back().data());
    }
    WriteJsonFile(folder / "in.json", inputs);
    const std::string command = fmt::format(
        "'{}' -B '{}' '{}' < '{}' > '{}'", CLEARHEAD_PYTHON, CLEARHEAD_READ_TRANSCODER,
        (folder / "t").string(), (folder / "in.json").string(), (folder / "out.json").string());
    ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c): names of our own
    const Json out = ReadJsonFile(folder / "out.json");
    std::size_t at = 0;
    for (std::int64_t l = 0; l < c.layers; ++l) {
      const SparseRows& layer = active[static_cast<std::size_t>(l)];
      for (std::int64_t e = 0; e < layer.size(); ++e, ++at) {
        ASSERT_LT(at, out["features"].size());
        EXPECT_EQ(out["features"][at][0], l);
        EXPECT_EQ(out["features"][at][1], layer.column[static_cast<std::size_t>(e)]);
        EXPECT_NEAR(out["features"][at][2].get<double>(), layer.value[static_cast<std::size_t>(e)],
                    1e-4);
      }
      const auto y = out["reconstruction"][static_cast<std::size_t>(l)].get<std::vector<float> >();
      EXPECT_LE(MaxRelativeDifference(outputs[static_cast<std::size_t>(l)], y), 1e-5);
    }
    EXPECT_EQ(at, out["features"].size());
  }
#endif
}

TEST(TranscoderFiles, CltForgeIsTheSameInTheOtherLayout) {
  const Transcoder forge = LoadTranscoder(GoldenTranscoder("gated-clt-forge"));
  const Transcoder other = LoadTranscoder(GoldenTranscoder("gated-clt-forge-as-circuit-tracer"));
  EXPECT_EQ(forge.config.model, "clearhead-tiny");
  std::vector<float> a(static_cast<std::size_t>(forge.config.width)), b(a.size());
  for (std::int64_t l = 0; l < forge.config.layers; ++l) {
    for (std::int64_t f = 0; f < forge.config.features; ++f) {
      EncoderRow(forge, l, f, a.data());
      EncoderRow(other, l, f, b.data());
      ASSERT_LE(MaxRelativeDifference(a, b), 1e-6);
      DecoderRow(forge, l, f, forge.config.layers - 1, a.data());
      DecoderRow(other, l, f, forge.config.layers - 1, b.data());
      ASSERT_LE(MaxRelativeDifference(a, b), 1e-6);
    }
  }
}

// A copy of a golden folder that a test spoils.
class Spoiled {
 public:
  explicit Spoiled(const std::string& name) {
    fs::copy(GoldenTranscoder(name), path(), fs::copy_options::recursive);
  }
  fs::path path() const { return folder_ / "t"; }
  fs::path operator/(const std::string& name) const { return path() / name; }

  void ExpectRefused(const std::vector<std::string>& parts) const {
    try {
      LoadTranscoder(path());
      ADD_FAILURE() << "was read";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
    }
  }
  // config.yaml with other lines.
  void ExpectConfigRefused(const std::string& text, const std::vector<std::string>& parts) const {
    WriteFile(path() / "config.yaml", text);
    ExpectRefused(parts);
  }

 private:
  TemporaryFolder folder_;
};

TEST(TranscoderFiles, OtherConfigsAreRefused) {
  const Spoiled clt("dense-clt-relu");
  clt.ExpectConfigRefused("", {"config.yaml", "mapping"});
  clt.ExpectConfigRefused("- a\n", {"config.yaml", "mapping"});
  clt.ExpectConfigRefused("model_kind: [x", {"config.yaml", "not valid YAML", "line"});
  clt.ExpectConfigRefused("scan: x\n", {"model_kind", "cross_layer_transcoder", "transcoder_set"});
  clt.ExpectConfigRefused("model_kind: crosscoder\n", {"'crosscoder'", "transcoder_set"});
  const std::string kind = "model_kind: cross_layer_transcoder\n";
  clt.ExpectConfigRefused(kind + "feature_input_hook: hook_resid_pre\n",
                          {"feature_input_hook", "'hook_resid_pre'", "hook_resid_mid"});
  clt.ExpectConfigRefused(kind + "feature_input_hook: 7\n", {"feature_input_hook", "7", "text"});
  clt.ExpectConfigRefused(kind + "feature_output_hook: hook_attn_out\n", {"'hook_attn_out'"});
  clt.ExpectConfigRefused(kind + "activation: topk\n", {"'activation'", "unknown"});
  clt.ExpectConfigRefused(kind + "input_scale: 2.0\n", {"'input_scale'", "unknown"});
  clt.ExpectConfigRefused(kind + kind, {"line 2", "'model_kind' twice"});
  clt.ExpectConfigRefused(kind + "clearhead_model_hash: abc\n", {"'abc'", "16 hexadecimal digits"});
  clt.ExpectConfigRefused(kind + "clearhead_first_position: -1\n",
                          {"clearhead_first_position", "-1", "0 to 1024"});
  clt.ExpectConfigRefused(kind + "# " + std::string(2 << 20, 'x'), {"config.yaml", "bytes"});
  WriteFile(clt / "config.yaml", kind + "scan: me/mine\nfeature_input_hook: mlp.hook_in\n");
  EXPECT_EQ(LoadTranscoder(clt.path()).config.reads, Tap::kLn2Normalized);

  const Spoiled set("gated-plt-topk");
  const std::string set_kind = "model_kind: transcoder_set\n";
  set.ExpectConfigRefused(set_kind + "activation: topk\n", {"topk", "k", "none"});
  set.ExpectConfigRefused(set_kind + "activation: topk\nk: 0\n", {"k", "0"});
  set.ExpectConfigRefused(set_kind + "activation: topk\nk: 41\n", {"41", "40 features"});
  set.ExpectConfigRefused(set_kind + "activation: gelu\n", {"'gelu'", "topk"});
  set.ExpectConfigRefused(set_kind + "activation: jumprelu\n", {"threshold", "missing"});
  set.ExpectConfigRefused(set_kind + "transcoders: x\n", {"transcoders", "list"});
  set.ExpectConfigRefused(set_kind + "transcoders:\n- hf://a/b/c.safetensors\n", {"hf://a/b"});
  set.ExpectConfigRefused(set_kind + "transcoders:\n- ../t/layer_0.safetensors\n", {"../t/layer"});
  set.ExpectConfigRefused(set_kind + "transcoders:\n- absent.safetensors\n", {"absent"});
  WriteFile(set / "config.yaml", set_kind +
                                     "activation: relu\ntranscoders:\n"
                                     "- layer_2.safetensors\n- layer_0.safetensors\n");
  const Transcoder listed = LoadTranscoder(set.path());
  EXPECT_EQ(listed.config.layers, 2);
  EXPECT_EQ(listed.config.activation, FeatureActivation::kRelu);
  WriteFile(set / "config.yaml", set_kind + "activation: topk\nk: 6\n");
  EXPECT_EQ(listed.layers[1].encoder.bias[7], LoadTranscoder(set.path()).layers[0].encoder.bias[7]);
}

TEST(TranscoderFiles, MissingAndOtherFilesAreRefused) {
  EXPECT_THAT([] { LoadTranscoder("/nowhere/at/all"); },
              ThrowsMessage<Error>(HasSubstr("'/nowhere/at/all'")));
  {
    const TemporaryFolder empty;
    EXPECT_THAT([&] { LoadTranscoder(empty.path()); },
                ThrowsMessage<Error>(AllOf(HasSubstr("config.yaml"), HasSubstr("clt_cfg.json"))));
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    fs::remove(clt / "config.yaml");
    clt.ExpectRefused({"W_enc_0.safetensors", "no config.yaml"});
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    fs::remove(clt / "W_enc_1.safetensors");
    clt.ExpectRefused({"W_enc_1.safetensors is missing", "the last here is 2"});
    fs::remove(clt / "W_enc_2.safetensors");
    clt.ExpectRefused({"1 files W_enc", "3 W_dec"});
  }
  {
    const Spoiled set("gated-plt-topk");
    fs::remove(set / "layer_0.safetensors");
    set.ExpectRefused({"layer_0.safetensors is missing"});
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    const std::string bytes = ReadFile(clt / "W_dec_1.safetensors");
    WriteFile(clt / "W_dec_1.safetensors", bytes.substr(0, bytes.size() - 5));
    clt.ExpectRefused({"W_dec_1.safetensors"});
    fs::copy_file(clt / "W_enc_1.safetensors", clt / "W_dec_1.safetensors",
                  fs::copy_options::overwrite_existing);
    clt.ExpectRefused({"W_dec_1.safetensors", "W_enc_1", "expected W_dec_1"});
  }
}

// A tensor of a golden file replaced, all others kept.
void Replace(const fs::path& path, const std::string& name, const TensorToWrite& by) {
  const std::string bytes = ReadFile(path);
  const SafetensorsFile file = SafetensorsFile::FromBytes(std::as_bytes(std::span(bytes)), "copy");
  std::vector<TensorToWrite> tensors;
  for (const TensorEntry& entry : file.tensors()) {
    if (entry.name == name) continue;
    tensors.push_back(
        {.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .raw = entry.bytes});
  }
  if (!by.name.empty()) tensors.push_back(by);
  WriteSafetensors(path, tensors);
}

TEST(TranscoderFiles, OtherTensorsAreRefused) {
  std::vector<float> values(100000, 0.5f);
  const auto like = [&](const char* name, std::vector<std::int64_t> shape) {
    return TensorToWrite{.name = name, .shape = std::move(shape), .data = values.data()};
  };
  {
    const Spoiled clt("gated-clt-jumprelu");
    Replace(clt / "W_enc_1.safetensors", "W_enc_1", like("W_enc_1", {48, 31}));
    clt.ExpectRefused({"W_enc_1", "[48,31]", "[48,32]"});
    Replace(clt / "W_enc_1.safetensors", "W_enc_1", like("W_enc_1", {48, 1, 32}));
    clt.ExpectRefused({"W_enc_1", "[48,1,32]"});
    Replace(clt / "W_enc_1.safetensors", "W_enc_1", {});
    clt.ExpectRefused({"W_enc_1"});
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    Replace(clt / "W_dec_2.safetensors", "W_dec_2", like("W_dec_2", {48, 2, 32}));
    clt.ExpectRefused({"W_dec_2", "[48,2,32]", "[48,1,32]"});
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    Replace(clt / "W_enc_2.safetensors", "threshold_2", {});
    clt.ExpectRefused({"W_enc_2", "some layers only"});
    Replace(clt / "W_enc_2.safetensors", "", like("W_skip_2", {32, 32}));
    clt.ExpectRefused({"unknown tensor 'W_skip_2'"});
  }
  {
    const Spoiled clt("gated-clt-jumprelu");
    const std::vector<std::int32_t> whole(48, 1);
    Replace(clt / "W_enc_0.safetensors", "b_enc_0",
            {.name = "b_enc_0",
             .dtype = DType::kI32,
             .shape = {48},
             .raw = std::as_bytes(std::span(whole))});
    clt.ExpectRefused({"b_enc_0", "I32", "BF16"});
  }
  for (const char* name : {"b_enc_0", "b_dec_0", "threshold_0"}) {
    const Spoiled clt("gated-clt-jumprelu");
    const std::int64_t size = std::string_view(name) == "b_dec_0" ? 32 : 48;
    values[7] = std::numeric_limits<float>::quiet_NaN();
    Replace(clt / "W_enc_0.safetensors", name, like(name, {size}));
    clt.ExpectRefused({name, "nan", "at 7"});
    values[7] = 0.5f;
  }
  {  // matrices are not read: what is wrong in them shows when it is used
    const Spoiled clt("gated-clt-jumprelu");
    values[40] = std::numeric_limits<float>::quiet_NaN();
    Replace(clt / "W_enc_0.safetensors", "W_enc_0", like("W_enc_0", {48, 32}));
    values[40] = 0.5f;
    const Transcoder transcoder = LoadTranscoder(clt.path());
    EXPECT_THAT([&] { Encode(transcoder, 0, 1, values.data()); },
                ThrowsMessage<Error>(HasSubstr("not finite")));
  }
}

TEST(TranscoderFiles, OtherCltForgeFilesAreRefused) {
  const Spoiled forge("gated-clt-forge");
  const Json good = ReadJsonFile(forge / "clt_cfg.json");
  const auto expect_refused = [&](const char* field, const Json& value,
                                  const std::vector<std::string>& parts) {
    Json bad = good;
    bad[field] = value;
    WriteJsonFile(forge / "clt_cfg.json", bad);
    forge.ExpectRefused(parts);
  };
  expect_refused("n_layers", 4, {"W_enc", "[3,32,48]", "[4,32,48]"});
  expect_refused("n_layers", "3", {"n_layers", "\"3\""});
  expect_refused("d_latent", nullptr, {"d_latent", "null"});
  expect_refused("activation_fn", "topk", {"activation_fn", "topk", "jumprelu"});
  expect_refused("cross_layer_decoders", false, {"W_dec", "[6,48,32]", "[3,48,32]"});
  expect_refused("subtract_mean", true, {"'subtract_mean'", "unknown"});
  WriteJsonFile(forge / "clt_cfg.json", good);
  const std::vector<float> zeros(3, 0.0f);
  Replace(forge / "clt_weights.safetensors", "estimated_norm_scaling_factor_out",
          {.name = "estimated_norm_scaling_factor_out", .shape = {3}, .data = zeros.data()});
  forge.ExpectRefused({"estimated_norm_scaling_factor_out", "positive"});
  WriteFile(forge / "rank0_clt_weights.safetensors", "");
  forge.ExpectRefused({"shards", "merge"});
  fs::remove(forge / "rank0_clt_weights.safetensors");
  fs::remove(forge / "clt_cfg.json");
  forge.ExpectRefused({"no clt_cfg.json"});
}

TEST(TranscoderFiles, WhatALayoutCannotHoldIsNotWritten) {
  const TemporaryFolder folder;
  Transcoder topk = LoadTranscoder(GoldenTranscoder("gated-plt-topk"));
  topk.config.kind = TranscoderKind::kCrossLayer;
  EXPECT_THAT([&] { SaveTranscoder(topk, folder / "t", DType::kF32); },
              ThrowsMessage<Error>(HasSubstr("TopK")));
  EXPECT_FALSE(fs::exists(folder / "t"));

  // Files of more layers would be read with those written now.
  const Transcoder three = LoadTranscoder(GoldenTranscoder("gated-clt-jumprelu"));
  const Transcoder two = LoadTranscoder(GoldenTranscoder("dense-clt-relu"));
  const Transcoder set = LoadTranscoder(GoldenTranscoder("dense-plt-skip"));
  SaveTranscoder(three, folder / "t", DType::kF32);
  SaveTranscoder(three, folder / "t", DType::kBF16);
  for (const Transcoder* other : {&two, &set}) {
    EXPECT_THAT([&] { SaveTranscoder(*other, folder / "t", DType::kF32); },
                ThrowsMessage<Error>(HasSubstr("W_enc_2.safetensors")));
  }
  EXPECT_EQ(LoadTranscoder(folder / "t").config.layers, 3);

  Transcoder beyond = two;
  std::vector<float> matrix(static_cast<std::size_t>(two.config.features * two.config.width), 7e4f);
  beyond.layers[1].encoder.weight = Weight(matrix.data());
  EXPECT_THAT([&] { SaveTranscoder(beyond, folder / "u", DType::kF16); },
              ThrowsMessage<Error>(AllOf(HasSubstr("W_enc_1"), HasSubstr("F16"))));
  EXPECT_FALSE(fs::exists(folder / "u/config.yaml"));
  SaveTranscoder(beyond, folder / "u", DType::kBF16);
  matrix[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT([&] { SaveTranscoder(beyond, folder / "v", DType::kF32); },
              ThrowsMessage<Error>(HasSubstr("inf")));
}

}  // namespace
}  // namespace clearhead
