// SPDX-License-Identifier: MIT
// clearhead train: a GPT-2-architecture model from text.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "cli/peak_memory.h"
#include "cli/precision.h"
#include "cli/run_length.h"
#include "cli/run_options.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/progress.h"
#include "figures/line_chart.h"
#include "figures/running_mean.h"
#include "text/bpe_train.h"
#include "text/token_stream.h"
#include "train/metrics_log.h"
#include "train/train.h"
#include "train/training_run.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::int64_t layers = 6, heads = 8, width = 256, vocabulary = 4096;
  std::vector<std::string> texts;
  std::string valid, out, tokenizer, from, config, precision = "auto", wire = "fp32";
  RunLength length;
  std::int64_t warmup = -1;
  TrainOptions train;
  bool dry_run = false, lines = false;
};

std::vector<fs::path> Paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// The tokenizer of another model, the one this run made before, or a new one learned from the text.
Tokenizer MakeTokenizer(const Options& o) {
  if (!o.from.empty()) return Tokenizer::Load(FindModel(o.from));
  if (!o.tokenizer.empty()) return Tokenizer::Load(FindModel(o.tokenizer));
  if (o.train.run.resume) return Tokenizer::Load(o.out);
  std::vector<std::string> texts;
  for (const std::string& name : o.texts) texts.push_back(ReadFile(name));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::optional<Progress> bar;
  return TrainBpe(views, {.vocabulary_size = static_cast<std::int32_t>(o.vocabulary),
                          .progress = [&](std::int32_t done, std::int32_t wanted) {
                            if (!bar) {
                              bar.emplace("learning the vocabulary", wanted, "tokens",
                                          RankProgress());
                            }
                            bar->Update(done);
                          }});
}

// The shape that the options give, or that of a config.json of any family.
ModelConfig MakeConfig(const Options& o, std::int64_t vocabulary) {
  if (!o.config.empty()) {
    ModelConfig config = ParseConfig(ReadJsonFile(o.config, 1 << 20), o.config);
    if (config.attention != AttentionKind::kSoftmax) {
      Fail("'{}' is of a gated model; train makes dense ones", o.config);
    }
    if (o.train.shape.context > config.positions) {
      Fail("--context {}: '{}' has {} positions", o.train.shape.context, o.config,
           config.positions);
    }
    return config;
  }
  ModelConfig config{.layers = o.layers,
                     .heads = o.heads,
                     .width = o.width,
                     .vocabulary = vocabulary,
                     .positions = o.train.shape.context,
                     .inner = 4 * o.width};
  return config;
}

// Fresh weights, or those of another model to go on with.
Model StartModel(const Options& o, const Tokenizer& tokenizer) {
  if (o.from.empty()) {
    ModelConfig config = MakeConfig(o, tokenizer.vocabulary_size());
    if (tokenizer.vocabulary_size() > config.vocabulary) {
      Fail("'{}' has {} tokens, the tokenizer {}", o.config, config.vocabulary,
           tokenizer.vocabulary_size());
    }
    config.begin_of_text = tokenizer.end_of_text();
    if (tokenizer.end_of_text()) config.end_of_text = {*tokenizer.end_of_text()};
    return RandomModel(config, o.common.seed);
  }
  Model model = LoadModel(FindModel(o.from));
  if (model.config.attention != AttentionKind::kSoftmax) {
    Fail("'{}' is gated; train goes on with dense models only", o.from);
  }
  if (o.train.shape.context > model.config.positions) {
    Fail("--context {}: '{}' has {} positions", o.train.shape.context, o.from,
         model.config.positions);
  }
  if (tokenizer.vocabulary_size() > model.config.vocabulary) {
    Fail("'{}': its tokenizer has {} tokens, the model only {}", o.from,
         tokenizer.vocabulary_size(), model.config.vocabulary);
  }
  return model;
}

Json PlanJson(const ModelConfig& config, const StepShape& shape) {
  Json items = Json::array();
  std::int64_t total = 0;
  for (const MemoryItem& item : TrainStep::MemoryPlan(config, shape, &Ranks())) {
    items.push_back({{"what", item.name}, {"bytes", item.bytes}});
    total += item.bytes;
  }
  return {{"parameters", config.ParameterCount()}, {"memory", items}, {"total_bytes", total}};
}

void PrintPlan(const Options& o, const ModelConfig& config, const StepShape& shape) {
  const Json plan = PlanJson(config, shape);
  if (o.common.json) return PrintJson(plan);
  std::string text = fmt::format("{} parameters; batch {} x {} tokens, {} pass(es) per step, {}\n",
                                 config.ParameterCount(), shape.batch, shape.context,
                                 shape.accumulation, shape.bf16 ? "bf16" : "fp32");
  for (const Json& item : plan["memory"]) {
    text += fmt::format("  {:<26} {:>10.1f} MB\n", item["what"].get<std::string>(),
                        item["bytes"].get<double>() / 1e6);
  }
  Print(text +
        fmt::format("  {:<26} {:>10.1f} MB\n", "total", plan["total_bytes"].get<double>() / 1e6));
}

void DrawLoss(const fs::path& out) {
  Series raw{.faint = true}, valid{.name = "validation", .points_only = true};
  for (const Json& line : ReadMetrics(out / "metrics.jsonl")) {
    const double step = line["step"].get<double>() + 1;
    raw.x.push_back(step);
    raw.y.push_back(line["loss"].get<double>());
    if (line.contains("valid_loss")) {
      valid.x.push_back(step);
      valid.y.push_back(line["valid_loss"].get<double>());
    }
  }
  const double window = std::max(1.0, static_cast<double>(raw.x.size()) / 200.0);
  const Series smooth{.name = "training", .x = raw.x, .y = RunningMean(raw.y, window)};
  LineChart chart;
  chart.x_label = "step";
  chart.left_label = "cross-entropy (nats per token)";
  chart.series = {raw, smooth};
  if (!valid.x.empty()) chart.series.push_back(valid);
  DrawLineChart(chart, out / "loss.svg");
}

void Run(const Options& given) {
  Options o = given;
  o.train.seed = o.common.seed;
  o.train.run.together = RanksOfRun(o.wire);
  o.train.shape.bf16 = UseBf16(o.precision);
  o.train.schedule.total = o.length.Steps(o.train.shape);
  o.train.schedule.warmup =
      o.warmup >= 0 ? o.warmup : std::min<std::int64_t>(100, o.train.schedule.total / 10);
  if (o.config.empty() && o.width % o.heads != 0)
    FailUsage("--width {} is not a multiple of --heads {}", o.width, o.heads);
  if (o.dry_run) return PrintPlan(o, MakeConfig(o, o.vocabulary), o.train.shape);
  if (o.out.empty()) FailUsage("--out is required: the folder for the model");
  if (o.texts.empty() && o.train.schedule.total > 0) FailUsage("--text is required");
  if (!o.train.run.resume && fs::exists(fs::path(o.out) / "model.safetensors")) {
    Fail("'{}' holds a model already; choose another folder, or remove it", o.out);
  }
  if (!o.train.run.resume) RefuseAnotherRun(o.out);  // before the tokenizer is learned and written
  o.train.drawn_start = o.from.empty();
  if (o.train.schedule.total == 0) {  // a fresh model of this shape, as it is
    if (!Ranks().first()) return;
    SaveModel(RandomModel(MakeConfig(o, o.vocabulary), o.common.seed), o.out);
    return Print(o.common.json ? "{}\n" : fmt::format("{}: random weights\n", o.out));
  }

  const Tokenizer tokenizer = MakeTokenizer(o);
  const std::vector<std::int32_t> train = EncodeFiles(tokenizer, Paths(o.texts));
  const std::vector<std::int32_t> valid =
      o.valid.empty() ? std::vector<std::int32_t>() : EncodeDocument(tokenizer, o.valid);
  CheckLongEnough(train, o.train.shape.context);
  if (o.lines) o.train.starts = LineStarts(tokenizer, train);
  const Model start = StartModel(o, tokenizer);
  const ModelConfig& config = start.config;
  if (Ranks().first()) {
    MakeDirectory(o.out);
    tokenizer.Save(o.out);
  }

  InterruptGuard interrupt;
  std::optional<Progress> bar;
  TrainCallbacks callbacks;
  callbacks.should_stop = [&] { return interrupt.requested(); };
  callbacks.on_step = [&](const TrainProgress& p) {
    const std::int64_t per_step =
        o.train.shape.batch * o.train.shape.accumulation * o.train.shape.context;
    if (!bar) bar.emplace("train", p.steps * per_step, "tok", RankProgress());
    bar->Update(
        p.step * per_step,
        fmt::format("step {}/{} loss {:.4f}{}", p.step, p.steps, p.loss,
                    p.valid_loss ? fmt::format(" valid {:.4f}", *p.valid_loss) : std::string()));
  };
  const TrainResult result = Train(start, train, valid, o.train, o.out, callbacks);
  bar.reset();
  if (!result.finished) {
    throw Interrupted(fmt::format(
        "interrupted at step {}; go on with the same command and --resume", result.step));
  }
  if (Ranks().first()) DrawLoss(o.out);
  Json json = {{"out", o.out},
               {"parameters", config.ParameterCount()},
               {"steps", result.step},
               {"train_tokens", train.size()},
               {"loss", result.loss},
               {"seconds", result.seconds},
               {"tokens_per_second", result.tokens_per_second},
               {"precision", o.train.shape.bf16 ? "bf16" : "fp32"},
               {"peak_memory", PeakMemory(Ranks())}};
  if (result.valid_loss) json["valid_loss"] = *result.valid_loss;
  if (o.common.json) return PrintJson(json);
  Print(fmt::format("{}: {} parameters, {} steps in {} ({:.0f} tokens/s), loss {:.4f}{}\n", o.out,
                    config.ParameterCount(), result.step, FormatDuration(result.seconds),
                    result.tokens_per_second, result.loss,
                    result.valid_loss ? fmt::format(", validation loss {:.4f}", *result.valid_loss)
                                      : std::string()));
}

}  // namespace

void AddTrain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  o.train.shape = {.batch = 16, .context = 256, .accumulation = 1};
  Command* command =
      AddCommand(app, "train", "Train a model from text: GPT-2's architecture, or that of --config",
                 "clearhead train --text book.txt --valid other.txt --tokens 20M --out my-model",
                 options, Run, RunsOn::kAllRanks);
  const auto positive = Range(std::int64_t{1}, std::int64_t{1} << 40);
  command->add_option("--text", o.texts, "Text files to learn from");
  command->add_option("--valid", o.valid, "Text file for the validation loss");
  command->add_option("--out", o.out, "Folder for the model, its metrics and checkpoints");
  o.length.Add(command);
  Option* layers =
      command->add_option("--layers", o.layers, "Blocks (default: 6)")->check(Range(1, 4096));
  Option* heads = command->add_option("--heads", o.heads, "Heads per block (default: 8)")
                      ->check(Range(1, 4096));
  Option* width =
      command->add_option("--width", o.width, "Width of the residual stream (default: 256)")
          ->check(Range(1, 1 << 18));
  command->add_option("--context", o.train.shape.context, "Tokens per sequence (default: 256)")
      ->check(Range(1, 1 << 20));
  Option* vocabulary =
      command
          ->add_option("--vocab", o.vocabulary, "Tokens of the vocabulary to learn (default: 4096)")
          ->check(Range(257, 1 << 24));
  Option* tokenizer = command->add_option("--tokenizer", o.tokenizer,
                                          "Use this model's tokenizer instead of learning one");
  Option* from = command->add_option("--from", o.from,
                                     "Go on with this dense model's weights, shape and tokenizer");
  for (Option* option : {layers, heads, width, vocabulary, tokenizer}) from->excludes(option);
  Option* config = command->add_option("--config", o.config,
                                       "A config.json of any family for the shape of the model, "
                                       "instead of --layers, --heads, --width");
  for (Option* option : {layers, heads, width, from}) config->excludes(option);
  command
      ->add_option("--batch", o.train.shape.batch,
                   "Sequences per pass, shared by all ranks (default: 16)")
      ->check(positive);
  command
      ->add_option("--accumulate", o.train.shape.accumulation,
                   "Passes per optimiser step (default: 1)")
      ->check(positive);
  command->add_option("--lr", o.train.schedule.peak, "Peak learning rate (default: 0.001)")
      ->check(PositiveNumber());
  command
      ->add_option("--warmup", o.warmup, "Steps of linear warm-up (default: 100, at most a tenth)")
      ->check(NonNegativeNumber());
  command
      ->add_option("--weight-decay", o.train.optimizer.weight_decay,
                   "Of matrices only (default: 0.1)")
      ->check(NonNegativeNumber());
  command
      ->add_option("--clip", o.train.optimizer.clip_norm,
                   "Largest gradient norm (default: 1; 0 = off)")
      ->check(NonNegativeNumber());
  AddRunOptions(command, &o.train.run, &o.wire, "only the end");
  command->add_flag("--recompute", o.train.shape.recompute,
                    "Keep less for backward and compute it again: less memory, a third more work");
  command->add_flag(
      "--lines", o.lines,
      "Start every sequence at the beginning of a line (texts whose lines are examples)");
  command->add_flag("--dry-run", o.dry_run, "Only print the memory plan");
  AddPrecision(command, &o.precision);
}

}  // namespace clearhead::cli
