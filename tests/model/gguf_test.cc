// SPDX-License-Identifier: MIT
// GGUF files, written here as llama.cpp's converter writes them.
#include "core/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/dtype.h"
#include "model/families/gguf_llama.h"
#include "model/import.h"
#include "model/model_testing.h"
#include "support/golden_models.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

class GgufWriter {
 public:
  template <typename T>
  void Value(const std::string& name, std::uint32_t kind, T value) {
    Text(&values_, name);
    Number(&values_, kind);
    Number(&values_, value);
    ++value_count_;
  }
  void Value(const std::string& name, const std::string& text) {
    Text(&values_, name);
    Number(&values_, std::uint32_t{8});
    Text(&values_, text);
    ++value_count_;
  }
  void Tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type,
              const std::string& bytes) {
    Text(&infos_, name);
    Number(&infos_, static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;)
      Number(&infos_, static_cast<std::uint64_t>(shape[i]));
    Number(&infos_, type);
    Number(&infos_, static_cast<std::uint64_t>(data_.size()));
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
  }
  std::string Bytes(std::uint32_t version = 3) const {
    std::string bytes = "GGUF";
    Number(&bytes, version);
    Number(&bytes, tensor_count_);
    Number(&bytes, value_count_);
    bytes += values_ + infos_;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes + data_;
  }

 private:
  template <typename T>
  static void Number(std::string* out, T value) {
    out->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void Text(std::string* out, const std::string& text) {
    Number(out, static_cast<std::uint64_t>(text.size()));
    *out += text;
  }

  std::string values_, infos_, data_;
  std::uint64_t value_count_ = 0, tensor_count_ = 0;
};

// fp32 to one of the types, and what is left of it.
std::string Encode(std::uint32_t type, std::vector<float>* values) {
  std::string bytes;
  if (type == 8) {
    for (std::size_t block = 0; block < values->size(); block += 32) {
      float largest = 0.0f;
      for (std::size_t i = 0; i < 32; ++i)
        largest = std::max(largest, std::abs((*values)[block + i]));
      const std::uint16_t half = FloatToHalf(largest / 127.0f);
      const float scale = HalfToFloat(half);
      bytes.append(reinterpret_cast<const char*>(&half), 2);
      for (std::size_t i = 0; i < 32; ++i) {
        const auto q = static_cast<std::int8_t>(
            scale == 0.0f ? 0.0f
                          : std::clamp(std::round((*values)[block + i] / scale), -127.0f, 127.0f));
        bytes += static_cast<char>(q);
        (*values)[block + i] = scale * static_cast<float>(q);
      }
    }
    return bytes;
  }
  const DType dtype = type == 1 ? DType::kF16 : type == 30 ? DType::kBF16 : DType::kF32;
  bytes.resize(values->size() * static_cast<std::size_t>(DTypeSize(dtype)));
  auto* at = reinterpret_cast<std::byte*>(bytes.data());
  ConvertFromFloat(values->data(), static_cast<std::int64_t>(values->size()), dtype, at);
  ConvertToFloat(dtype, at, static_cast<std::int64_t>(values->size()), values->data());
  return bytes;
}

ModelConfig LlamaConfig() {
  return ParseConfig({{"model_type", "llama"},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"hidden_size", 32},
                      {"intermediate_size", 64},
                      {"vocab_size", 33},
                      {"max_position_embeddings", 40},
                      {"rope_theta", 5000.0},
                      {"rms_norm_eps", 1e-5},
                      {"tie_word_embeddings", false}},
                     "test");
}

const std::map<Role, std::string> kNames = {{Role::kTokenEmbedding, "token_embd"},
                                            {Role::kFinalNormWeight, "output_norm"},
                                            {Role::kOutput, "output"},
                                            {Role::kAttentionNormWeight, "attn_norm"},
                                            {Role::kQueryWeight, "attn_q"},
                                            {Role::kKeyWeight, "attn_k"},
                                            {Role::kValueWeight, "attn_v"},
                                            {Role::kProjectionWeight, "attn_output"},
                                            {Role::kMlpNormWeight, "ffn_norm"},
                                            {Role::kMlpGateWeight, "ffn_gate"},
                                            {Role::kMlpInWeight, "ffn_up"},
                                            {Role::kMlpOutWeight, "ffn_down"}};

void WriteHeader(GgufWriter* out, const ModelConfig& config) {
  out->Value("general.architecture", std::string("llama"));
  const auto number = [&](const char* name, std::int64_t value) {
    out->Value<std::uint32_t>(std::string("llama.") + name, 4, static_cast<std::uint32_t>(value));
  };
  number("block_count", config.layers);
  number("embedding_length", config.width);
  number("feed_forward_length", config.inner);
  number("attention.head_count", config.heads);
  number("attention.head_count_kv", config.kv_heads());
  number("context_length", config.positions);
  out->Value<float>("llama.attention.layer_norm_rms_epsilon", 6, config.norm_epsilon);
  out->Value<float>("llama.rope.freq_base", 6, static_cast<float>(config.rotary.theta));
  out->Value<std::uint32_t>("tokenizer.ggml.bos_token_id", 4, 1);
  out->Value<std::uint32_t>("tokenizer.ggml.eos_token_id", 4, 2);
}

// The file, and the model as it should come back: matrices of `type`, norms in fp32.
std::pair<std::string, Model> WriteModel(std::uint32_t type) {
  const ModelConfig config = LlamaConfig();
  std::vector<float> parameters = LivelyParameters(config, 5);
  GgufWriter out;
  WriteHeader(&out, config);
  std::size_t at = 0;
  for (const ParameterSpec& spec : ParameterTable(config)) {
    const auto size = static_cast<std::size_t>(spec.shape.size());
    std::vector<float> values(parameters.begin() + static_cast<std::ptrdiff_t>(at),
                              parameters.begin() + static_cast<std::ptrdiff_t>(at + size));
    const bool matrix = spec.shape.rank() == 2;
    const std::string bytes = Encode(matrix ? type : 0, &values);  // rows are blocks of their own
    std::copy(values.begin(), values.end(), parameters.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < spec.shape.rank(); ++axis) shape.push_back(spec.shape[axis]);
    std::string turned = bytes;
    if (spec.role == Role::kQueryWeight || spec.role == Role::kKeyWeight) {
      // transformers' rows (r, i) of a head become llama.cpp's (i, r).
      const std::int64_t D = config.head_size(),
                         row_bytes = static_cast<std::int64_t>(bytes.size()) / shape[0];
      for (std::int64_t row = 0; row < shape[0]; ++row) {
        const std::int64_t head = row / D, r = row % D / (D / 2), i = row % (D / 2);
        bytes.copy(turned.data() + (head * D + 2 * i + r) * row_bytes,
                   static_cast<std::size_t>(row_bytes), static_cast<std::size_t>(row * row_bytes));
      }
    }
    const std::string name = kNames.at(spec.role) + ".weight";
    out.Tensor(spec.layer == kOutsideBlocks ? name : fmt::format("blk.{}.{}", spec.layer, name),
               shape, matrix ? type : 0, turned);
    at += size;
  }
  return {out.Bytes(), ModelOf(config, parameters)};
}

TEST(Gguf, ReadsEveryTypeExactly) {
  for (const std::uint32_t type : {0u, 1u, 30u, 8u}) {
    SCOPED_TRACE(GgufTypeName(type));
    const auto [bytes, expected] = WriteModel(type);
    const TemporaryFolder folder;
    WriteFile(folder / "model.gguf", bytes);
    const Model model = ImportModel(folder / "model.gguf");
    EXPECT_EQ(model.config.kv_heads(), 2);
    EXPECT_EQ(model.config.rotary.theta, 5000.0);
    EXPECT_FALSE(model.config.tied);
    EXPECT_EQ(model.config.begin_of_text, 1);
    const std::vector<std::int32_t> ids = RandomIds(expected.config, 9, 2);
    EXPECT_EQ(RunCapture(model, ids, 1, {}).at("logits").values,
              RunCapture(expected, ids, 1, {}).at("logits").values);
  }
}

// Found by fuzz_gguf: a terabyte was asked for.
TEST(Gguf, ATensorThatCannotBeReadHasNoSizeToBeTrusted) {
  GgufWriter out;
  WriteHeader(&out, LlamaConfig());
  out.Tensor("rope_freqs.weight", {std::int64_t{1} << 38}, 12, "");
  const std::string bytes = out.Bytes();
  const GgufFile file = GgufFile::FromBytes(std::as_bytes(std::span(bytes)), "file");
  EXPECT_THAT(ErrorOf([&] { ImportGguf(file); }),
              testing::HasSubstr("'rope_freqs.weight' is stored as Q4_K"));
}

TEST(Gguf, RefusesByName) {
  const std::string good = WriteModel(0).first;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  // The type of a tensor stands behind its name, the number of axes and the extents.
  const auto typed = [&](std::uint32_t type) {
    std::string bytes = good;
    const std::size_t at = bytes.find("blk.1.ffn_up.weight") + 19 + 4 + 16;
    std::memcpy(bytes.data() + at, &type, 4);
    return bytes;
  };
  const struct {
    std::string bytes;
    const char* part;
  } kCases[] = {
      {typed(12), "'blk.1.ffn_up.weight' is stored as Q4_K; F32, F16, BF16 and Q8_0 can be read"},
      {typed(99), "type 99"},
      {with("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight"), "'blk.1.ffn_up.weight' is missing"},
      {with("llama.block_count", "llama.block_coint"), "it has no 'llama.block_count'"},
      {good.substr(0, good.size() - 40), "cut short"},
      {good.substr(0, 100), "cut short"},
      {"GGUF", "cut short"},
      {with(std::string("GGUF\3", 5), std::string("GGUF\1", 5)), "version 1"}};
  for (const auto& c : kCases) {
    try {
      ImportGguf(GgufFile::FromBytes(std::as_bytes(std::span(c.bytes)), "file"));
      ADD_FAILURE() << c.part;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(c.part));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Gguf, RefusesOtherArchitecturesAndScaledPositions) {
  const auto refused = [](const std::function<void(GgufWriter*)>& write, const char* part) {
    GgufWriter out;
    write(&out);
    const std::string bytes = out.Bytes();
    try {
      ImportGguf(GgufFile::FromBytes(std::as_bytes(std::span(bytes)), "file"));
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  refused([](GgufWriter* out) { out->Value("general.architecture", std::string("mamba")); },
          "its architecture is 'mamba'");
  refused([](GgufWriter*) {}, "its architecture is 'nothing'");
  refused(
      [](GgufWriter* out) {
        WriteHeader(out, LlamaConfig());
        out->Value("llama.rope.scaling.type", std::string("yarn"));
      },
      "scaled ('yarn')");
  refused(
      [](GgufWriter* out) {
        WriteHeader(out, LlamaConfig());
        const std::vector<float> factors = {1.0f, 8.0f};
        out->Tensor("rope_freqs.weight", {2}, 0,
                    {reinterpret_cast<const char*>(factors.data()), 8});
      },
      "Llama 3.1");
}

// No prefix of a good file is read beyond its end (asan sees to that), nor any with a byte changed.
TEST(Gguf, DamagedFilesAreRefusedOrRead) {
  const std::string good = WriteModel(0).first;
  for (std::size_t at = 0; at < 1500; ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x81);
    try {
      ImportGguf(GgufFile::FromBytes(std::as_bytes(std::span(bytes)), "file"));
    } catch (const Error&) {
    }
    if (at % 10 != 0) continue;
    EXPECT_THROW(GgufFile::FromBytes(std::as_bytes(std::span(good)).first(at), "file"), Error)
        << at;
  }
}

}  // namespace
}  // namespace clearhead
