// SPDX-License-Identifier: MIT
// What all commands share: options, finding models, printing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/ranks.h"
#include "core/json.h"
#include "core/threads.h"
#include "model/pass.h"
#include "text/tokenizer.h"

namespace clearhead::cli {

struct CommonOptions {
  bool json = false;
  int threads = 0;  // 0: all cores
  std::uint64_t seed = 0;
};

// Who runs a command when there are several ranks: those that share its work, or the first.
enum class RunsOn { kFirstRank, kAllRanks };

// Adds a command. `example` is shown at the end of its help. The command gets --json, --threads,
// --seed; `run` is called after parsing, with a pool of that many threads.
template <typename Options>
Command* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                    const std::string& example, std::shared_ptr<Options> options,
                    void (*run)(const Options&), RunsOn where = RunsOn::kFirstRank);

namespace internal {
std::shared_ptr<Command> AddCommand(CLI::App& app, const std::string& name,
                                    const std::string& description, const std::string& example,
                                    CommonOptions* common);
// Null: a command inside a command that names no number uses the outer one's pool.
std::unique_ptr<ThreadPool> MakePool(const CommonOptions& common);
}  // namespace internal

template <typename Options>
Command* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                    const std::string& example, std::shared_ptr<Options> options,
                    void (*run)(const Options&), RunsOn where) {
  const std::shared_ptr<Command> command =
      internal::AddCommand(app, name, description, example, &options->common);
  // The callback keeps what parsing fills.
  command->callback([command, options, run, where] {
    if (where == RunsOn::kFirstRank && !Ranks().first()) return;
    std::optional<AloneScope> alone;
    if (where == RunsOn::kFirstRank && !Ranks().alone()) alone.emplace();
    const std::unique_ptr<ThreadPool> pool = internal::MakePool(options->common);
    const ThreadScope scope(pool ? pool.get() : CurrentPool());
    run(*options);
  });
  return command.get();
}

// MODEL on the command line: a folder, or the name of a model that ships with the program.
std::filesystem::path FindModel(const std::string& name);

// FEATURES on the command line: a folder, or the name of features that ship with the program.
std::filesystem::path FindFeatures(const std::string& name);

// Names of the models that ship, for help and messages.
std::vector<std::string> ShippedModels();

// One JSON document on stdout.
void PrintJson(const Json& json);
// Text on stdout, from the first rank, or to whoever the command works for (core/host.h). Throws
// Error if stdout cannot take it (a full disk, say).
void Print(std::string_view text);

// The three ways to give tokens to a command: exactly one must be used.
struct InputOptions {
  std::string prompt;
  std::string ids;       // "15496,995"
  std::string ids_file;  // JSON array of arrays of one length
  Option* prompt_option = nullptr;
  Option* ids_option = nullptr;
  Option* ids_file_option = nullptr;

  void Add(Command* command);
};

struct InputTokens {
  std::vector<std::int32_t> ids;  // [batch, length]
  std::int64_t batch = 1;
};
// [[15496,995],[11,314]]: rows of one length. `source` names the file in messages.
InputTokens ParseTokenRows(const Json& json, std::string_view source);
InputTokens ReadInput(const InputOptions& input, const std::filesystem::path& model);

std::vector<std::int32_t> ParseIds(const std::string& list);

}  // namespace clearhead::cli
