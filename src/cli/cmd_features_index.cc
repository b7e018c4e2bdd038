// SPDX-License-Identifier: MIT
// clearhead features index MODEL FEATURES --text F: what every feature is, from one run over a
// text; judging the labels of an index; handing it on in other programs' files.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "core/progress.h"
#include "features/build_index.h"
#include "features/feature_card.h"
#include "features/feature_export.h"
#include "features/label_check.h"
#include "features/transcoder_files.h"
#include "model/packed_weights.h"
#include "text/token_stream.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string model, features, out, export_to;
  std::vector<std::string> texts, unquoted;
  std::int64_t context = 0, tokens = 0, check = 0, memory = 1024;
  bool resume = false;
};

// The texts, those that are not to be quoted last.
std::vector<std::int32_t> ReadTexts(const Options& o, const Tokenizer& tokenizer, bool unquoted) {
  std::vector<fs::path> paths(o.texts.begin(), o.texts.end());
  if (unquoted) paths.insert(paths.end(), o.unquoted.begin(), o.unquoted.end());
  return EncodeFiles(tokenizer, paths);
}

std::string SummaryLine(const char* what, const LabelCheckSummary& summary) {
  return summary.seen == 0
             ? fmt::format("  {:<28} {:>4} features, no label occurs\n", what, summary.features)
             : fmt::format("  {:<28} {:>4} features, {:>4} with a label that occurs: {:>5.1f} %\n",
                           what, summary.features, summary.seen, 100.0 * summary.share);
}

void Check(const Options& o, const Model& model, const Transcoder& transcoder,
           const Tokenizer& tokenizer, const fs::path& folder) {
  if (o.texts.empty()) FailUsage("--check needs --text: a text that had no part in the index");
  const FeatureIndex index(folder);
  std::optional<Progress> bar;
  const LabelCheck check = CheckLabels(model, transcoder, index, ReadTexts(o, tokenizer, false),
                                       {.features = o.check,
                                        .seed = o.common.seed,
                                        .context = o.context,
                                        .max_tokens = o.tokens,
                                        .progress =
                                            [&](std::int64_t done, std::int64_t total) {
                                              if (!bar) {
                                                bar.emplace("check", total, "tok", RankProgress());
                                              }
                                              bar->Update(done);
                                            },
                                        .ranks = &Ranks()});
  bar.reset();
  if (o.common.json) return PrintJson(ToJson(tokenizer, check));
  std::string text = fmt::format(
      "{} features drawn at random (seed {}; {} silent ones passed over), {} tokens\n"
      "labels make their feature fire on {:.1f} % of their places (mean over the {} features "
      "whose label occurs; {} of {} places in all, {:.1f} %); {} labels do not occur\n",
      check.all.features, o.common.seed, check.silent, check.tokens, 100.0 * check.all.share,
      check.all.seen, check.fired, check.places,
      check.places == 0
          ? 0.0
          : 100.0 * static_cast<double>(check.fired) / static_cast<double>(check.places),
      check.all.features - check.all.seen);
  text += SummaryLine("labels that fire reliably",
                      check.kinds[static_cast<std::size_t>(LabelKind::kFires)]);
  text += SummaryLine("labels that fire sometimes",
                      check.kinds[static_cast<std::size_t>(LabelKind::kSometimes)]);
  text += SummaryLine("commonest token alone",
                      check.kinds[static_cast<std::size_t>(LabelKind::kMostly)]);
  for (std::size_t l = 0; l < check.layers.size(); ++l) {
    text += SummaryLine(fmt::format("layer {}", l).c_str(), check.layers[l]);
  }
  Print(text);
}

Json Build(const Options& o, const Model& model, const Transcoder& transcoder,
           const Tokenizer& tokenizer, const fs::path& folder) {
  const std::vector<std::int32_t> tokens = ReadTexts(o, tokenizer, true);
  const std::size_t quotable =
      o.unquoted.empty() ? tokens.size() : ReadTexts(o, tokenizer, false).size();
  InterruptGuard interrupt;
  std::optional<Progress> bar;
  const BuiltIndex built = BuildIndex(model, transcoder, tokens,
                                      {.context = o.context,
                                       .max_tokens = o.tokens,
                                       .quotable = static_cast<std::int64_t>(quotable),
                                       .vocabulary = tokenizer.vocabulary_size(),
                                       .memory = o.memory << 20,
                                       .resume = o.resume,
                                       .progress =
                                           [&](std::int64_t done, std::int64_t total) {
                                             if (!bar)
                                               bar.emplace("index", total, "tok", RankProgress());
                                             bar->Update(done);
                                           },
                                       .should_stop = [&] { return interrupt.requested(); },
                                       .ranks = &Ranks()},
                                      folder);
  bar.reset();
  if (!built.finished) {
    throw Interrupted("interrupted; go on with the same command and --resume");
  }
  if (!Ranks().first()) return {};
  const FeatureIndex index(folder);
  std::int64_t silent = 0, reliable = 0;
  for (std::int64_t l = 0; l < index.info().layers; ++l) {
    for (std::int64_t f = 0; f < index.info().features; ++f) {
      const LabelKind kind = index.Label({l, f}).kind;
      silent += kind == LabelKind::kNone ? 1 : 0;
      reliable += kind == LabelKind::kFires ? 1 : 0;
    }
  }
  return {{"out", (folder / kIndexFileName).string()},
          {"features", index.info().layers * index.info().features},
          {"tokens", built.tokens},
          {"windows", index.info().windows},
          {"context", index.info().context},
          {"slices", built.slices},
          {"silent", silent},
          {"reliable_labels", reliable},
          {"bytes", built.bytes},
          {"seconds", built.seconds}};
}

std::string BuiltText(const Json& json) {
  const auto number = [&](const char* name) { return json[name].get<std::int64_t>(); };
  return fmt::format(
      "{}: {} features over {} tokens in {} ({:.1f} MB)\n"
      "{} have a label that makes them fire reliably, {} never fired\n",
      json["out"].get<std::string>(), number("features"), number("tokens"),
      FormatDuration(json["seconds"].get<double>()), json["bytes"].get<double>() / 1e6,
      number("reliable_labels"), number("silent"));
}

void Run(const Options& o) {
  const fs::path model_path = FindModel(o.model), features = FindFeatures(o.features);
  const fs::path folder = o.out.empty() ? features : fs::path(o.out);
  if (o.check == 0 && o.texts.empty() && o.export_to.empty()) {
    FailUsage("give --text to make an index, or --check or --export to use the one that is there");
  }
  if (o.check > 0 && !o.export_to.empty()) FailUsage("give either --check or --export");
  if (!o.unquoted.empty() && (o.check > 0 || o.texts.empty())) {
    FailUsage("--unquoted goes with --text, to make an index");
  }
  Model model = LoadModel(model_path);
  PackForUse(&model);
  const Transcoder transcoder = LoadTranscoder(features);
  CheckFits(transcoder, model);
  const Tokenizer tokenizer = Tokenizer::Load(model_path);
  if (o.check > 0) return Check(o, model, transcoder, tokenizer, folder);
  Json json = Json::object();
  if (!o.texts.empty()) json = Build(o, model, transcoder, tokenizer, folder);
  if (!Ranks().first()) return;
  std::string text = json.empty() ? "" : BuiltText(json);
  if (!o.export_to.empty()) {
    const FeatureIndex index(folder);
    index.CheckBelongsTo(transcoder);
    Progress bar("export", index.info().layers * index.info().features, "features");
    const ExportedFeatures exported =
        ExportFeatures(index, tokenizer, fs::weakly_canonical(features).filename().string(),
                       o.export_to, [&](std::int64_t done) { bar.Update(done); });
    json["exported"] = {
        {"out", o.export_to}, {"features", exported.features}, {"bytes", exported.bytes}};
    text += fmt::format("{}: {} feature files, {:.1f} MB\n", o.export_to, exported.features,
                        static_cast<double>(exported.bytes) / 1e6);
  }
  if (o.common.json) return PrintJson(json);
  Print(text);
}

}  // namespace

void AddFeaturesIndex(CLI::App& features) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      features, "index",
      "What every feature is, from one run over a text: how often it fires, examples, the tokens\n"
      "that it promotes and that excite it, and a label: tokens that make it fire, proposed by "
      "one\n"
      "half of the text and judged on the other",
      "clearhead features index tale tale-features --text book.txt", options, Run,
      RunsOn::kAllRanks);
  command->add_option("MODEL", o.model, "Folder or name of a model")->required();
  command->add_option("FEATURES", o.features, "Folder or name of its features")->required();
  command->add_option("--text", o.texts, "Text files, UTF-8; several are read one after another");
  command->add_option(
      "--unquoted", o.unquoted,
      "Further text files that count too but are not quoted: no example shows them");
  command->add_option("--out", o.out,
                      "Folder for index.safetensors (default: that of the features)");
  command
      ->add_option("--context", o.context,
                   "Tokens of a window (default: the model's positions; --check: the index's)")
      ->check(Range(std::int64_t{2}, std::int64_t{1} << 24));
  command->add_option("--tokens", o.tokens, "Stop after this many tokens (default: all)")
      ->check(PositiveNumber());
  command
      ->add_option("--memory", o.memory,
                   "MB for what is kept of features; where more are needed the text is run several "
                   "times (default: 1024)")
      ->check(Range(1, 1 << 24));
  command->add_flag("--resume", o.resume, "Go on with an index that was begun");
  command
      ->add_option("--check", o.check,
                   "Judge the index that is there: draw N features and count on --text, which must "
                   "be another text, how often their labels make them fire")
      ->check(PositiveNumber());
  command->add_option("--export", o.export_to,
                      "Folder for feature files as circuit-tracer and Neuronpedia read them");
}

}  // namespace clearhead::cli
