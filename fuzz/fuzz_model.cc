// SPDX-License-Identifier: MIT
// The first byte chooses: config.json, model.safetensors.index.json of a model whose shards are
// good, fields added to a good config.json of the first family or of another (so that mutations
// reach the checks behind the parser), entries added to a good index, a file of token ids, or
// another project's model file. Input may be refused with Error; a configuration that is accepted
// must come back from what ToJson writes, and a model that loads must have the weights that were
// stored.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/common.h"
#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "model/import.h"
#include "model/model.h"

namespace {

using namespace clearhead;  // NOLINT(google-build-using-namespace): a program, not a library

void Require(bool holds) {
  if (!holds) std::abort();
}

void FuzzConfig(std::string_view text) {
  const ModelConfig config = ParseConfig(ParseJson(text, "config.json"), "config.json");
  Require(config.ParameterCount() > 0);
  Require(config.head_size() > 0 && config.heads % config.kv_heads() == 0);
  Require(config.given_head_size > 0 || config.head_size() * config.heads == config.width);
  const Json written = ToJson(config, "float32");
  const ModelConfig back = ParseConfig(ParseJson(ToText(written), "again"), "again");
  Require(ToJson(back, "float32") == written);
  Require(back.norm_epsilon == config.norm_epsilon);
  Require(back.gate_bias == config.gate_bias || config.attention == AttentionKind::kSoftmax);
}

// A folder with a tiny model in two shards; removed when the program ends.
class Shards {
 public:
  Shards() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fuzz-model-XXXXXX").string();
    Require(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    ModelConfig config;
    config.layers = config.heads = config.width = config.inner = 1;
    config.vocabulary = config.positions = 2;
    const Model model = RandomModel(config, 1);
    SaveModel(model, path_);
    const std::string bytes = ReadFile(path_ / "model.safetensors");
    std::filesystem::remove(path_ / "model.safetensors");
    const SafetensorsFile file =
        SafetensorsFile::FromBytes(std::as_bytes(std::span(bytes)), "model");
    std::vector<TensorToWrite> shards[2];
    for (const TensorEntry& entry : file.tensors()) {
      const std::size_t shard = shards[0].size() < 5 ? 0 : 1;
      shards[shard].push_back(
          {.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .raw = entry.bytes});
      index_ += '"' + entry.name + "\":\"" + (shard == 0 ? "a" : "b") + "\",";
    }
    WriteSafetensors(path_ / "a", shards[0]);
    WriteSafetensors(path_ / "b", shards[1]);
  }
  ~Shards() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  // The good index without its last two braces.
  const std::string& open_index() const { return index_; }

  void Load(std::string_view index) const {
    // Not WriteFile, which waits for the disk.
    const std::filesystem::path file = path_ / "model.safetensors.index.json";
    std::FILE* stream = std::fopen(file.c_str(), "w");
    Require(stream != nullptr &&
            std::fwrite(index.data(), 1, index.size(), stream) == index.size());
    Require(std::fclose(stream) == 0);
    const Model model = LoadModel(path_);
    Require(model.weights.blocks.size() == 1 &&
            model.weights(Role::kFinalNormWeight).f32()[0] == 1.0f);
  }

 private:
  std::filesystem::path path_;
  std::string index_ = R"({"weight_map":{)";
};

void FuzzImport(const std::filesystem::path& file, std::string_view bytes) {
  std::FILE* stream = std::fopen(file.c_str(), "w");
  Require(stream != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), stream) == bytes.size());
  Require(std::fclose(stream) == 0);
  const Model model = ImportModel(file);
  // Q8_0 has a byte and a sixteenth for each value.
  Require(static_cast<std::size_t>(model.config.ParameterCount()) < bytes.size());
}

void FuzzIds(std::string_view text) {
  const cli::InputTokens tokens = cli::ParseTokenRows(ParseJson(text, "ids"), "ids");
  Require(tokens.batch > 0 && !tokens.ids.empty());
  Require(static_cast<std::int64_t>(tokens.ids.size()) % tokens.batch == 0);
  for (const std::int32_t id : tokens.ids) Require(id >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Shards shards;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::string_view kGood =
      R"("n_layer":2,"n_head":2,"n_embd":4,"vocab_size":9,"n_positions":8)";
  constexpr std::string_view kOther =
      R"("num_hidden_layers":2,"num_attention_heads":4,"hidden_size":8,"vocab_size":9,)"
      R"("max_position_embeddings":8,"intermediate_size":6,"num_key_value_heads":2)";
  try {
    switch (data[0] % 7) {
      case 0:
        FuzzConfig(input);
        break;
      case 1:
        shards.Load(input);
        break;
      case 2:
        FuzzConfig(fmt::format("{{{},{}}}", kGood, input));
        break;
      case 3:
        shards.Load(fmt::format("{}{}}}}}", shards.open_index(), input));
        break;
      case 4:
        FuzzIds(input);
        break;
      case 5:
        FuzzConfig(fmt::format("{{{},{}}}", kOther, input));
        break;
      default:
        FuzzImport(shards.path() / "foreign.bin", input);
    }
  } catch (const Error&) {
  }
  return 0;
}
