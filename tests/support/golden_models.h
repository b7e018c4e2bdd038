// SPDX-License-Identifier: MIT
// The golden GPT-2 checkpoints: their cases and how to run them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "use/record.h"

namespace clearhead {

inline std::filesystem::path GoldenFolder() {
  return std::filesystem::path(CLEARHEAD_TEST_DATA) / "golden";
}
// GPT-2's are named plainly ("a"), those of Llama and its relatives "llama/qwen3".
inline std::filesystem::path GoldenModel(const std::string& name) {
  constexpr std::string_view kLlama = "llama/";
  if (!name.starts_with(kLlama)) return GoldenFolder() / "models" / name;
  return GoldenFolder() / "llama/models" / name.substr(kLlama.size());
}
inline std::vector<std::string> GoldenModelNames() {
  auto names =
      ReadJsonFile(GoldenFolder() / "models/index.json")["models"].get<std::vector<std::string>>();
  const Json llama = ReadJsonFile(GoldenFolder() / "llama/models/index.json");
  for (const Json& model : llama["models"]) {
    names.push_back("llama/" + model["name"].get<std::string>());
  }
  return names;
}

struct GoldenCase {
  std::string name;
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> ids;
  double loss = 0.0;
  bool has_grads = false;
  std::filesystem::path tensors;
};

inline std::vector<std::int32_t> Flatten(const Json& rows) {
  std::vector<std::int32_t> ids;
  for (const Json& row : rows) {
    for (const Json& id : row) ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

inline std::vector<GoldenCase> GoldenCases(const std::filesystem::path& folder) {
  std::vector<GoldenCase> cases;
  const Json golden = ReadJsonFile(folder / "golden.json");
  for (const Json& json : golden["cases"]) {
    GoldenCase c;
    c.ids = Flatten(json["input_ids"]);
    c.batch = static_cast<std::int64_t>(json["input_ids"].size());
    c.length = static_cast<std::int64_t>(c.ids.size()) / c.batch;
    c.name = json.value("name", "");
    c.loss = json["loss"].is_null() ? 0.0 : json["loss"].get<double>();
    c.has_grads = json["has_grads"].get<bool>();
    c.tensors = folder / json["tensors"].get<std::string>();
    cases.push_back(c);
  }
  return cases;
}

// What `clearhead capture` would write, read back.
inline std::map<std::string, GoldenTensor> RunCapture(const Model& model,
                                                      const std::vector<std::int32_t>& ids,
                                                      std::int64_t batch,
                                                      const RecordOptions& options) {
  const TemporaryFolder folder;
  WriteRecording(Record(model, ids, batch, options), folder / "run.safetensors");
  return ReadGolden(folder / "run.safetensors");
}

}  // namespace clearhead
