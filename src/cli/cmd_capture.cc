// SPDX-License-Identifier: MIT
// clearhead capture MODEL: run once, write logits, taps and gradients to a file.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/feature_options.h"
#include "cli/gate_options.h"
#include "cli/precision.h"
#include "core/error.h"
#include "features/feature_recording.h"
#include "use/record.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  InputOptions input;
  GateFlags gates;
  FeatureFlags features;
  std::string model, out, taps, precision = "fp32", freeze = "none";
  Option *taps_option = nullptr, *freeze_option = nullptr;
  bool gradients = false;
};

void Run(const Options& options) {
  const std::filesystem::path path = FindModel(options.model);
  const Model model = LoadModel(path);
  const InputTokens input = ReadInput(options.input, path);
  RecordOptions capture;
  capture.gates = options.gates.Resolve(model.config, options.common.seed);
  ModelConfig running = model.config;
  if (capture.gates.open) running.attention = AttentionKind::kSoftmax;  // has no gates to look at
  const std::optional<Transcoder> features = options.features.Load(model);
  if (!features && options.freeze_option->count() > 0) {
    FailUsage("--freeze is about changed features; give --features DIR and --feature too");
  }
  FeatureTaps taps;
  if (options.taps_option->count() > 0 && features) {
    taps = MatchFeatureTaps(options.taps, running);
  } else if (options.taps_option->count() > 0) {
    taps.taps = capture.taps = MatchTaps(options.taps, running);
  }
  capture.gradients = options.gradients;
  std::optional<PackedWeights> packed;
  if (UseBf16(options.precision)) {
    packed.emplace().Pack(model, PackedFor::kBf16, PackedWays::kBoth);
    capture.packed = &*packed;
  }
  FeatureRecording run;
  std::vector<TensorToWrite> more;
  if (features) {
    run = RecordFeatures(model, *features, input.ids, input.batch,
                         {.record = capture,
                          .taps = taps,
                          .interventions = options.features.Interventions(*features),
                          .freeze = ParseFreeze(options.freeze)});
    more = FeatureTensors(run);
  } else {
    run.recording = Record(model, input.ids, input.batch, capture);
  }
  const Recording& recording = run.recording;
  const WrittenFile result = WriteRecording(recording, options.out, more);
  Json json = {{"out", options.out},
               {"batch", input.batch},
               {"length", static_cast<std::int64_t>(input.ids.size()) / input.batch},
               {"tensors", result.tensors},
               {"bytes", result.bytes}};
  if (options.gradients) json["loss"] = recording.loss;
  if (features) json["active_features"] = run.values.size();
  if (options.common.json) return PrintJson(json);
  Print(fmt::format(
      "{}: {} tensors, {:.1f} MB{}{}\n", options.out, result.tensors,
      static_cast<double>(result.bytes) / 1e6,
      options.gradients ? fmt::format(", loss {:.6f}", recording.loss) : std::string(),
      features ? fmt::format(", {} active features", run.values.size()) : std::string()));
}

}  // namespace

void AddCapture(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command =
      AddCommand(app, "capture",
                 "Run a model once and write logits and intermediate values to a safetensors file",
                 "clearhead capture gpt2 --prompt 'Hello world' --taps "
                 "'blocks.*.attn.hook_pattern' --out run.safetensors",
                 options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  options->input.Add(command);
  command->add_option("--out", options->out, "File to write")->required();
  options->taps_option = command->add_option(
      "--taps", options->taps,
      "Comma list of TransformerLens names, * matches anything; all = every tap");
  command->add_flag("--gradients", options->gradients,
                    "Add loss (mean next-token cross-entropy), grad.<parameter as Hugging Face "
                    "names it>, grad.<tap>");
  options->features.Add(command,
                        "Features of the model: adds features.active [n,4] (sequence, layer, "
                        "position, feature), features.values [n], and with --taps "
                        "features.{layer}.pre, .reconstruction and .error");
  options->freeze_option =
      command
          ->add_option("--freeze", options->freeze,
                       "What changed features leave as it was: none, attention (its weights), all "
                       "(also the divisors of norms and MLP outputs: direct effects) (default: "
                       "none)")
          ->check(IsMember({"none", "attention", "all"}));
  options->gates.Add(command, /*with_weight=*/true);
  AddPrecision(command, &options->precision);
}

}  // namespace clearhead::cli
