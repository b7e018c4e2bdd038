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
#include "model/family.h"
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

Directory ListTensors(const std::vector<SafetensorsFile>& files, const Family& family) {
  Directory directory;
  for (const SafetensorsFile& file : files) {
    for (const TensorEntry& entry : file.tensors()) {
      std::string_view name = entry.name;
      if (name.starts_with(family.prefix)) name.remove_prefix(family.prefix.size());
      if (family.ignores(name)) continue;
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
void DropEqualOutput(Directory& directory, const ModelConfig& config, const Found& embedding,
                     const std::string& embedding_name, const fs::path& model) {
  constexpr const char* kOutputName = "lm_head.weight";
  if (!config.tied || !directory.contains(kOutputName)) return;
  const Found output =
      Take(directory, {kOutputName, {config.vocabulary, config.width}, Role::kOutput}, model);
  if (output.entry->dtype != embedding.entry->dtype ||
      std::memcmp(output.entry->bytes.data(), embedding.entry->bytes.data(),
                  embedding.entry->bytes.size()) != 0) {
    Fail(
        "{}: '{}' differs from '{}', but config.json ties them; set tie_word_embeddings to false "
        "if the model is untied",
        *output.file, kOutputName, embedding_name);
  }
}

}  // namespace

Model LoadModel(const fs::path& directory, std::int64_t widen_up_to) {
  Model model;
  model.config = ReadConfig(directory);
  const Family& family = FamilyOf(model.config);
  auto storage = std::make_shared<Storage>();
  storage->files = OpenFiles(directory);
  Directory found = ListTensors(storage->files, family);
  const bool widen_matrices = model.config.ParameterCount() <= widen_up_to;

  bool first = true;
  VisitParameters(model.config, model.weights, [&](const ParameterSpec& spec, Weight& slot) {
    const Found tensor = Take(found, spec, directory);
    if (spec.role == Role::kTokenEmbedding) {
      DropEqualOutput(found, model.config, tensor, spec.name, directory);
    }
    const DType dtype = tensor.entry->dtype;
    if (first || dtype == DType::kF32) model.stored_as = dtype;
    first = false;
    const bool as_mapped = dtype == DType::kF32 ? AlignedFor<float>(*tensor.entry)
                                                : spec.shape.rank() == 2 && !widen_matrices;
    if (as_mapped) {
      slot = Weight(tensor.entry->bytes.data(), dtype);
    } else {
      Buffer<float>& values = storage->widened.emplace_back(spec.shape.size());
      ConvertToFloat(*tensor.entry, values.data());
      slot = Weight(values.data());
    }
  });
  if (!found.empty()) {
    // The smallest name, so that the message does not depend on hashing.
    const auto unknown = std::min_element(
        found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Fail("{}: unknown tensor '{}' {} ({} in all); a {} of this config.json has none of that name",
         *unknown->second.file, unknown->first, ShapeText(unknown->second.entry->shape),
         found.size(), family.model_type);
  }
  model.storage = std::move(storage);
  return model;
}

}  // namespace clearhead
