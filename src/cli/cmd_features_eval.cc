// SPDX-License-Identifier: MIT
// clearhead features eval MODEL FEATURES --text F: how well features stand for the MLPs.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "core/progress.h"
#include "features/feature_eval.h"
#include "features/transcoder_files.h"
#include "model/packed_weights.h"
#include "text/token_stream.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> folders;  // model, features, model, features, ...
  std::string text;
  std::int64_t context = 0, tokens = 0;
  bool all_positions = false;
};

struct Judged {
  std::string model, features;
  TranscoderConfig config;
  FeatureEval eval;
};

std::string KindText(const TranscoderConfig& c) {
  return fmt::format("{} ({}), {} layers of {} features, {}, reading {}",
                     c.kind == TranscoderKind::kCrossLayer ? "cross-layer" : "per-layer",
                     NameOf(c.kind), c.layers, c.features, NameOf(c.activation),
                     c.reads == Tap::kLn2Normalized ? "ln2.hook_normalized" : "hook_resid_mid");
}

Json ToJson(const Judged& judged) {
  const FeatureEval& e = judged.eval;
  Json layers = Json::array();
  for (std::size_t l = 0; l < e.layers.size(); ++l) {
    const FeatureLayerEval& layer = e.layers[l];
    layers.push_back({{"layer", l},
                      {"explained_variance", layer.explained_variance},
                      {"explained_variance_by_dimension", layer.explained_by_dimension},
                      {"l0", layer.l0},
                      {"silent", layer.silent},
                      {"error_norm", layer.error_norm},
                      {"output_norm", layer.output_norm},
                      {"loss_replaced", layer.loss_replaced}});
  }
  return {{"model", judged.model},
          {"features", judged.features},
          {"kind", NameOf(judged.config.kind)},
          {"activation", NameOf(judged.config.activation)},
          {"features_per_layer", judged.config.features},
          {"tokens", e.tokens},
          {"windows", e.windows},
          {"context", e.context},
          {"positions", e.positions},
          {"first_position", e.first_position},
          {"loss", e.loss},
          {"loss_replaced", e.loss_replaced},
          {"loss_errors_kept", e.loss_errors_kept},
          {"loss_mean", e.loss_mean},
          {"recovered", e.recovered()},
          {"explained_variance", e.Mean(&FeatureLayerEval::explained_variance)},
          {"explained_variance_by_dimension", e.Mean(&FeatureLayerEval::explained_by_dimension)},
          {"l0", e.Mean(&FeatureLayerEval::l0)},
          {"silent", e.Mean(&FeatureLayerEval::silent)},
          {"seconds", e.seconds},
          {"layers", layers}};
}

std::string LayerLine(const std::string& name, double explained, double by_dimension, double l0,
                      double silent, double error, double output, const std::string& loss) {
  return fmt::format("{:<6} {:>9.4f} {:>9.4f} {:>8.2f} {:>8.2f} {:>9.4f} {:>9.4f}  {}\n", name,
                     explained, by_dimension, l0, 100 * silent, error, output, loss);
}

std::string Table(const Judged& judged) {
  const FeatureEval& e = judged.eval;
  const std::string left =
      e.first_position == 0 ? ""
      : e.first_position == 1
          ? " (the first of a window is left as it is)"
          : fmt::format(" (the first {} of a window are left as they are)", e.first_position);
  std::string text = fmt::format(
      "{} with {}: {}\n{} predictions in {} windows of at most {}, {} positions judged{}\n",
      judged.model, judged.features, KindText(judged.config), e.tokens, e.windows, e.context,
      e.positions, left);
  text += fmt::format("{:<6} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}  {}\n", "layer", "explained",
                      "by dim.", "L0", "silent %", "|error|", "|output|", "loss when replaced");
  for (std::size_t l = 0; l < e.layers.size(); ++l) {
    const FeatureLayerEval& x = e.layers[l];
    text += LayerLine(std::to_string(l), x.explained_variance, x.explained_by_dimension, x.l0,
                      x.silent, x.error_norm, x.output_norm,
                      fmt::format("{:.4f} ({:+.4f})", x.loss_replaced, x.loss_replaced - e.loss));
  }
  text +=
      LayerLine("mean", e.Mean(&FeatureLayerEval::explained_variance),
                e.Mean(&FeatureLayerEval::explained_by_dimension), e.Mean(&FeatureLayerEval::l0),
                e.Mean(&FeatureLayerEval::silent), e.Mean(&FeatureLayerEval::error_norm),
                e.Mean(&FeatureLayerEval::output_norm), "");
  text += fmt::format(
      "loss of the model {:.4f}; all MLPs replaced {:.4f} ({:+.4f}); MLPs at their mean {:.4f}, of "
      "which the features recover {:.1f} %\nwith errors kept the loss is the model's own to "
      "{:.1e}\n",
      e.loss, e.loss_replaced, e.loss_replaced - e.loss, e.loss_mean, 100 * e.recovered(),
      std::abs(e.loss_errors_kept - e.loss));
  return text;
}

// One line for each set of features.
std::string SideBySide(const std::vector<Judged>& all) {
  std::size_t widest = 8;
  for (const Judged& j : all) {
    widest = std::max(widest, j.model.size() + j.features.size() + 3);
  }
  std::string text =
      fmt::format("\n{:<{}} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9}\n", "features", widest,
                  "explained", "by dim.", "L0", "silent %", "loss", "replaced", "above");
  for (const Judged& j : all) {
    const FeatureEval& e = j.eval;
    text += fmt::format(
        "{:<{}} {:>9.4f} {:>9.4f} {:>8.2f} {:>8.2f} {:>9.4f} {:>9.4f} {:>+9.4f}\n",
        j.model + " : " + j.features, widest, e.Mean(&FeatureLayerEval::explained_variance),
        e.Mean(&FeatureLayerEval::explained_by_dimension), e.Mean(&FeatureLayerEval::l0),
        100 * e.Mean(&FeatureLayerEval::silent), e.loss, e.loss_replaced, e.loss_replaced - e.loss);
  }
  return text;
}

void Run(const Options& options) {
  if (options.folders.size() < 2 || options.folders.size() % 2 != 0) {
    FailUsage("give a model and its features, or several such pairs; {} names were given",
              options.folders.size());
  }
  std::vector<Judged> all;
  for (std::size_t i = 0; i < options.folders.size(); i += 2) {
    Judged& judged = all.emplace_back();
    judged.model = options.folders[i];
    judged.features = options.folders[i + 1];
    const std::filesystem::path path = FindModel(judged.model);
    Model model = LoadModel(path);
    PackForUse(&model);
    const Transcoder transcoder = LoadTranscoder(FindFeatures(judged.features));
    judged.config = transcoder.config;
    CheckFits(transcoder, model);  // before the text is read
    const std::vector<std::int32_t> tokens = EncodeDocument(Tokenizer::Load(path), options.text);
    std::optional<Progress> bar;
    FeatureEvalOptions evaluate{.context = options.context,
                                .max_tokens = options.tokens,
                                .all_positions = options.all_positions,
                                .ranks = &Ranks()};
    evaluate.progress = [&](std::int64_t done, std::int64_t total) {
      if (!bar) bar.emplace(judged.features, total, "tok", RankProgress());
      bar->Update(done);
    };
    judged.eval = EvaluateFeatures(model, transcoder, tokens, evaluate);
  }
  if (options.common.json) {
    Json sets = Json::array();
    for (const Judged& judged : all) sets.push_back(ToJson(judged));
    return PrintJson({{"schema", "clearhead.features_eval.1"}, {"sets", sets}});
  }
  std::string text;
  for (const Judged& judged : all) {
    text += (text.empty() ? "" : "\n") + Table(judged);
  }
  if (all.size() > 1) text += SideBySide(all);
  Print(text);
}

}  // namespace

void AddFeaturesEval(CLI::App& features) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      features, "eval",
      "How well features stand for the MLPs of a model: explained variance, active and silent "
      "features,\nand the model's loss with its MLPs replaced by the features, one layer alone and "
      "all of them.\nPositions of a window that the features were not trained on (their files "
      "say which; the\nfirst has other magnitudes than all others) do not count and keep their MLP "
      "output.",
      "clearhead features eval tale tale-features --text book.txt --context 64 --tokens 20000",
      options, Run, RunsOn::kAllRanks);
  command
      ->add_option("MODEL FEATURES", options->folders,
                   "Folder or name of a model, then of its features; several pairs are compared")
      ->required();
  command->add_option("--text", options->text, "The text, UTF-8")->required();
  command
      ->add_option("--context", options->context, "Window length (default: the model's positions)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--tokens", options->tokens, "Stop after this many predictions (default: all)")
      ->check(PositiveNumber());
  command->add_flag("--all-positions", options->all_positions,
                    "Count and replace those positions too");
}

}  // namespace clearhead::cli
