// SPDX-License-Identifier: MIT
// Llama in a GGUF file, as llama.cpp's converter writes it. As in llama2.c's files the rows of
// queries and keys stand in the order that turns neighbouring values.
#include "model/families/gguf_llama.h"

#include <fmt/format.h>

#include "core/buffer.h"
#include "core/error.h"
#include "core/gguf.h"
#include "model/families/families.h"

namespace clearhead {
namespace {

constexpr std::string_view kArchitecture = "llama";

std::int64_t Need(const GgufFile& file, std::string_view name, std::int64_t most) {
  const std::optional<std::int64_t> value = file.Whole(name);
  if (!value) Fail("{}: it has no '{}'; that is no Llama", file.source(), name);
  if (*value < 1 || *value > most)
    Fail("{}: '{}' is {}, expected 1 to {}", file.source(), name, *value, most);
  return *value;
}

// What changes numbers and is not read must not be there.
void RefuseOthers(const GgufFile& file) {
  const std::string architecture = file.Text("general.architecture").value_or("nothing");
  if (architecture != kArchitecture) {
    Fail("{}: its architecture is '{}'; '{}' can be read", file.source(), architecture,
         kArchitecture);
  }
  if (file.Whole("llama.expert_count").value_or(0) > 0)
    Fail("{}: it has experts, which cannot be read", file.source());
  const std::string scaling = file.Text("llama.rope.scaling.type").value_or("none");
  if (scaling != "none")
    Fail("{}: its rotary positions are scaled ('{}'), which cannot be read", file.source(),
         scaling);
  if (const GgufTensor* factors = file.Find("rope_freqs.weight"); factors != nullptr) {
    // Only what can be read is known to lie in the file, and so to have a size to be trusted.
    if (factors->bytes.empty()) {
      Fail("{}: 'rope_freqs.weight' is stored as {}; F32, F16, BF16 and Q8_0 can be read",
           file.source(), GgufTypeName(factors->type));
    }
    std::vector<float> values(static_cast<std::size_t>(factors->size()));
    ConvertToFloat(*factors, values.data());
    for (const float value : values) {
      if (value != 1.0f)
        Fail(
            "{}: its rotary positions are scaled (rope_freqs.weight, as in Llama 3.1), which "
            "cannot be read; use the Hugging Face folder",
            file.source());
    }
  }
}

ModelConfig ConfigOf(const GgufFile& file) {
  RefuseOthers(file);
  const std::int64_t width = Need(file, "llama.embedding_length", 1 << 18),
                     heads = Need(file, "llama.attention.head_count", 4096);
  const GgufTensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    Fail("{}: it has no matrix 'token_embd.weight'", file.source());
  const std::optional<double> epsilon = file.Number("llama.attention.layer_norm_rms_epsilon");
  if (!epsilon || !(*epsilon > 0.0 && *epsilon < 1.0))
    Fail("{}: 'llama.attention.layer_norm_rms_epsilon' is missing or no small number",
         file.source());
  const std::int64_t kv_heads = file.Whole("llama.attention.head_count_kv")
                                    ? Need(file, "llama.attention.head_count_kv", 4096)
                                    : heads;
  const std::int64_t size = file.Whole("llama.attention.key_length")
                                ? Need(file, "llama.attention.key_length", 1 << 14)
                                : width / heads;
  const std::int64_t turned = file.Whole("llama.rope.dimension_count").value_or(size);
  const double theta = file.Number("llama.rope.freq_base").value_or(10000.0);
  if (size < 2 || size % 2 != 0 || heads % kv_heads != 0 || turned != size || !(theta > 1.0)) {
    Fail(
        "{}: width {}, {} heads, {} key/value heads, head size {}, {} of it turned, base {}: these "
        "do not fit together",
        file.source(), width, heads, kv_heads, size, turned, theta);
  }
  ModelConfig config{.layers = Need(file, "llama.block_count", 4096),
                     .heads = heads,
                     .width = width,
                     .vocabulary = embedding->shape[0],
                     .positions = Need(file, "llama.context_length", 1 << 24),
                     .inner = Need(file, "llama.feed_forward_length", 1 << 20),
                     .norm_epsilon = static_cast<float>(*epsilon),
                     .activation = Activation::kSilu,
                     .tied = file.Find("output.weight") == nullptr,
                     .family = &kLlama,
                     .key_value_heads = kv_heads,
                     .given_head_size = size == width / heads && width % heads == 0 ? 0 : size,
                     .norm = NormKind::kRms,
                     .norm_has_bias = false,
                     .position = PositionKind::kRotary,
                     .rotary = {.theta = theta},
                     .mlp = MlpKind::kGated,
                     .qkv_bias = false,
                     .projection_bias = false,
                     .mlp_bias = false};
  const auto token = [&](const char* name) -> std::optional<std::int32_t> {
    const std::optional<std::int64_t> id = file.Whole(name);
    if (!id || *id < 0 || *id >= config.vocabulary) return {};
    return static_cast<std::int32_t>(*id);
  };
  config.begin_of_text = token("tokenizer.ggml.bos_token_id");
  if (const auto end = token("tokenizer.ggml.eos_token_id")) config.end_of_text = {*end};
  return config;
}

std::string NameOf(Role role, std::int64_t layer) {
  const auto block = [&](const char* name) { return fmt::format("blk.{}.{}.weight", layer, name); };
  switch (role) {
    case Role::kTokenEmbedding:
      return "token_embd.weight";
    case Role::kFinalNormWeight:
      return "output_norm.weight";
    case Role::kOutput:
      return "output.weight";
    case Role::kAttentionNormWeight:
      return block("attn_norm");
    case Role::kQueryWeight:
      return block("attn_q");
    case Role::kKeyWeight:
      return block("attn_k");
    case Role::kValueWeight:
      return block("attn_v");
    case Role::kProjectionWeight:
      return block("attn_output");
    case Role::kMlpNormWeight:
      return block("ffn_norm");
    case Role::kMlpGateWeight:
      return block("ffn_gate");
    case Role::kMlpInWeight:
      return block("ffn_up");
    case Role::kMlpOutWeight:
      return block("ffn_down");
    default:
      Check(false, "a Llama has no such parameter");
      return "";
  }
}

// Row 2i + r of a head moves to row r D/2 + i.
void CopyTurned(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t D,
                float* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / D, i = row % D / 2, r = row % 2;
    std::copy_n(from + row * columns, columns, to + (head * D + r * (D / 2) + i) * columns);
  }
}

}  // namespace

Model ImportGguf(const GgufFile& file) {
  const ModelConfig config = ConfigOf(file);
  const std::vector<ParameterSpec> table = ParameterTable(config);
  // Before anything is allocated: that every tensor is there, readable and of its shape.
  for (const ParameterSpec& spec : table) {
    const std::string name = NameOf(spec.role, spec.layer);
    const GgufTensor* tensor = file.Find(name);
    if (tensor == nullptr) Fail("{}: the tensor '{}' is missing", file.source(), name);
    if (tensor->bytes.empty()) {
      Fail("{}: '{}' is stored as {}; F32, F16, BF16 and Q8_0 can be read", file.source(), name,
           GgufTypeName(tensor->type));
    }
    Shape shape;
    for (const std::int64_t extent : tensor->shape) shape.Append(extent);
    if (!(shape == spec.shape))
      Fail("{}: '{}' is {}, expected {}", file.source(), name, ToText(shape), ToText(spec.shape));
  }
  auto values = std::make_shared<Buffer<float>>(config.ParameterCount());
  float* to = values->data();
  Model model;
  model.config = config;
  for (const ParameterSpec& spec : table) {
    const GgufTensor& tensor = *file.Find(NameOf(spec.role, spec.layer));
    if (spec.role == Role::kQueryWeight || spec.role == Role::kKeyWeight) {
      Buffer<float> rows(tensor.size());
      ConvertToFloat(tensor, rows.data());
      CopyTurned(rows.data(), spec.shape[0], spec.shape[1], config.head_size(), to);
    } else {
      ConvertToFloat(tensor, to);
    }
    to += spec.shape.size();
  }
  model.weights = BindWeights(config, values->data());
  model.storage = std::move(values);
  return model;
}

}  // namespace clearhead
