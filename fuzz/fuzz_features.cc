// SPDX-License-Identifier: MIT
// The first byte chooses: any YAML; config.yaml of a good cross-layer transcoder or of a good set,
// whole or with fields added; clt_cfg.json likewise; or the bytes of one of their weight files.
// Input may be refused with Error; a transcoder that is read can be run, and plain fields of YAML
// come back from what is written of them.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/yaml.h"
#include "features/transcoder_files.h"

namespace {

using namespace clearhead;  // NOLINT(google-build-using-namespace): a program, not a library
namespace fs = std::filesystem;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Not WriteFile, which waits for the disk.
void Put(const fs::path& path, std::string_view bytes) {
  std::FILE* stream = std::fopen(path.c_str(), "w");
  Require(stream != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), stream) == bytes.size());
  Require(std::fclose(stream) == 0);
}

constexpr std::string_view kCrossConfig = "model_kind: cross_layer_transcoder\n";
constexpr std::string_view kSetConfig = "model_kind: transcoder_set\n";
constexpr std::string_view kForgeConfig =
    R"("n_layers":2,"d_in":3,"d_latent":5,"cross_layer_decoders":true)";

// Folders with a tiny transcoder in each layout; removed when the program ends.
class Folders {
 public:
  Folders() {
    std::string pattern = (fs::temp_directory_path() / "fuzz-features-XXXXXX").string();
    Require(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    for (const char* folder : {"cross", "set", "forge"}) fs::create_directory(path_ / folder);
    const std::vector<float> values(100, 0.5f);
    const auto tensor = [&](std::string name, std::vector<std::int64_t> shape) {
      return TensorToWrite{
          .name = std::move(name), .shape = std::move(shape), .data = values.data()};
    };
    for (int i = 0; i < 2; ++i) {
      const std::string l = std::to_string(i);
      WriteSafetensors(path_ / ("cross/W_enc_" + l + ".safetensors"),
                       std::vector{tensor("W_enc_" + l, {5, 3}), tensor("b_enc_" + l, {5}),
                                   tensor("b_dec_" + l, {3}), tensor("threshold_" + l, {5})});
      WriteSafetensors(path_ / ("cross/W_dec_" + l + ".safetensors"),
                       std::vector{tensor("W_dec_" + l, {5, 2 - i, 3})});
      WriteSafetensors(
          path_ / ("set/layer_" + l + ".safetensors"),
          std::vector{tensor("W_enc", {5, 3}), tensor("b_enc", {5}), tensor("W_dec", {5, 3}),
                      tensor("b_dec", {3}), tensor("W_skip", {3, 3})});
    }
    WriteSafetensors(
        path_ / "forge/clt_weights.safetensors",
        std::vector{tensor("W_enc", {2, 3, 5}), tensor("b_enc", {2, 5}), tensor("W_dec", {3, 5, 3}),
                    tensor("b_dec", {3, 3}), tensor("log_threshold", {2, 5}),
                    tensor("estimated_norm_scaling_factor_in", {2}),
                    tensor("estimated_norm_scaling_factor_out", {2})});
  }
  ~Folders() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  // With the file replaced for this run.
  void Load(const char* folder, const char* file, std::string_view bytes) const {
    const fs::path path = path_ / folder / file;
    std::string before;
    std::error_code error;
    const bool weights = fs::exists(path, error) && path.extension() == ".safetensors";
    if (weights) before = ReadFile(path);
    Put(path, bytes);
    try {
      Use(path_ / folder);
    } catch (const Error&) {
    }
    if (weights) Put(path, before);
  }

  void Configure(const char* folder, const char* file, std::string_view text) const {
    Put(path_ / folder / file, text);
  }

 private:
  static void Use(const fs::path& folder) {
    const Transcoder transcoder = LoadTranscoder(folder);
    const TranscoderConfig& c = transcoder.config;
    Require(c.layers >= 1 && c.width >= 1 && c.features >= 1);
    Require(transcoder.layers.size() == static_cast<std::size_t>(c.layers));
    const std::vector<float> x(static_cast<std::size_t>(c.width), 0.25f);
    std::vector<float> y(x.size());
    std::vector<SparseRows> active;
    for (std::int64_t l = 0; l < c.layers; ++l) {
      active.push_back(Encode(transcoder, l, 1, x.data()));
      Reconstruct(transcoder, l, 1, active, x.data(), y.data());
      EncoderRow(transcoder, l, c.features - 1, y.data());
      DecoderRow(transcoder, l, c.features - 1, LastTarget(c, l) - 1, y.data());
    }
  }

  fs::path path_;
};

void FuzzYaml(std::string_view text) {
  const Json json = ParseYaml(text, "fuzz");
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_primitive()) return;
    // Keys are written as they are: ours are plain words.
    if (key.empty() || key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != key.npos) return;
    if (value.is_string() && ParseJson(ToText(value, -1), "text") != value) return;  // not UTF-8
  }
  Require(ParseYaml(ToYaml(json), "again") == json);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folders folders;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto configure = [] {
    folders.Configure("cross", "config.yaml", kCrossConfig);
    folders.Configure("set", "config.yaml", kSetConfig);
    folders.Configure("forge", "clt_cfg.json", fmt::format("{{{}}}", kForgeConfig));
  };
  configure();
  try {
    switch (data[0] % 10) {
      case 0:
        FuzzYaml(input);
        break;
      case 1:
        folders.Load("cross", "config.yaml", input);
        break;
      case 2:
        folders.Load("cross", "config.yaml", fmt::format("{}{}", kCrossConfig, input));
        break;
      case 3:
        folders.Load("set", "config.yaml", fmt::format("{}{}", kSetConfig, input));
        break;
      case 4:
        folders.Load("forge", "clt_cfg.json", input);
        break;
      case 5:
        folders.Load("forge", "clt_cfg.json", fmt::format("{{{},{}}}", kForgeConfig, input));
        break;
      case 6:
        folders.Load("cross", "W_enc_0.safetensors", input);
        break;
      case 7:
        folders.Load("cross", "W_dec_1.safetensors", input);
        break;
      case 8:
        folders.Load("set", "layer_0.safetensors", input);
        break;
      default:
        folders.Load("forge", "clt_weights.safetensors", input);
    }
  } catch (const Error&) {
  }
  return 0;
}
