// SPDX-License-Identifier: MIT
#include "use/convert.h"

#include <limits>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "model/import.h"
#include "model/save.h"
#include "use/gguf_tokenizer.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTokenizerFile = "tokenizer.bin";  // llama2.c's

// What a Hugging Face folder has beside config and weights that belongs to the model.
constexpr std::string_view kCompanions[] = {"vocab.json",
                                            "merges.txt",
                                            "tokenizer.json",
                                            "tokenizer_config.json",
                                            "tokenizer.model",
                                            "tokenizer.bin",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "generation_config.json",
                                            kTokenizerFile};

}  // namespace

Conversion ConvertModel(const fs::path& from, const fs::path& to, DType dtype,
                        const fs::path& tokenizer) {
  std::error_code error;
  for (const char* name : {"config.json", "model.safetensors"}) {
    if (fs::exists(to / name, error)) {
      Fail("'{}' holds a model already; choose another folder, or remove it", to.string());
    }
  }
  const bool foreign = fs::is_regular_file(from, error);
  const Model model =
      foreign ? ImportModel(from) : LoadModel(from, std::numeric_limits<std::int64_t>::max());
  Json config =
      foreign ? ToJson(model.config, ConfigName(dtype)) : ReadJsonFile(from / "config.json");
  config.erase("torch_dtype");  // the older name of the field
  config["dtype"] = ConfigName(dtype);

  Conversion conversion{.from = model.stored_as, .parameters = model.config.ParameterCount()};
  MakeDirectory(to);
  SaveWeights(model, to / "model.safetensors", dtype);
  conversion.bytes = fs::file_size(to / "model.safetensors");
  conversion.files.emplace_back("model.safetensors");
  const std::optional<std::string> inside =
      foreign && tokenizer.empty() ? TokenizerInside(from) : std::nullopt;
  if (!tokenizer.empty() || inside) {
    WriteFile(to / kTokenizerFile, inside ? *inside : ReadFile(tokenizer));
    conversion.files.emplace_back(kTokenizerFile);
  }
  for (const std::string_view name : kCompanions) {
    if (foreign || !fs::exists(from / name, error)) continue;
    WriteFile(to / name, ReadFile(from / name));
    conversion.files.emplace_back(name);
  }
  // Last: a folder with config.json counts as a model.
  WriteJsonFile(to / "config.json", config);
  conversion.files.emplace_back("config.json");
  return conversion;
}

}  // namespace clearhead
