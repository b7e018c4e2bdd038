// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "model/model.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

struct Storage {
  std::vector<SafetensorsFile> files;
  std::vector<Buffer<float>> widened;
};

// Where each tensor is, under its name without prefix.
struct Found {
  const TensorEntry* entry;
  const std::string* file;
};
using Directory = std::unordered_map<std::string, Found>;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The shard files named by an index, each once. Names must be plain: an index must not reach
// outside its folder.
std::vector<std::string> ShardNames(const Json& index, const std::string& source) {
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    Fail("{}: expected an object with a 'weight_map' of tensor names to file names", source);
  }
  std::vector<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) Fail("{}: the file of '{}' is not a string", source, tensor);
    const std::string name = file.get<std::string>();
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      Fail("{}: '{}' is stored in '{}', expected a plain file name", source, tensor, name);
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Every tensor must be in the file the index names.
void CheckIndex(const Json& index, const std::string& source,
                const std::vector<SafetensorsFile>& files, const std::vector<std::string>& names) {
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const auto at = std::find(names.begin(), names.end(), file.get<std::string>()) - names.begin();
    if (files[static_cast<std::size_t>(at)].Find(tensor) == nullptr) {
      Fail("{}: '{}' is not in '{}' as the index says", source, tensor, file.get<std::string>());
    }
  }
}

std::vector<SafetensorsFile> OpenFiles(const fs::path& directory) {
  std::vector<SafetensorsFile> files;
  const fs::path single = directory / "model.safetensors";
  const fs::path index_path = directory / "model.safetensors.index.json";
  if (Exists(single)) {
    files.emplace_back(single);
  } else if (Exists(index_path)) {
    const Json index = ReadJsonFile(index_path, /*max_bytes=*/64 << 20);
    const std::vector<std::string> names = ShardNames(index, index_path.string());
    for (const std::string& name : names) files.emplace_back(directory / name);
    CheckIndex(index, index_path.string(), files, names);
  } else if (Exists(directory / "pytorch_model.bin")) {
    Fail(
        "'{}' holds only pytorch_model.bin, a pickle, which is never opened; save the model in "
        "Python with "
        "model.save_pretrained(folder, safe_serialization=True)",
        directory.string());
  } else {
    Fail("'{}' holds no model: expected model.safetensors or model.safetensors.index.json",
         directory.string());
  }
  return files;
}

// "h.3.attn.bias" and "h.3.attn.masked_bias": the causal mask, stored by older versions.
bool IsMaskBuffer(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

Directory ListTensors(const std::vector<SafetensorsFile>& files) {
  constexpr std::string_view kPrefix = "transformer.";
  Directory directory;
  for (const SafetensorsFile& file : files) {
    for (const TensorEntry& entry : file.tensors()) {
      std::string_view name = entry.name;
      if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
      if (IsMaskBuffer(name)) continue;
      if (!directory.emplace(name, Found{&entry, &file.source()}).second) {
        Fail("{}: the tensor '{}' is stored twice", file.source(), name);
      }
    }
  }
  return directory;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

bool SameShape(const std::vector<std::int64_t>& found, const Shape& expected) {
  if (static_cast<int>(found.size()) != expected.rank()) return false;
  for (int axis = 0; axis < expected.rank(); ++axis) {
    if (found[static_cast<std::size_t>(axis)] != expected[axis]) return false;
  }
  return true;
}

// Takes the tensor out of the directory after checking it.
Found Take(Directory& directory, const ParameterSpec& spec, const fs::path& model) {
  const auto it = directory.find(spec.name);
  if (it == directory.end()) {
    Fail("'{}': the tensor '{}' {} is missing", model.string(), spec.name, ToText(spec.shape));
  }
  const Found found = it->second;
  directory.erase(it);
  if (!SameShape(found.entry->shape, spec.shape)) {
    Fail("{}: '{}' is {}, but config.json says {}", *found.file, spec.name,
         ShapeText(found.entry->shape), ToText(spec.shape));
  }
  if (!IsConvertibleFloat(found.entry->dtype)) {
    Fail("{}: '{}' is stored as {}, expected F32, F16 or BF16", *found.file, spec.name,
         DTypeName(found.entry->dtype));
  }
  return found;
}

// A tied model may carry its output matrix as a copy; then it must be one.
void DropEqualHead(Directory& directory, const ModelConfig& config, const Found& wte,
                   const fs::path& model) {
  if (!config.tied || !directory.contains("lm_head.weight")) return;
  const Found head =
      Take(directory, {"lm_head.weight", {config.vocabulary, config.width}, true}, model);
  if (head.entry->dtype != wte.entry->dtype ||
      std::memcmp(head.entry->bytes.data(), wte.entry->bytes.data(), wte.entry->bytes.size()) !=
          0) {
    Fail(
        "{}: 'lm_head.weight' differs from 'wte.weight', but config.json ties them; set "
        "tie_word_embeddings to false if the model is untied",
        *head.file);
  }
}

}  // namespace

Model LoadModel(const fs::path& directory) {
  Model model;
  model.config = ReadConfig(directory);
  auto storage = std::make_shared<Storage>();
  storage->files = OpenFiles(directory);
  Directory found = ListTensors(storage->files);

  bool first = true;
  VisitParameters(model.config, model.weights, [&](const ParameterSpec& spec, const float*& slot) {
    const Found tensor = Take(found, spec, directory);
    if (first) {  // wte comes first in the table
      DropEqualHead(found, model.config, tensor, directory);
      model.stored_as = tensor.entry->dtype;
      first = false;
    }
    if (tensor.entry->dtype == DType::kF32) model.stored_as = DType::kF32;
    if (tensor.entry->dtype == DType::kF32 && AlignedFor<float>(*tensor.entry)) {
      slot = reinterpret_cast<const float*>(tensor.entry->bytes.data());
    } else {
      Buffer<float>& values = storage->widened.emplace_back(spec.shape.size());
      ConvertToFloat(*tensor.entry, values.data());
      slot = values.data();
    }
  });
  if (!found.empty()) {
    // The smallest name, so that the message does not depend on hashing.
    const auto unknown = std::min_element(
        found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Fail(
        "{}: unknown tensor '{}' {} ({} in all); a GPT-2 of this config.json has none of that name",
        *unknown->second.file, unknown->first, ShapeText(unknown->second.entry->shape),
        found.size());
  }
  model.storage = std::move(storage);
  return model;
}

}  // namespace clearhead
