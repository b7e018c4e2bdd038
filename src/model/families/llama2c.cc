// SPDX-License-Identifier: MIT
// Checkpoints of karpathy/llama2.c: a Llama in fp32. Its rotation turns neighbouring values (2i,
// 2i+1) of a head where Hugging Face turns (i, i + D/2), so the rows of queries and keys change
// places.
#include <array>
#include <cmath>
#include <cstring>

#include "core/buffer.h"
#include "core/error.h"
#include "core/file.h"
#include "model/families/families.h"
#include "model/families/gguf_llama.h"
#include "model/import.h"

namespace clearhead {
namespace {

constexpr std::uint32_t kMagic = 0x616b3432;  // "ak42"
constexpr std::size_t kHeaderBytes = 256;     // of version 1
constexpr std::int32_t kBegin = 1, kEnd = 2;  // Llama 2's special tokens

struct Header {
  std::array<std::int32_t, 7> sizes{};  // dim, hidden, layers, heads, kv heads, vocabulary, context
  bool tied = true;
  bool legacy = true;
  std::size_t bytes = 0;
};

template <typename T>
T ReadAt(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

Header ReadHeader(std::span<const std::byte> bytes, const std::string& source) {
  Header header;
  if (bytes.size() < sizeof(header.sizes)) {
    Fail("{}: {} bytes are too few for a llama2.c model", source, bytes.size());
  }
  header.legacy = ReadAt<std::uint32_t>(bytes, 0) != kMagic;
  std::size_t at = 0;
  if (!header.legacy) {
    if (bytes.size() < kHeaderBytes) Fail("{}: its header is cut short", source);
    const auto version = ReadAt<std::int32_t>(bytes, 4);
    if (version != 1) {
      Fail(
          "{}: a llama2.c file of version {}; versions 0 (legacy) and 1 can be read, others are "
          "quantised",
          source, version);
    }
    at = 8;
  }
  std::memcpy(header.sizes.data(), bytes.data() + at, sizeof(header.sizes));
  header.bytes = header.legacy ? sizeof(header.sizes) : kHeaderBytes;
  if (header.legacy) {
    header.tied = header.sizes[5] > 0;  // a negative vocabulary: an output matrix of its own
    if (header.sizes[5] == INT32_MIN) header.sizes[5] = 0;
    header.sizes[5] = std::abs(header.sizes[5]);
  } else {
    header.tied = ReadAt<std::uint8_t>(bytes, at + sizeof(header.sizes)) != 0;
  }
  return header;
}

ModelConfig ConfigOf(const Header& header, const std::string& source) {
  const auto& [dim, hidden, layers, heads, kv_heads, vocabulary, context] = header.sizes;
  constexpr std::array<std::int32_t, 7> kLimits = {1 << 18, 1 << 20, 4096,   4096,
                                                   4096,    1 << 24, 1 << 24};
  for (std::size_t i = 0; i < kLimits.size(); ++i) {
    if (header.sizes[i] < 1 || header.sizes[i] > kLimits[i]) {
      Fail(
          "{}: its header says width {}, MLP {}, {} layers, {} heads, {} key/value heads, "
          "vocabulary {}, context {}; that is no llama2.c model",
          source, dim, hidden, layers, heads, kv_heads, vocabulary, context);
    }
  }
  if (dim % heads != 0 || heads % kv_heads != 0 || dim / heads % 2 != 0) {
    Fail("{}: width {}, {} heads and {} key/value heads do not fit together", source, dim, heads,
         kv_heads);
  }
  return {.layers = layers,
          .heads = heads,
          .width = dim,
          .vocabulary = vocabulary,
          .positions = context,
          .inner = hidden,
          .norm_epsilon = 1e-5f,
          .activation = Activation::kSilu,
          .tied = header.tied,
          .end_of_text = {kEnd},
          .begin_of_text = kBegin,
          .family = &kLlama,
          .key_value_heads = kv_heads,
          .norm = NormKind::kRms,
          .norm_has_bias = false,
          .position = PositionKind::kRotary,
          .mlp = MlpKind::kGated,
          .qkv_bias = false,
          .projection_bias = false,
          .mlp_bias = false};
}

// The file's tensors one after another, each for all layers.
struct Piece {
  Role role;
  bool per_layer = true;
};
constexpr Piece kLegacyOrder[] = {{Role::kTokenEmbedding, false}, {Role::kAttentionNormWeight},
                                  {Role::kQueryWeight},           {Role::kKeyWeight},
                                  {Role::kValueWeight},           {Role::kProjectionWeight},
                                  {Role::kMlpNormWeight},         {Role::kMlpGateWeight},
                                  {Role::kMlpOutWeight},          {Role::kMlpInWeight},
                                  {Role::kFinalNormWeight, false}};
constexpr Piece kVersion1Order[] = {
    {Role::kAttentionNormWeight},   {Role::kMlpNormWeight},    {Role::kFinalNormWeight, false},
    {Role::kTokenEmbedding, false}, {Role::kQueryWeight},      {Role::kKeyWeight},
    {Role::kValueWeight},           {Role::kProjectionWeight}, {Role::kMlpGateWeight},
    {Role::kMlpOutWeight},          {Role::kMlpInWeight}};

// Row 2i + r of a head moves to row r D/2 + i.
void CopyTurned(const std::byte* from, std::int64_t rows, std::int64_t columns, std::int64_t D,
                float* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / D, i = row % D / 2, r = row % 2;
    std::memcpy(to + (head * D + r * (D / 2) + i) * columns, from + row * columns * 4,
                static_cast<std::size_t>(columns) * 4);
  }
}

std::int64_t SizeOf(const std::vector<ParameterSpec>& table, Role role) {
  for (const ParameterSpec& spec : table) {
    if (spec.role == role) return spec.shape.size();
  }
  return 0;
}

}  // namespace

Model ImportModel(const std::filesystem::path& path) {
  const std::string source = path.string();
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (IsGguf(bytes)) return ImportGguf(GgufFile::FromBytes(bytes, source));
  const Header header = ReadHeader(bytes, source);
  const ModelConfig config = ConfigOf(header, source);
  const std::vector<ParameterSpec> table = ParameterTable(config);

  // Behind the weights of a legacy file lie two tables of the rotation, [context, D/2] each.
  const std::int64_t D = config.head_size();
  const std::int64_t tables = header.legacy ? config.positions * D : 0;
  const std::uint64_t expected =
      header.bytes + 4 * static_cast<std::uint64_t>(config.ParameterCount() + tables);
  if (bytes.size() != expected) {
    Fail("{}: {} bytes, but a llama2.c model of {} layers, width {} and vocabulary {} has {}",
         source, bytes.size(), config.layers, config.width, config.vocabulary, expected);
  }

  auto values = std::make_shared<Buffer<float>>(config.ParameterCount());
  const ModelValues tensors = BindContiguous(config, values->data());
  std::size_t at = header.bytes;
  const auto take = [&](const Piece& piece) {
    const std::int64_t size = SizeOf(table, piece.role);
    const std::int64_t count = piece.per_layer ? config.layers : 1;
    for (std::int64_t layer = 0; layer < count; ++layer) {
      float* to = tensors(piece.role, piece.per_layer ? layer : kOutsideBlocks);
      if (piece.role == Role::kQueryWeight || piece.role == Role::kKeyWeight) {
        CopyTurned(bytes.data() + at, size / config.width, config.width, D, to);
      } else {
        std::memcpy(to, bytes.data() + at, static_cast<std::size_t>(size) * 4);
      }
      at += static_cast<std::size_t>(size) * 4;
    }
  };
  for (const Piece& piece : header.legacy ? std::span<const Piece>(kLegacyOrder)
                                          : std::span<const Piece>(kVersion1Order)) {
    take(piece);
  }
  at += static_cast<std::size_t>(tables) * 4;
  if (!header.tied) take({Role::kOutput, false});

  Model model;
  model.config = config;
  model.weights = BindWeights(config, values->data());
  model.storage = std::move(values);
  return model;
}

}  // namespace clearhead
