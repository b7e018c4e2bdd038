// SPDX-License-Identifier: MIT
#include "cli/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/numbers.h"
#include "core/error.h"
#include "core/host.h"

namespace clearhead::cli {
namespace fs = std::filesystem;

namespace internal {

std::shared_ptr<Command> AddCommand(CLI::App& app, const std::string& name,
                                    const std::string& description, const std::string& example,
                                    CommonOptions* common) {
  std::shared_ptr<Command> command = AddSubcommand(app, name, description);
  command->footer("Example:\n  " + example);
  command->add_flag("--json", common->json,
                    "Print one JSON document on stdout and nothing else there");
  command
      ->add_option("--threads", common->threads,
                   "Threads to use (default: all cores, shared with other ranks)")
      ->check(Range(1, 4096));
  command->add_option("--seed", common->seed, "Seed of everything random (default: 0)")
      ->check(WholeNumber());
  return command;
}

std::unique_ptr<ThreadPool> MakePool(const CommonOptions& common) {
  if (common.threads == 0 && CurrentPool() != nullptr) return nullptr;
  // Ranks that are not bound to cores of their own share those of their machine.
  const int cores = std::max(1, AvailableCores() / Ranks().ranks_on_these_cores());
  return std::make_unique<ThreadPool>(common.threads > 0 ? common.threads : cores);
}

}  // namespace internal

namespace {

// The file that this code is in: the program, the library, or the Python module. The kernel knows
// it by its whole path; the loader only as it was asked for, perhaps from another folder.
fs::path OwnFile() {
  std::ifstream maps("/proc/self/maps");
  const auto here = reinterpret_cast<std::uintptr_t>(&FindModel);
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, last = 0;
    const char* end = line.data() + line.size();
    const auto [dash, error] = std::from_chars(line.data(), end, first, 16);
    if (error != std::errc() || dash == end) continue;
    std::from_chars(dash + 1, end, last, 16);
    const std::size_t path = line.find('/');
    if (here >= first && here < last && path != std::string::npos) return line.substr(path);
  }
  return {};
}

// Folders that may hold models known by name, shipped ones and those of scripts/fetch-models:
// beside the sources of a build, beside an installed program or library, here.
std::vector<fs::path> ModelFolders() {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv("CLEARHEAD_MODELS"); named != nullptr)
    folders.emplace_back(named);
  if (const fs::path own = OwnFile().parent_path(); !own.empty()) {
    for (const char* place : {
             "../share/clearhead/models",     // bin, lib
             "../../share/clearhead/models",  // lib/<architecture>
             "models",                        // inside a Python package
             "../../../models",               // build/<preset>/bin
             "../../../models-cache",
             "../../../../models",  // build/<preset>/python/clearhead
         }) {
      folders.push_back(own / place);
    }
  }
  folders.emplace_back("models");
  folders.emplace_back("models-cache");
  return folders;
}

bool IsModel(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / "config.json", error);
}

bool IsFeatures(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / "config.yaml", error) || fs::exists(path / "clt_cfg.json", error);
}

// A name is not a path: nothing outside the folders of models can be reached with it.
bool IsName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

}  // namespace

std::vector<std::string> ShippedModels() {
  std::vector<std::string> names;
  for (const fs::path& folder : ModelFolders()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (IsModel(entry.path())) names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

fs::path FindModel(const std::string& name) {
  if (IsModel(name)) return name;
  if (IsName(name)) {
    for (const fs::path& folder : ModelFolders()) {
      if (IsModel(folder / name)) return fs::weakly_canonical(folder / name);
    }
  }
  // A folder of that name without a model hides no model that ships; whoever reads it says what is
  // missing there.
  std::error_code error;
  if (fs::is_directory(name, error)) return name;
  if (fs::exists(name, error)) {
    Fail("'{}' is a file; a model is a folder with config.json and model.safetensors", name);
  }
  const std::vector<std::string> shipped = ShippedModels();
  Fail("there is no model '{}': no such folder{}", name,
       shipped.empty()
           ? std::string(", and no models ship with this build")
           : fmt::format(", and the models that ship are {}", fmt::join(shipped, ", ")));
}

fs::path FindFeatures(const std::string& name) {
  if (IsFeatures(name)) return name;
  if (IsName(name)) {
    for (const fs::path& folder : ModelFolders()) {
      if (IsFeatures(folder / name)) return fs::weakly_canonical(folder / name);
    }
  }
  return name;  // whoever reads it says what is missing there
}

void Print(std::string_view text) {
  if (const Host* host = CurrentHost(); host != nullptr && host->print) return host->print(text);
  if (!Ranks().first()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    Fail("cannot write to standard output");
  }
}

void PrintJson(const Json& json) { Print(ToText(json) + "\n"); }

void InputOptions::Add(Command* command) {
  prompt_option = command->add_option("--prompt", prompt, "Text to run the model on");
  ids_option = command->add_option("--ids", ids, "Token ids instead of text: 15496,995");
  ids_file_option = command->add_option(
      "--ids-file", ids_file, "JSON file with an array of arrays of token ids, all of one length");
}

std::vector<std::int32_t> ParseIds(const std::string& list) {
  std::vector<std::int32_t> ids;
  const char* at = list.data();
  const char* end = at + list.size();
  while (true) {
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ',')) {
      FailUsage("'{}' is not a list of token ids such as 15496,995", list);
    }
    ids.push_back(id);
    if (next == end) return ids;
    at = next + 1;
  }
}

InputTokens ParseTokenRows(const Json& json, std::string_view source) {
  const auto fail = [&](std::string_view what) {
    Fail("{}: {}; expected a JSON array of arrays of token ids, all of one length", source, what);
  };
  if (!json.is_array() || json.empty()) fail("not an array with at least one row");
  InputTokens tokens{.batch = static_cast<std::int64_t>(json.size())};
  for (const Json& row : json) {
    if (!row.is_array() || row.empty()) fail("a row is not an array with at least one id");
    if (row.size() != json[0].size()) {
      fail(fmt::format("one row has {} ids, the first has {}", row.size(), json[0].size()));
    }
    for (const Json& id : row) {
      if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > 2147483647.0) {
        fail(fmt::format("{} is not a token id", ToText(id, -1)));
      }
      tokens.ids.push_back(id.get<std::int32_t>());
    }
  }
  return tokens;
}

InputTokens ReadInput(const InputOptions& input, const fs::path& model) {
  const auto given =
      input.prompt_option->count() + input.ids_option->count() + input.ids_file_option->count();
  if (given != 1) FailUsage("give exactly one of --prompt, --ids and --ids-file");
  if (input.ids_file_option->count() > 0) {
    return ParseTokenRows(ReadJsonFile(input.ids_file), input.ids_file);
  }
  if (input.ids_option->count() > 0) return {ParseIds(input.ids), 1};
  return {Tokenizer::Load(model).EncodePrompt(input.prompt), 1};
}

}  // namespace clearhead::cli
