// SPDX-License-Identifier: MIT
// clearhead generate MODEL --prompt S: continue a text, printing it as it comes.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/feature_options.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "features/feature_run.h"
#include "model/packed_weights.h"
#include "model/run.h"
#include "text/utf8.h"
#include "use/generate.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  GateFlags gates;
  FeatureFlags features;
  std::string model, prompt, ids;
  Option *prompt_option = nullptr, *ids_option = nullptr;
  GenerateOptions generate;
};

void Run(const Options& options) {
  if (options.prompt_option->count() + options.ids_option->count() != 1) {
    FailUsage("give exactly one of --prompt and --ids");
  }
  const bool from_ids = options.ids_option->count() > 0;
  const std::filesystem::path path = FindModel(options.model);
  Model model = LoadModel(path);
  PackForUse(&model);
  // With --ids a model without tokenizer can be run; then ids are printed.
  std::optional<Tokenizer> tokenizer;
  if (!from_ids) tokenizer = Tokenizer::Load(path);

  GenerateOptions generate = options.generate;
  generate.seed = options.common.seed;
  generate.stop_tokens = model.config.end_of_text;
  generate.gates = options.gates.Resolve(model.config, options.common.seed);
  generate.gates.sum_probabilities = false;

  const std::optional<Transcoder> features = options.features.Load(model);
  std::optional<FeatureRun> changed;
  if (features && options.features.changes.empty()) {
    FailUsage("--features alone changes nothing; say what to change with --feature");
  }
  if (features) {
    generate.hooks = &changed.emplace(
        model, *features,
        FeatureRunOptions{.interventions = options.features.Interventions(*features),
                          .keep_active = false,
                          .continues = true});
  }

  std::vector<std::int32_t> prompt =
      from_ids ? ParseIds(options.ids) : tokenizer->EncodePrompt(options.prompt);
  // An empty prompt starts where texts do: at their beginning, or at the end of the one before.
  if (prompt.empty() && model.config.begin_of_text) {
    prompt.push_back(*model.config.begin_of_text);
  } else if (prompt.empty() && !model.config.end_of_text.empty()) {
    prompt.push_back(model.config.end_of_text.front());
  }

  // Before the prompt is printed: what fails prints nothing but its message.
  CheckTokens(model.config, prompt, 1, static_cast<std::int64_t>(prompt.size()));

  const bool stream = !options.common.json;
  if (stream && tokenizer) Print(options.prompt);
  const auto on_token = [&](std::int32_t id) {
    if (!stream) return true;
    // Embeddings beyond the tokenizer's tokens (padding) have no text.
    if (tokenizer && id < tokenizer->vocabulary_size()) {
      Print(tokenizer->TokenBytes(id));
    } else {
      Print(fmt::format(" {}", id));
    }
    return true;
  };
  const Generation result = Generate(model, prompt, generate, on_token);
  if (stream) return Print("\n");
  Json json = {{"ids", result.ids},
               {"new_tokens", result.new_tokens},
               {"prompt_seconds", result.prompt_seconds},
               {"decode_seconds", result.decode_seconds}};
  if (result.new_tokens > 1 && result.decode_seconds > 0) {
    json["tokens_per_second"] = static_cast<double>(result.new_tokens - 1) / result.decode_seconds;
  }
  if (tokenizer) {
    std::string text;
    for (const std::int32_t id : result.ids) {
      if (id < tokenizer->vocabulary_size()) text += tokenizer->TokenBytes(id);
    }
    json["text"] = ToValidUtf8(text);
  }
  PrintJson(json);
}

}  // namespace

void AddGenerate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command =
      AddCommand(app, "generate", "Continue a text, token by token",
                 "clearhead generate gpt2 --prompt 'Once upon a time' --max-new 40", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  options->prompt_option = command->add_option("--prompt", options->prompt, "Text to continue");
  options->ids_option =
      command->add_option("--ids", options->ids, "Token ids instead of text: 15496,995");
  command->add_option("--max-new", options->generate.max_new, "New tokens at most (default: 64)")
      ->check(Range(std::int64_t{0}, std::int64_t{1} << 24));
  command
      ->add_option("--temperature", options->generate.temperature,
                   "0 = always the most likely token (default), 1 = the model's own distribution")
      ->check(NonNegativeNumber())
      ->check(Range(0.0, 100.0));
  command
      ->add_option("--top-k", options->generate.top_k,
                   "Draw from the K most likely only (default: all)")
      ->check(PositiveNumber());
  options->features.Add(command, "Features of the model, to change some with --feature");
  options->gates.Add(command, /*with_weight=*/false);
}

}  // namespace clearhead::cli
