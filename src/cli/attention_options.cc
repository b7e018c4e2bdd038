// SPDX-License-Identifier: MIT
#include "cli/attention_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/numbers.h"
#include "core/error.h"
#include "heads/head_list.h"
#include "heads/head_report.h"
#include "model/packed_weights.h"
#include "tasks/task_items.h"
#include "text/token_stream.h"

namespace clearhead::cli {
namespace fs = std::filesystem;
namespace {

using Sequences = std::vector<std::vector<std::int32_t>>;

// Windows of `context` tokens, one after another; the last may be shorter.
Sequences Windows(const std::vector<std::int32_t>& ids, std::int64_t context, std::int64_t limit) {
  Sequences windows;
  auto count = static_cast<std::int64_t>(ids.size());
  if (limit > 0) count = std::min(count, limit);
  for (std::int64_t first = 0; first < count; first += context) {
    windows.emplace_back(ids.begin() + first, ids.begin() + std::min(first + context, count));
  }
  return windows;
}

Sequences ReadSequences(const AttentionOptions& options, const fs::path& path,
                        const ModelConfig& config, std::uint64_t seed) {
  if (options.task_option->count() > 0) {
    const TaskSet set = MakeTaskSet(ParseTask(options.task), Tokenizer::Load(path),
                                    {.count = options.items, .seed = seed});
    Sequences prompts;
    for (const TaskItem& item : set.items) prompts.push_back(item.clean);
    return prompts;
  }
  if (options.text_option->count() > 0) {
    if (options.context > config.positions) {
      Fail("--context {}: the model has {} positions", options.context, config.positions);
    }
    const std::vector<std::int32_t> ids = EncodeDocument(Tokenizer::Load(path), options.text);
    if (ids.empty()) Fail("{}: no tokens in it", options.text);
    return Windows(ids, options.context > 0 ? options.context : config.positions, options.tokens);
  }
  const InputTokens tokens = ReadInput(options.input, path);
  if (tokens.ids.empty()) Fail("the input has no tokens; give at least one");
  return Windows(tokens.ids, static_cast<std::int64_t>(tokens.ids.size()) / tokens.batch, 0);
}

// Texts of tokens need the tokenizer; with --ids a model may come without one.
std::function<std::string(std::int32_t)> TokenTexts(const fs::path& path) {
  if (!HasTokenizer(path)) return {};
  return [tokenizer = Tokenizer::Load(path)](std::int32_t id) {
    return id < tokenizer.vocabulary_size() ? tokenizer.TokenText(id) : std::to_string(id);
  };
}

void CheckCounts(const AttentionOptions& options, std::size_t most) {
  const std::size_t sources = options.models.size() + options.files.size();
  if (sources == 0) {
    FailUsage("give a MODEL and an input for it, or --attention F.safetensors");
  }
  if (sources > most) FailUsage("{} models and files were given, at most {} fit", sources, most);
  const auto inputs = options.input.prompt_option->count() + options.input.ids_option->count() +
                      options.input.ids_file_option->count() + options.text_option->count() +
                      options.task_option->count();
  if (options.models.empty() && inputs > 0) {
    FailUsage("--attention files have their own input; name a MODEL to run it on another");
  }
  if (!options.models.empty() && inputs != 1) {
    FailUsage("give exactly one of --prompt, --ids, --ids-file, --text and --task");
  }
  if (options.labels.size() > sources) {
    FailUsage("there are {} labels for {} models and files", options.labels.size(), sources);
  }
}

// The name of the folder or file, without the rest of the path.
std::string NameOf(const fs::path& path) { return fs::weakly_canonical(path).filename().string(); }

}  // namespace

void AttentionOptions::Add(Command* command) {
  command->add_option("MODEL", models, "Folders or names of models");
  command
      ->add_option("--attention", files,
                   "Attention from a file instead of a model: tensor attn [L,H,T,T] or "
                   "[B,L,H,T,T], or TransformerLens's names; tokens in F.json beside it")
      ->allow_extra_args(false);
  command->add_option("--label", labels, "Title of each model, in order (default: its name)")
      ->allow_extra_args(false);
  input.Add(command);
  text_option = command->add_option("--text", text, "Run on a text, window by window");
  command
      ->add_option("--context", context,
                   "Window length for --text (default: the model's positions)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--tokens", tokens, "With --text: stop after this many (default: all)")
      ->check(PositiveNumber());
  task_option = command->add_option("--task", task,
                                    "Run on prompts of a task, e.g. ioi (see clearhead tasks)");
  command->add_option("--items", items, "With --task: number of prompts (default: 20)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 20));
  gates.Add(command, /*with_weight=*/false);
}

void HeadFigureOptions::Add(Command* command, const std::string& heads_default) {
  command->add_option("--out", out, "Figure to write: .png, .svg or .pdf")->required();
  command
      ->add_option("--heads", heads,
                   fmt::format("all | L0H1,5.1,a5.h1 | top:N | circuit:FILE; once, or once for "
                               "each model (default: {})",
                               heads_default))
      ->allow_extra_args(false);
  command
      ->add_option("--sequence", sequence, "Which sequence of a batch or text to draw (default: 0)")
      ->check(NonNegativeNumber());
}

std::vector<OpenedSource> OpenSources(const AttentionOptions& options, std::uint64_t seed,
                                      std::size_t most) {
  CheckCounts(options, most);
  std::vector<OpenedSource> sources;
  const auto label = [&](const std::string& name) {
    return sources.size() < options.labels.size() ? options.labels[sources.size()] : name;
  };
  std::vector<Model> models;
  std::vector<fs::path> paths;
  for (const std::string& name : options.models) {
    paths.push_back(FindModel(name));
    models.push_back(LoadModel(paths.back()));
    if (!options.text.empty()) PackForUse(&models.back());
  }
  // Gate flags are for the gated ones among the models; it is an error if none is.
  const bool any_gated = std::any_of(models.begin(), models.end(), [](const Model& model) {
    return model.config.attention == AttentionKind::kGated;
  });
  for (std::size_t m = 0; m < models.size(); ++m) {
    const bool gated = models[m].config.attention == AttentionKind::kGated;
    const GateRun gates =
        gated || !any_gated ? options.gates.Resolve(models[m].config, seed) : GateRun{};
    sources.push_back({AttentionOfModel(models[m], gates, label(NameOf(paths[m])),
                                        ReadSequences(options, paths[m], models[m].config, seed),
                                        TokenTexts(paths[m])),
                       models[m]});
  }
  for (const std::string& file : options.files) {
    sources.push_back({AttentionOfFile(file, label(fs::path(file).stem().string())), {}});
  }
  return sources;
}

const std::string& ForSource(const std::vector<std::string>& values, std::size_t source,
                             std::size_t sources, const char* option) {
  if (values.size() != 1 && values.size() != sources) {
    FailUsage("{} is given {} times for {} models and files; give it once, or once for each",
              option, values.size(), sources);
  }
  return values[values.size() == 1 ? 0 : source];
}

std::vector<HeadId> ChooseHeads(const AttentionSource& source, const std::string& list) {
  return ParseHeadList(list, source.layers, source.heads,
                       [&] { return ByImportance(AnalyseHeads(OneSequence(source, 0))); });
}

void CheckSequence(const std::vector<OpenedSource>& sources, std::size_t sequence) {
  for (const OpenedSource& source : sources) {
    if (sequence >= source.attention.sequences.size()) {
      Fail("--sequence {}: '{}' has {} sequences, numbered from 0", sequence,
           source.attention.label, source.attention.sequences.size());
    }
  }
}

}  // namespace clearhead::cli
