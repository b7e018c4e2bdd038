// SPDX-License-Identifier: MIT
#include "features/circuit_tracer_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/yaml.h"
#include "features/numbered_files.h"
#include "features/weight_files.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

// Fields of config.yaml that change no number: where it comes from and what it is called.
constexpr std::string_view kHarmless[] = {"base_model", "description", "dtype",    "library_name",
                                          "license",    "repo_id",     "revision", "scan",
                                          "scan_name",  "subfolder",   "tags"};

struct Settings {
  TranscoderConfig config;
  std::optional<FeatureActivation> activation;  // else the thresholds say
  std::optional<std::vector<std::string>> files;
};

class ConfigYaml {
 public:
  explicit ConfigYaml(const fs::path& path) : source_(path.string()), json_(ReadYamlFile(path)) {
    if (!json_.is_object()) Fail("{}: expected a mapping of names to values", source_);
  }

  Settings Read() {
    Settings s;
    const std::string kind = Word("model_kind", "");
    if (kind != "cross_layer_transcoder" && kind != "transcoder_set") {
      Fail("{}: model_kind is '{}', expected cross_layer_transcoder or transcoder_set", source_,
           kind);
    }
    const bool cross = kind == "cross_layer_transcoder";
    s.config.kind = cross ? TranscoderKind::kCrossLayer : TranscoderKind::kPerLayer;
    s.config.reads = InputHook(Word("feature_input_hook", "hook_resid_mid"));
    const std::string output = Word("feature_output_hook", "hook_mlp_out");
    if (output != "hook_mlp_out" && output != "mlp.hook_out") {
      Fail("{}: feature_output_hook is '{}', expected hook_mlp_out: features stand for MLPs",
           source_, output);
    }
    s.config.model = Word("model_name", "");
    s.config.model_hash = Word("clearhead_model_hash", "");
    const std::string& hash = s.config.model_hash;
    if (!hash.empty() &&
        (hash.size() != 16 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)) {
      Fail("{}: clearhead_model_hash is '{}', expected 16 hexadecimal digits", source_, hash);
    }
    s.config.first_position = FirstPosition();
    if (!cross) ReadSet(&s);
    RefuseUnknown();
    return s;
  }

 private:
  const Json* Find(std::string_view name) {
    seen_.emplace_back(name);
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  std::string Word(std::string_view name, std::string_view fallback) {
    const Json* value = Find(name);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) Fail("{}: {} is {}, expected text", source_, name, ToText(*value, -1));
    return value->get<std::string>();
  }

  std::int64_t FirstPosition() {
    const Json* value = Find("clearhead_first_position");
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || value->get<double>() < 0 || value->get<double>() > 1024.0) {
      Fail("{}: clearhead_first_position is {}, expected a whole number from 0 to 1024", source_,
           ToText(*value, -1));
    }
    return value->get<std::int64_t>();
  }

  // mlp.hook_in is circuit-tracer's own name for what the MLP is given; hook_mlp_in is
  // TransformerLens's for the stream in front of the norm.
  Tap InputHook(const std::string& name) const {
    if (name == "ln2.hook_normalized" || name == "mlp.hook_in") return Tap::kLn2Normalized;
    if (name == "hook_resid_mid" || name == "hook_mlp_in") return Tap::kResidMid;
    Fail("{}: feature_input_hook is '{}', expected hook_resid_mid or ln2.hook_normalized", source_,
         name);
  }

  void ReadSet(Settings* s) {
    const std::string activation = Word("activation", "");
    if (activation == "topk") {
      s->activation = FeatureActivation::kTopK;
      const Json* k = Find("k");
      if (k == nullptr || !k->is_number_integer() || k->get<double>() < 1 ||
          k->get<double>() > 2147483647.0) {
        Fail("{}: activation topk needs k, a whole number from 1 on; found {}", source_,
             k == nullptr ? "none" : ToText(*k, -1));
      }
      s->config.k = k->get<std::int64_t>();
    } else if (activation == "relu") {
      s->activation = FeatureActivation::kRelu;
    } else if (activation == "jumprelu" || activation == "jump_relu") {
      s->activation = FeatureActivation::kJumpRelu;
    } else if (!activation.empty()) {
      Fail("{}: activation is '{}', expected relu, topk or none", source_, activation);
    }
    const Json* list = Find("transcoders");
    if (list == nullptr) return;
    if (!list->is_array() || list->empty()) {
      Fail("{}: transcoders is no list of files", source_);
    }
    for (const Json& item : *list) {
      const std::string name = item.is_string() ? item.get<std::string>() : ToText(item, -1);
      // A list must not reach outside its folder.
      if (!item.is_string() || name.find('/') != std::string::npos || name.empty() || name == "." ||
          name == ".." || name.find('\0') != std::string::npos) {
        Fail("{}: transcoders lists '{}', expected names of files in the folder", source_, name);
      }
      if (!s->files) s->files.emplace();
      s->files->push_back(name);
    }
  }

  void RefuseUnknown() const {
    for (const auto& [key, value] : json_.items()) {
      const auto is_key = [&key = key](std::string_view name) { return name == key; };
      if (std::any_of(seen_.begin(), seen_.end(), is_key)) continue;
      if (std::any_of(std::begin(kHarmless), std::end(kHarmless), is_key)) continue;
      Fail("{}: the field '{}' is unknown here; remove it if it changes no number", source_, key);
    }
  }

  std::string source_;
  Json json_;
  std::vector<std::string> seen_;
};

// F and C, the same in every layer.
void SetExtents(const SafetensorsFile& file, const std::string& encoder, TranscoderConfig* config) {
  const std::vector<std::int64_t> extents = ExtentsOf(file, encoder, 2);
  if (config->features == 0) {
    config->features = extents[0];
    config->width = extents[1];
  }
}

void SetActivation(const SafetensorsFile& file, FeatureActivation found, bool first,
                   TranscoderConfig* config) {
  if (first) config->activation = found;
  if (config->activation != found) {
    Fail("{}: thresholds are in some layers only; expected them in all or none", file.source());
  }
}

void ReadCrossLayer(const fs::path& folder, WeightFiles& storage, Transcoder& transcoder) {
  TranscoderConfig& c = transcoder.config;
  c.layers = CountNumbered(folder, "W_enc_");
  if (CountNumbered(folder, "W_dec_") != c.layers) {
    Fail("'{}' has {} files W_enc_i.safetensors, but {} W_dec_i.safetensors", folder.string(),
         c.layers, CountNumbered(folder, "W_dec_"));
  }
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const auto name = [l](const char* word) { return fmt::format("{}_{}", word, l); };
    const SafetensorsFile& encoder = storage.Open(NumberedFile(folder, "W_enc_", l));
    const SafetensorsFile& decoder = storage.Open(NumberedFile(folder, "W_dec_", l));
    RefuseOtherTensors(encoder, {name("W_enc"), name("b_enc"), name("b_dec"), name("threshold")});
    RefuseOtherTensors(decoder, {name("W_dec")});
    SetExtents(encoder, name("W_enc"), &c);
    const bool jumps = encoder.Find(name("threshold")) != nullptr;
    SetActivation(encoder, jumps ? FeatureActivation::kJumpRelu : FeatureActivation::kRelu, l == 0,
                  &c);
    const std::int64_t F = c.features, C = c.width, targets = c.layers - l;
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = MakeLinear(storage.Mapped(encoder, name("W_enc"), {F, C}),
                               storage.Copied(encoder, name("b_enc"), {F}), C, F, Order::kOutIn);
    layer.decoder_bias = storage.Copied(encoder, name("b_dec"), {C});
    if (jumps) layer.threshold = storage.Copied(encoder, name("threshold"), {F});
    const Weight rows = storage.Mapped(decoder, name("W_dec"), {F, targets, C});
    for (std::int64_t t = 0; t < targets; ++t) {
      layer.writes.push_back({.rows = rows + t * C, .stride = targets * C});
    }
  }
}

void ReadSet(const fs::path& folder, const Settings& settings, WeightFiles& storage,
             Transcoder& transcoder) {
  TranscoderConfig& c = transcoder.config;
  constexpr const char* kThreshold = "activation_function.threshold";
  c.layers = settings.files ? static_cast<std::int64_t>(settings.files->size())
                            : CountNumbered(folder, "layer_");
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const SafetensorsFile& file =
        storage.Open(settings.files ? folder / (*settings.files)[static_cast<std::size_t>(l)]
                                    : NumberedFile(folder, "layer_", l));
    // `k` is a copy of the one in config.yaml, which counts.
    RefuseOtherTensors(file, {"W_enc", "b_enc", "W_dec", "b_dec", kThreshold, "W_skip", "k"});
    SetExtents(file, "W_enc", &c);
    const bool jumps = file.Find(kThreshold) != nullptr;
    const FeatureActivation activation = settings.activation.value_or(
        jumps ? FeatureActivation::kJumpRelu : FeatureActivation::kRelu);
    SetActivation(file, activation, l == 0, &c);
    if (jumps != (activation == FeatureActivation::kJumpRelu)) {
      Fail("{}: the tensor '{}' is {}, but config.yaml says activation {}", file.source(),
           kThreshold, jumps ? "there" : "missing", NameOf(activation));
    }
    if (file.Find("k") != nullptr && activation != FeatureActivation::kTopK) {
      Fail("{}: has a tensor 'k', but config.yaml does not say activation: topk", file.source());
    }
    const std::int64_t F = c.features, C = c.width;
    if (c.k > F) Fail("'{}': k is {}, but there are {} features", folder.string(), c.k, F);
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = MakeLinear(storage.Mapped(file, "W_enc", {F, C}),
                               storage.Copied(file, "b_enc", {F}), C, F, Order::kOutIn);
    layer.decoder_bias = storage.Copied(file, "b_dec", {C});
    layer.writes.push_back({.rows = storage.Mapped(file, "W_dec", {F, C}), .stride = C});
    if (jumps) layer.threshold = storage.Copied(file, kThreshold, {F});
    if (file.Find("W_skip") != nullptr) {
      layer.skip = MakeLinear(storage.Mapped(file, "W_skip", {C, C}), nullptr, C, C, Order::kOutIn);
    }
  }
}

}  // namespace

Transcoder ReadCircuitTracer(const fs::path& folder) {
  const Settings settings = ConfigYaml(folder / "config.yaml").Read();
  auto storage = std::make_shared<WeightFiles>();
  Transcoder transcoder{.config = settings.config};
  if (settings.config.kind == TranscoderKind::kCrossLayer) {
    ReadCrossLayer(folder, *storage, transcoder);
  } else {
    ReadSet(folder, settings, *storage, transcoder);
  }
  transcoder.storage = std::move(storage);
  return transcoder;
}

}  // namespace clearhead
