// SPDX-License-Identifier: MIT
// clearhead steer MODEL --prompt S: something added to the stream in growing doses.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "cli/prompt_words.h"
#include "core/error.h"
#include "core/safetensors.h"
#include "features/feature_id.h"
#include "features/feature_recording.h"
#include "features/transcoder_files.h"
#include "figures/canvas.h"
#include "figures/line_chart.h"
#include "heads/head_id.h"
#include "model/packed_weights.h"
#include "use/steer.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  InputOptions input;
  GateFlags gates;
  std::string model, out, direction, towards, away, head, features, feature, positions = "last";
  std::string doses = "-8,-4,-2,-1,0,1,2,4,8";
  std::vector<std::string> targets;
  std::int64_t layer = 0, likeliest = 5;
  Option* layer_option = nullptr;
};

std::vector<double> ParseDoses(const std::string& list) {
  std::vector<double> doses;
  const char* at = list.data();
  const char* end = at + list.size();
  while (true) {
    double dose = 0.0;
    const auto [next, error] = std::from_chars(at, end, dose);
    if (error != std::errc() || !std::isfinite(dose) || (next != end && *next != ',')) {
      FailUsage("--doses '{}' is not a list of numbers such as -4,0,4", list);
    }
    doses.push_back(dose);
    if (next == end) return doses;
    at = next + 1;
  }
}

// "last", "all", or "3,5": empty means all.
std::vector<std::int64_t> ParsePositions(const std::string& text, std::int64_t length) {
  if (text == "all") return {};
  if (text == "last") return {length - 1};
  std::vector<std::int64_t> positions;
  for (const std::int32_t at : ParseIds(text)) {
    if (at < 0 || at >= length) {
      Fail("--position {}: the prompt has {} tokens, so the last position is {}", at, length,
           length - 1);
    }
    positions.push_back(at);
  }
  return positions;
}

// FILE or FILE:NAME, a tensor with one value for each of the stream's.
std::vector<float> ReadDirection(const std::string& text, std::int64_t width) {
  const std::size_t colon = text.rfind(':');
  const bool named = colon != std::string::npos && text.find(".safetensors:") != std::string::npos;
  const SafetensorsFile file(named ? text.substr(0, colon) : text);
  if (!named && file.tensors().size() != 1) {
    Fail("'{}' has {} tensors; name one: FILE.safetensors:NAME", text, file.tensors().size());
  }
  const TensorEntry& entry = named ? file.Get(text.substr(colon + 1)) : file.tensors()[0];
  if (entry.size() != width) {
    Fail("'{}': '{}' has {} values; the model's stream has {}", file.source(), entry.name,
         entry.size(), width);
  }
  std::vector<float> values(static_cast<std::size_t>(width));
  ConvertToFloat(entry, values.data());
  return values;
}

struct Steering {
  std::string what;  // for people
  DosedRun run;
};

// A feature's dose is the value that it is set to, where the features count it.
Steering FeatureSteering(const Options& o, const Model& model, const std::vector<std::int32_t>& ids,
                         const std::vector<std::int64_t>& positions, const GateRun& gates) {
  if (o.features.empty()) FailUsage("--feature {} needs --features DIR", o.feature);
  const auto transcoder = std::make_shared<const Transcoder>([&] {
    Transcoder loaded = LoadTranscoder(FindFeatures(o.features));
    CheckFits(loaded, model);
    return loaded;
  }());
  FeatureIntervention change{.feature = ParseFeatureOf(transcoder->config, o.feature)};
  for (const std::int64_t at : positions) change.positions.push_back({at, at});
  return {fmt::format("feature {} set", o.feature), [=, &model](double dose) {
            FeatureRecordOptions options{.record = {.gates = gates}};
            options.interventions = {change};
            options.interventions[0].value = static_cast<float>(dose);
            if (dose == 0.0) options.interventions.clear();  // as it is
            const FeatureRecording run = RecordFeatures(model, *transcoder, ids, 1, options);
            return std::vector<float>(run.recording.logits.begin(), run.recording.logits.end());
          }};
}

Steering SteeringOf(const Options& o, const Model& model, const PromptWords& words,
                    const std::vector<std::int32_t>& ids, const GateRun& gates) {
  const int given = (o.direction.empty() ? 0 : 1) + (o.towards.empty() && o.away.empty() ? 0 : 1) +
                    (o.head.empty() ? 0 : 1) + (o.feature.empty() ? 0 : 1);
  if (given != 1) {
    FailUsage(
        "give one thing to add: --direction FILE, --towards A --away B, --head L3H5 or --feature "
        "L3F512");
  }
  const auto length = static_cast<std::int64_t>(ids.size());
  const std::vector<std::int64_t> positions = ParsePositions(o.positions, length);
  if (!o.feature.empty()) return FeatureSteering(o, model, ids, positions, gates);
  std::int64_t layer = o.layer;
  std::vector<float> direction;
  std::string what;
  if (!o.head.empty()) {
    const std::optional<HeadId> head = ParseHead(o.head);
    if (!head) FailUsage("--head '{}' is not a head; write L5H1", o.head);
    if (head->layer >= model.config.layers) {
      Fail("there is no head {}; the model has {} layers", ToText(*head), model.config.layers);
    }
    const std::int64_t at = positions.empty() ? length - 1 : positions.back();
    direction = HeadOutput(model, ids, head->layer, head->head, at, gates);
    // What the head wrote is there from the next layer on.
    if (o.layer_option->count() == 0) layer = std::min(head->layer + 1, model.config.layers - 1);
    what = fmt::format("the output of {} at position {}", ToText(*head), at);
  } else if (o.layer_option->count() == 0) {
    FailUsage("say where to add it: --layer N, the stream before layer N");
  } else if (!o.direction.empty()) {
    direction = ReadDirection(o.direction, model.config.width);
    what = o.direction;
  } else {
    if (o.towards.empty() || o.away.empty()) FailUsage("--towards and --away go together");
    direction =
        StreamDifference(model, words.Prompt(o.towards), words.Prompt(o.away), layer, gates);
    what = fmt::format("'{}' less '{}'", o.towards, o.away);
  }
  return {fmt::format("{}, before layer {}", what, layer),
          AddDirection(model, ids, std::move(direction), layer, positions, gates)};
}

void Draw(const Options& o, const Steering& steering, const std::vector<SteerPoint>& points,
          const std::vector<std::int32_t>& targets, const PromptWords& words) {
  LineChart chart{.title = fmt::format("{}: {}", ShortName(o.model), steering.what),
                  .x_label = "dose",
                  .left_label = "probability",
                  .right_label = "KL from undosed (nats)"};
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Series series{.name = fmt::format("'{}'", words.Text(targets[i]))};
    for (const SteerPoint& point : points) {
      series.x.push_back(point.dose);
      series.y.push_back(point.probabilities[i]);
    }
    chart.series.push_back(series);
  }
  Series divergence{.name = "KL", .axis = ChartAxis::kRight};
  for (const SteerPoint& point : points) {
    divergence.x.push_back(point.dose);
    divergence.y.push_back(point.divergence);
  }
  chart.series.push_back(divergence);
  DrawLineChart(chart, o.out);
}

void Run(const Options& o) {
  if (!o.out.empty()) CheckFigurePath(o.out);
  const std::filesystem::path path = FindModel(o.model);
  Model model = LoadModel(path);
  PackForUse(&model);
  const InputTokens input = ReadInput(o.input, path);
  if (input.batch != 1) FailUsage("one prompt at a time, not {}", input.batch);
  const PromptWords words(path);
  const GateRun gates = o.gates.Resolve(model.config, o.common.seed);
  SteerOptions options{.doses = ParseDoses(o.doses), .likeliest = o.likeliest, .gates = gates};
  for (const std::string& target : o.targets) options.targets.push_back(words.Single(target));
  const Steering steering = SteeringOf(o, model, words, input.ids, gates);
  if (options.targets.empty()) {  // what the prompt predicts by itself
    const PromptPrediction own = PredictNext(model, input.ids, 3, gates);
    for (const Prediction& prediction : own.likeliest) options.targets.push_back(prediction.token);
  }
  const std::vector<SteerPoint> points =
      DoseResponse(model.config, input.ids, options, steering.run);
  if (!o.out.empty()) Draw(o, steering, points, options.targets, words);
  if (o.common.json) {
    Json list = Json::array(), targets = Json::array();
    for (const std::int32_t target : options.targets) {
      targets.push_back({{"token", target}, {"text", words.Text(target)}});
    }
    for (const SteerPoint& point : points) {
      list.push_back({{"dose", point.dose},
                      {"probabilities", point.probabilities},
                      {"divergence", point.divergence},
                      {"loss", point.loss},
                      {"likeliest", words.PredictionsJson(point.likeliest)}});
    }
    return PrintJson({{"schema", "clearhead.steer.1"},
                      {"model", o.model},
                      {"ids", input.ids},
                      {"tokens", words.Texts(input.ids)},
                      {"added", steering.what},
                      {"targets", targets},
                      {"doses", list}});
  }
  std::string text = fmt::format("{}\n{:>8} {:>9} {:>8}", steering.what, "dose", "KL", "loss");
  for (const std::int32_t target : options.targets)
    text += fmt::format(" {:>12}", fmt::format("'{}'", words.Text(target)));
  text += "  expects\n";
  for (const SteerPoint& point : points) {
    text += fmt::format("{:>8g} {:>9.5f} {:>8.4f}", point.dose, point.divergence, point.loss);
    for (const double p : point.probabilities) text += fmt::format(" {:>10.2f} %", 100.0 * p);
    text += fmt::format("  '{}'\n", words.Text(point.likeliest[0].token));
  }
  Print(text);
}

}  // namespace

void AddSteer(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "steer",
      "Add a direction, a head's output or a feature at a position of a prompt, in growing doses, "
      "and\nsee what the model then expects: a dose-response curve",
      "clearhead steer tale --prompt 'She was very' --towards ' happy' --away ' sad' --layer 5 "
      "--target ' happy' --out steer.svg",
      options, Run);
  command->add_option("MODEL", o.model, "Folder or name of a model")->required();
  o.input.Add(command);
  command->add_option("--direction", o.direction,
                      "A vector of the stream: FILE.safetensors, or FILE.safetensors:NAME");
  command->add_option("--towards", o.towards,
                      "With --away: the stream at the end of this text less that of the other");
  command->add_option("--away", o.away, "The other text");
  command->add_option("--head", o.head,
                      "What this head writes at the position, once more for each dose");
  command->add_option("--features", o.features, "Features of the model, for --feature");
  command->add_option("--feature", o.feature,
                      "Set this feature to the dose, e.g. L3F512 (dose 0: as it is)");
  o.layer_option =
      command
          ->add_option("--layer", o.layer,
                       "Added to the stream before this layer (with --head: default the next)")
          ->check(NonNegativeNumber());
  command->add_option("--position", o.positions, "last (default), all, or positions: 3,5");
  command->add_option("--doses", o.doses, "Multiples of it (default: -8,-4,-2,-1,0,1,2,4,8)");
  command
      ->add_option(
          "--target", o.targets,
          "Token whose probability is followed, e.g. ' happy'; may be repeated (default: the "
          "three likeliest)")
      ->allow_extra_args(false);
  command->add_option("--top", o.likeliest, "Tokens of each prediction (default: 5)")
      ->check(Range(std::int64_t{1}, std::int64_t{1000}));
  o.gates.Add(command, /*with_weight=*/false);
  command->add_option("--out", o.out, "The curve: .svg, .pdf or .png");
}

}  // namespace clearhead::cli
