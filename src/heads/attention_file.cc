// SPDX-License-Identifier: MIT
// Attention from a safetensors file.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/threads.h"
#include "heads/attention_source.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

std::string ShapeText(const TensorEntry& entry) {
  return fmt::format("[{}]", fmt::join(entry.shape, ","));
}

// Where the maps of each layer are.
struct Layers {
  std::vector<const TensorEntry*> tensors;  // one per layer; all the same for `attn`
  std::int64_t batch = 1, layers = 0, heads = 0, length = 0;
  bool batched = false;
  bool together = false;  // one tensor [B,L,H,T,T]

  // Elements before the maps of (sequence, layer) in the layer's tensor.
  std::int64_t Offset(std::int64_t sequence, std::int64_t layer) const {
    const std::int64_t maps = heads * length * length;
    return together ? (sequence * layers + layer) * maps : sequence * maps;
  }
};

void CheckExtents(const fs::path& path, const TensorEntry& entry, std::string_view expected) {
  const std::size_t rank = entry.shape.size();
  if (!IsConvertibleFloat(entry.dtype)) {
    Fail("{}: '{}' is {}, expected F32, F16 or BF16", path.string(), entry.name,
         DTypeName(entry.dtype));
  }
  if (entry.size() == 0 || entry.shape[rank - 1] != entry.shape[rank - 2]) {
    Fail("{}: '{}' is {}, expected {} with as many keys as queries", path.string(), entry.name,
         ShapeText(entry), expected);
  }
}

// N of blocks.N.attn.hook_pattern.
std::optional<std::int64_t> PatternLayer(std::string_view name) {
  constexpr std::string_view kBefore = "blocks.", kAfter = ".attn.hook_pattern";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return std::nullopt;
  name.remove_prefix(kBefore.size());
  name.remove_suffix(std::min(name.size(), kAfter.size()));
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool good = error == std::errc() && end == name.data() + name.size() && layer >= 0;
  return good && !name.empty() ? std::optional(layer) : std::nullopt;
}

Layers FindTogether(const fs::path& path, const TensorEntry& entry) {
  const std::size_t rank = entry.shape.size();
  if (rank != 4 && rank != 5) {
    Fail("{}: 'attn' is {}, expected [layers,heads,T,T] or [batch,layers,heads,T,T]", path.string(),
         ShapeText(entry));
  }
  CheckExtents(path, entry, "[layers,heads,T,T] or [batch,layers,heads,T,T]");
  Layers found{.batch = rank == 5 ? entry.shape[0] : 1,
               .layers = entry.shape[rank - 4],
               .heads = entry.shape[rank - 3],
               .length = entry.shape[rank - 1],
               .batched = rank == 5,
               .together = true};
  found.tensors.assign(static_cast<std::size_t>(found.layers), &entry);
  return found;
}

Layers FindByLayer(const fs::path& path, const SafetensorsFile& file) {
  std::map<std::int64_t, const TensorEntry*> patterns;
  for (const TensorEntry& entry : file.tensors()) {
    const auto layer = PatternLayer(entry.name);
    if (layer && !patterns.emplace(*layer, &entry).second) {
      Fail("{}: layer {} is there twice, as '{}' and '{}'", path.string(), *layer,
           patterns[*layer]->name, entry.name);
    }
  }
  if (patterns.empty()) {
    Fail(
        "{}: no attention in it; expected a tensor 'attn' [layers,heads,T,T] or tensors "
        "'blocks.0.attn.hook_pattern', ... [batch,heads,T,T]",
        path.string());
  }
  Layers found{.layers = static_cast<std::int64_t>(patterns.size())};
  for (std::int64_t layer = 0; layer < found.layers; ++layer) {
    if (!patterns.contains(layer)) {
      Fail("{}: there are patterns of {} layers, but 'blocks.{}.attn.hook_pattern' is missing",
           path.string(), found.layers, layer);
    }
    const TensorEntry& entry = *patterns[layer];
    const std::size_t rank = entry.shape.size();
    if (rank != 3 && rank != 4) {
      Fail("{}: '{}' is {}, expected [heads,T,T] or [batch,heads,T,T]", path.string(), entry.name,
           ShapeText(entry));
    }
    CheckExtents(path, entry, "[heads,T,T] or [batch,heads,T,T]");
    if (layer > 0 && entry.shape != found.tensors[0]->shape) {
      Fail("{}: '{}' is {}, but layer 0 is {}", path.string(), entry.name, ShapeText(entry),
           ShapeText(*found.tensors[0]));
    }
    found.tensors.push_back(&entry);
    found.batched = rank == 4;
    found.batch = rank == 4 ? entry.shape[0] : 1;
    found.heads = entry.shape[rank - 3];
    found.length = entry.shape[rank - 1];
  }
  return found;
}

// Row b of a JSON array [T] or [B,T].
const Json& RowOf(const Json& list, std::int64_t b, const Layers& layers, const fs::path& path,
                  std::string_view key) {
  const bool nested = list.is_array() && !list.empty() && list[0].is_array();
  if (!list.is_array() || (!nested && layers.batch > 1) ||
      (nested && static_cast<std::int64_t>(list.size()) != layers.batch)) {
    Fail("{}: '{}' must be an array of {} entries{}", path.string(), key, layers.length,
         layers.batch > 1 ? fmt::format(" for each of the {} sequences", layers.batch) : "");
  }
  const Json& row = nested ? list[static_cast<std::size_t>(b)] : list;
  if (!row.is_array() || static_cast<std::int64_t>(row.size()) != layers.length) {
    Fail("{}: '{}' has {} entries, but the maps have {} positions", path.string(), key, row.size(),
         layers.length);
  }
  return row;
}

struct Tokens {
  std::vector<std::vector<std::string>> texts;  // [B][T]
  std::vector<AttentionSequence> sequences;
};

// Tokens that are only known as texts get numbers: equal texts, equal numbers.
Tokens ReadTokens(const fs::path& path, const Layers& layers) {
  Tokens tokens;
  tokens.sequences.assign(static_cast<std::size_t>(layers.batch), {layers.length, {}});
  std::error_code error;
  if (!fs::exists(path, error)) return tokens;
  const Json json = ReadJsonFile(path);
  const bool has_tokens = json.is_object() && json.contains("tokens");
  const bool has_ids = json.is_object() && json.contains("ids");
  if (!has_tokens && !has_ids) {
    Fail("{}: expected an object with 'tokens' (texts) or 'ids' (numbers) of the {} positions",
         path.string(), layers.length);
  }
  std::map<std::string, std::int32_t> numbers;
  for (std::int64_t b = 0; b < layers.batch; ++b) {
    AttentionSequence& sequence = tokens.sequences[static_cast<std::size_t>(b)];
    if (has_tokens) {
      std::vector<std::string>& texts = tokens.texts.emplace_back();
      for (const Json& text : RowOf(json["tokens"], b, layers, path, "tokens")) {
        if (!text.is_string()) Fail("{}: a token is not a text", path.string());
        texts.push_back(text.get<std::string>());
        const auto next = static_cast<std::int32_t>(numbers.size());
        sequence.ids.push_back(numbers.try_emplace(texts.back(), next).first->second);
      }
    }
    if (has_ids) {
      sequence.ids.clear();
      for (const Json& id : RowOf(json["ids"], b, layers, path, "ids")) {
        if (!id.is_number_integer()) Fail("{}: an id is not a whole number", path.string());
        sequence.ids.push_back(id.get<std::int32_t>());
      }
    }
  }
  return tokens;
}

// What rounding to the type can add to the sum of a row: half a unit in the last place of each
// weight, on top of fp32's own softmax.
double RowTolerance(DType dtype) {
  if (dtype == DType::kBF16) return 1e-2;
  return dtype == DType::kF16 ? 2e-3 : 1e-4;
}

}  // namespace

void CheckAttention(const float* weights, std::int64_t heads, std::int64_t length,
                    double row_tolerance, const AttentionPlace& place) {
  std::vector<std::string> complaints(static_cast<std::size_t>(heads));
  ParallelFor(heads, [&](std::int64_t head) {
    const auto complain = [&](std::int64_t query, std::string_view key, std::string_view what) {
      complaints[static_cast<std::size_t>(head)] =
          fmt::format("{}: {}layer {}, head {}, query {}{}: {}", place.source,
                      place.batched ? fmt::format("sequence {}, ", place.sequence) : std::string(),
                      place.layer, head, query, key, what);
    };
    for (std::int64_t query = 0; query < length; ++query) {
      const float* row = weights + (head * length + query) * length;
      double sum = 0.0;
      for (std::int64_t key = 0; key < length; ++key) {
        const float w = row[key];
        const bool good = w >= 0.0f && std::isfinite(w) && (key <= query || w == 0.0f);
        if (!good) {
          return complain(query, fmt::format(", key {}", key),
                          key > query && w > 0.0f
                              ? fmt::format("the weight is {}, but the key is in the future; "
                                            "expected causal attention with 0 there",
                                            w)
                              : fmt::format("the weight is {}, expected a number from 0 to 1", w));
        }
        sum += w;
      }
      if (sum > 1.0 + row_tolerance) {
        return complain(query, "",
                        fmt::format("the weights sum to {:.6g}, expected at most 1; are these "
                                    "scores before the softmax?",
                                    sum));
      }
    }
  });
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) Fail("{}", complaint);
  }
}

AttentionSource AttentionOfFile(const fs::path& path, std::string label) {
  auto file = std::make_shared<const SafetensorsFile>(path);
  const TensorEntry* attn = file->Find("attn");
  const Layers layers = attn != nullptr ? FindTogether(path, *attn) : FindByLayer(path, *file);
  Tokens tokens = ReadTokens(fs::path(path).replace_extension(".json"), layers);

  AttentionSource source{.label = std::move(label),
                         .layers = layers.layers,
                         .heads = layers.heads,
                         .sequences = std::move(tokens.sequences)};
  source.token = [texts = std::move(tokens.texts)](std::size_t s, std::int64_t position) {
    return texts.empty() ? std::to_string(position) : texts[s][static_cast<std::size_t>(position)];
  };
  source.visit = [file, layers, name = path.string()](std::size_t s, const LayerVisitor& visitor) {
    const std::int64_t count = layers.heads * layers.length * layers.length;
    Buffer<float> converted;
    const auto b = static_cast<std::int64_t>(s);
    for (std::int64_t layer = 0; layer < layers.layers; ++layer) {
      const TensorEntry& entry = *layers.tensors[static_cast<std::size_t>(layer)];
      const std::int64_t offset = layers.Offset(b, layer) * DTypeSize(entry.dtype);
      const std::byte* bytes = entry.bytes.data() + offset;
      const float* weights = reinterpret_cast<const float*>(bytes);
      if (entry.dtype != DType::kF32 || !AlignedFor<float>(entry)) {
        if (converted.size() == 0) converted = Buffer<float>(count);
        ConvertToFloat(entry.dtype, bytes, count, converted.data());
        weights = converted.data();
      }
      CheckAttention(weights, layers.heads, layers.length, RowTolerance(entry.dtype),
                     {.source = fmt::format("{}: '{}'", name, entry.name),
                      .layer = layer,
                      .sequence = b,
                      .batched = layers.batched});
      visitor(layer, weights);
    }
  };
  return source;
}

}  // namespace clearhead
