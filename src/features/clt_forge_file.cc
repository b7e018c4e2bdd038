// SPDX-License-Identifier: MIT
#include "features/clt_forge_file.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "features/weight_files.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

// Fields of clt_cfg.json about training and where it ran: they change nothing of what is stored.
constexpr std::string_view kHarmless[] = {"context_size",
                                          "ddp",
                                          "dead_feature_window",
                                          "debug",
                                          "device",
                                          "dtype",
                                          "feature_sharding",
                                          "fsdp",
                                          "functional_loss",
                                          "jumprelu_bandwidth",
                                          "jumprelu_init_threshold",
                                          "l0_coefficient",
                                          "normalize_decoder",
                                          "seed",
                                          "sparse_decode",
                                          "sparse_threshold"};

struct Settings {
  std::int64_t layers, width, features;
  bool cross_layer;
  std::string model;
};

std::int64_t Extent(const Json& json, const char* name, const std::string& source) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_number_integer() || it->get<double>() < 1 ||
      it->get<double>() > 2147483647.0) {
    Fail("{}: '{}' is {}, expected a whole number from 1 on", source, name,
         it == json.end() ? "missing" : ToText(*it, -1));
  }
  return it->get<std::int64_t>();
}

Settings ReadSettings(const fs::path& path) {
  const std::string source = path.string();
  const Json json = ReadJsonFile(path, /*max_bytes=*/1 << 20);
  if (!json.is_object()) Fail("{}: expected an object", source);
  Settings s{Extent(json, "n_layers", source), Extent(json, "d_in", source),
             Extent(json, "d_latent", source), true, ""};
  for (const auto& [key, value] : json.items()) {
    if (key == "n_layers" || key == "d_in" || key == "d_latent" || key == "k") continue;
    if (key == "cross_layer_decoders") {
      if (!value.is_boolean()) Fail("{}: '{}' is no boolean", source, key);
      s.cross_layer = value.get<bool>();
    } else if (key == "model_name") {
      if (value.is_string()) s.model = value.get<std::string>();
    } else if (key == "activation_fn") {
      if (value != "jumprelu") {
        Fail("{}: activation_fn is {}, expected \"jumprelu\": of this layout no other is known",
             source, ToText(value, -1));
      }
    } else if (std::find(std::begin(kHarmless), std::end(kHarmless), key) == std::end(kHarmless)) {
      Fail("{}: the field '{}' is unknown; remove it if it changes no number", source, key);
    }
  }
  return s;
}

float CheckedFactor(const float* factors, std::int64_t layer, const SafetensorsFile& file,
                    const char* name) {
  if (!(factors[layer] > 0.0f)) {
    Fail("{}: '{}' is {} in layer {}, expected a positive number", file.source(), name,
         factors[layer], layer);
  }
  return factors[layer];
}

}  // namespace

Transcoder ReadCltForge(const fs::path& folder) {
  const Settings s = ReadSettings(folder / "clt_cfg.json");
  std::error_code error;
  if (fs::exists(folder / "rank0_clt_weights.safetensors", error)) {
    Fail(
        "'{}' holds a transcoder in shards (rank0_clt_weights.safetensors ...); merge them with "
        "CLT-Forge into clt_weights.safetensors",
        folder.string());
  }
  const std::int64_t L = s.layers, C = s.width, F = s.features;
  if (L > 100'000) Fail("{}: {} layers", (folder / "clt_cfg.json").string(), L);
  const std::int64_t pairs = s.cross_layer ? L * (L + 1) / 2 : L;
  auto storage = std::make_shared<WeightFiles>();
  const SafetensorsFile& file = storage->Open(folder / "clt_weights.safetensors");
  constexpr const char* kIn = "estimated_norm_scaling_factor_in";
  constexpr const char* kOut = "estimated_norm_scaling_factor_out";
  // The last two are counters and a mask that training keeps.
  RefuseOtherTensors(file, {"W_enc", "b_enc", "W_dec", "b_dec", "log_threshold", kIn, kOut,
                            "feature_count", "layer_mask"});
  const Weight encoders = storage->Mapped(file, "W_enc", {L, C, F});
  const Weight decoders = storage->Mapped(file, "W_dec", {pairs, F, C});
  const float* encoder_biases = storage->Copied(file, "b_enc", {L, F});
  const float* pair_biases = storage->Copied(file, "b_dec", {pairs, C});
  const float* factors_in = storage->Copied(file, kIn, {L});
  const float* factors_out = storage->Copied(file, kOut, {L});
  float* thresholds = storage->Copied(file, "log_threshold", {L, F});
  for (std::int64_t i = 0; i < L * F; ++i) thresholds[i] = std::exp(thresholds[i]);
  float* biases = storage->Zeros(L * C);

  Transcoder transcoder;
  transcoder.config = {
      .kind = s.cross_layer ? TranscoderKind::kCrossLayer : TranscoderKind::kPerLayer,
      .activation = FeatureActivation::kJumpRelu,
      .layers = L,
      .width = C,
      .features = F,
      .reads = Tap::kLn2Normalized,
      .model = s.model};
  std::int64_t pair = 0;
  for (std::int64_t l = 0; l < L; ++l) {
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = MakeLinear(encoders + l * C * F, encoder_biases + l * F, C, F, Order::kInOut);
    layer.input_scale = CheckedFactor(factors_in, l, file, kIn);
    layer.threshold = thresholds + l * F;
    layer.decoder_bias = biases + l * C;
    for (std::int64_t t = l; t < LastTarget(transcoder.config, l); ++t, ++pair) {
      const float scale = 1.0f / CheckedFactor(factors_out, t, file, kOut);
      layer.writes.push_back({decoders + pair * F * C, C, scale});
      for (std::int64_t i = 0; i < C; ++i) biases[t * C + i] += pair_biases[pair * C + i] * scale;
    }
  }
  transcoder.storage = std::move(storage);
  return transcoder;
}

}  // namespace clearhead
