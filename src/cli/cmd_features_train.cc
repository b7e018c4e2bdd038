// SPDX-License-Identifier: MIT
// clearhead features train MODEL --text F... --out DIR: a transcoder for the MLPs of a model.
#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "cli/run_length.h"
#include "cli/run_options.h"
#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "figures/line_chart.h"
#include "figures/running_mean.h"
#include "model/packed_weights.h"
#include "text/token_stream.h"
#include "train/metrics_log.h"
#include "train/transcoder.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string model, valid, out, kind = "clt", activation = "jumprelu", reads, dtype = "f32",
                                 wire = "fp32";
  std::vector<std::string> texts;
  std::int64_t tokens = 0, steps = -1;
  TranscoderOptions train;
  bool lines = false, dry_run = false;
};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string List(const std::vector<double>& values, const char* format, bool explained) {
  std::string text;
  for (const double value : values) {
    text += fmt::format(fmt::runtime(format), explained ? 1.0 - value : value);
  }
  return text;
}

TranscoderOptions Complete(const Options& o, const ModelConfig& config) {
  TranscoderOptions t = o.train;
  t.kind = o.kind == "clt" ? TranscoderKind::kCrossLayer : TranscoderKind::kPerLayer;
  t.step.rule = o.activation == "topk"        ? FiringRule::kTopK
                : o.activation == "batchtopk" ? FiringRule::kBatchTopK
                                              : FiringRule::kJumpRelu;
  const bool norm_before = config.norm_place == NormPlace::kBefore;
  t.data.reads = o.reads == "resid_mid" || (o.reads.empty() && !norm_before) ? Tap::kResidMid
                                                                             : Tap::kLn2Normalized;
  if (t.data.context == 0) t.data.context = std::min<std::int64_t>(256, config.positions);
  t.data.seed = o.common.seed;
  t.dtype = o.dtype == "bf16" ? DType::kBF16 : o.dtype == "f16" ? DType::kF16 : DType::kF32;
  t.model_name = fs::path(o.model).lexically_normal().filename().string();
  if (o.steps > 0) {
    t.steps = o.steps;
  } else if (o.tokens > 0) {
    t.steps = (o.tokens + t.data.rows - 1) / t.data.rows;
  } else {
    FailUsage("say how long to train: --tokens N or --steps N");
  }
  return t;
}

// Time is not guessed from the machine's name: the encoder's products are counted.
void PrintPlan(const Options& o, const ModelConfig& config, const TranscoderOptions& t) {
  Json items = Json::array();
  std::int64_t total = 0;
  for (const MemoryItem& item : TranscoderMemoryPlan(config, t)) {
    items.push_back({{"what", item.name}, {"bytes", item.bytes}});
    total += item.bytes;
  }
  const double products = 2.0 * static_cast<double>(t.steps) * static_cast<double>(t.data.rows) *
                          static_cast<double>(config.layers * config.width * t.features);
  const Json plan = {{"steps", t.steps},
                     {"tokens", t.steps * t.data.rows},
                     {"memory", items},
                     {"total_bytes", total},
                     {"encoder_operations", products}};
  if (o.common.json) return PrintJson(plan);
  std::string text = fmt::format("{} steps of {} tokens\n", t.steps, t.data.rows);
  for (const Json& item : items) {
    text += fmt::format("  {:<26} {:>10.1f} MB\n", item["what"].get<std::string>(),
                        item["bytes"].get<double>() / 1e6);
  }
  text += fmt::format("  {:<26} {:>10.1f} MB\n", "total", static_cast<double>(total) / 1e6);
  Print(text + fmt::format("The encoder alone takes {:.1f} teraflop: {:.0f} minutes at 100 "
                           "gigaflop/s, and the rest about as long again\n",
                           products / 1e12, products / 1e11 / 60.0));
}

void DrawProgress(const fs::path& out) {
  Series raw{.faint = true}, valid{.name = "validation", .points_only = true};
  Series l0{.name = "features per token and layer", .axis = ChartAxis::kRight};
  for (const Json& line : ReadMetrics(out / "metrics.jsonl")) {
    const double step = line["step"].get<double>() + 1;
    raw.x.push_back(step);
    raw.y.push_back(Mean(line["unexplained"].get<std::vector<double>>()));
    l0.x.push_back(step);
    l0.y.push_back(Mean(line["l0"].get<std::vector<double>>()));
    if (line.contains("valid_unexplained")) {
      valid.x.push_back(step);
      valid.y.push_back(Mean(line["valid_unexplained"].get<std::vector<double>>()));
    }
  }
  const double window = std::max(1.0, static_cast<double>(raw.x.size()) / 200.0);
  const Series smooth{.name = "training", .x = raw.x, .y = RunningMean(raw.y, window)};
  LineChart chart;
  chart.x_label = "step";
  chart.left_label = "unexplained variance, mean over layers";
  chart.right_label = "features per token and layer";
  chart.log_left = true;
  chart.series = {raw, smooth, l0};
  if (!valid.x.empty()) chart.series.push_back(valid);
  DrawLineChart(chart, out / "features.svg");
}

void Run(const Options& o) {
  const fs::path folder = FindModel(o.model);
  if (o.dry_run) {
    const ModelConfig config = ReadConfig(folder);
    return PrintPlan(o, config, Complete(o, config));
  }
  if (o.out.empty()) FailUsage("--out is required: the folder for the features");
  if (o.texts.empty()) FailUsage("--text is required");
  if (!o.train.run.resume && fs::exists(fs::path(o.out) / "config.yaml")) {
    Fail("'{}' holds features already; choose another folder, or remove it", o.out);
  }
  if (!o.train.run.resume) RefuseAnotherRun(o.out);
  Model model = LoadModel(folder);
  PackForUse(&model);
  TranscoderOptions t = Complete(o, model.config);
  t.run.together = RanksOfRun(o.wire);
  const Tokenizer tokenizer = Tokenizer::Load(folder);
  const std::vector<std::int32_t> train =
      EncodeFiles(tokenizer, std::vector<fs::path>(o.texts.begin(), o.texts.end()));
  const std::vector<std::int32_t> valid =
      o.valid.empty() ? std::vector<std::int32_t>() : EncodeDocument(tokenizer, o.valid);
  if (o.lines) t.data.starts = LineStarts(tokenizer, train);

  InterruptGuard interrupt;
  std::optional<Progress> bar;
  TranscoderCallbacks callbacks;
  callbacks.should_stop = [&] { return interrupt.requested(); };
  callbacks.on_step = [&](const TranscoderProgress& p) {
    if (!bar) bar.emplace("features", p.steps * t.data.rows, "tok", RankProgress());
    bar->Update(p.step * t.data.rows,
                fmt::format("step {}/{} explained{} L0{} dead {:.1f} %", p.step, p.steps,
                            List(p.measure.unexplained, " {:.3f}", true),
                            List(p.measure.l0, " {:.0f}", false), 100.0 * p.dead_share));
  };
  const TranscoderResult r = TrainTranscoder(model, train, valid, t, o.out, callbacks);
  bar.reset();
  if (!r.finished) {
    throw Interrupted(
        fmt::format("interrupted at step {}; go on with the same command and --resume", r.step));
  }
  if (Ranks().first()) DrawProgress(o.out);
  const std::vector<double>& unexplained = r.valid ? r.valid->unexplained : r.last.unexplained;
  const std::vector<double>& l0 = r.valid ? r.valid->l0 : r.last.l0;
  Json json = {{"out", o.out},
               {"steps", r.step},
               {"tokens", r.step * t.data.rows},
               {"measured_on", r.valid ? "validation" : "last batch"},
               {"unexplained", unexplained},
               {"l0", l0},
               {"dead_share", r.dead_share},
               {"seconds", r.seconds},
               {"tokens_per_second", r.tokens_per_second}};
  if (o.common.json) return PrintJson(json);
  Print(
      fmt::format("{}: {} x {} features, {} steps in {} ({:.0f} tokens/s)\n"
                  "  explained by layer{} ({})\n  L0 by layer{}, mean {:.1f}; dead {:.1f} %\n"
                  "  judge it by the model's loss: clearhead features eval {} {} --text FILE\n",
                  o.out, model.config.layers, t.features, r.step, FormatDuration(r.seconds),
                  r.tokens_per_second, List(unexplained, " {:.3f}", true),
                  r.valid ? "validation" : "last batch", List(l0, " {:.1f}", false), Mean(l0),
                  100.0 * r.dead_share, o.model, o.out));
}

}  // namespace

void AddFeaturesTrain(CLI::App& features) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  o.train.data.context = 0;
  Command* command = AddCommand(
      features, "train", "A transcoder: sparse features that stand for the MLPs of a model",
      "clearhead features train tale --text book.txt --tokens 3M --out tale-features", options, Run,
      RunsOn::kAllRanks);
  const auto positive = Range(std::int64_t{1}, std::int64_t{1} << 40);
  command->add_option("MODEL", o.model, "A model's folder, or the name of one that ships")
      ->required();
  command->add_option("--text", o.texts, "Text files to learn from");
  command->add_option("--valid", o.valid, "Text file for the validation");
  command->add_option("--out", o.out, "Folder for the features, metrics and checkpoints");
  command->add_option("--tokens", o.tokens, "Tokens to train on, e.g. 3M")
      ->transform(NumberWithUnit({{"k", 1000}, {"M", 1000000}, {"G", 1000000000}}))
      ->check(positive);
  command->add_option("--steps", o.steps, "Optimiser steps, instead of --tokens")->check(positive);
  command
      ->add_option("--kind", o.kind,
                   "clt: features write into all later MLPs; plt: into their own (default: clt)")
      ->check(IsMember({"clt", "plt"}));
  command->add_option("--width", o.train.features, "Features of each layer (default: 4096)")
      ->check(Range(1, 1 << 24));
  command
      ->add_option("--l0", o.train.step.l0,
                   "Features that fire per token and layer, on average (default: 16)")
      ->check(PositiveNumber());
  command
      ->add_option("--activation", o.activation,
                   "jumprelu, batchtopk or topk (plt only) (default: jumprelu)")
      ->check(IsMember({"jumprelu", "batchtopk", "topk"}));
  command
      ->add_option("--reads", o.reads,
                   "normalized: what the MLP's norm makes of the stream; resid_mid: the stream "
                   "(default: normalized where the norm stands in front)")
      ->check(IsMember({"normalized", "resid_mid"}));
  command
      ->add_option("--context", o.train.data.context,
                   "Tokens of a window (default: the model's positions, at most 256)")
      ->check(Range(2, 1 << 20));
  command
      ->add_option("--batch", o.train.data.rows,
                   "Tokens of a step, shared by all ranks (default: 4096)")
      ->check(positive);
  command
      ->add_option("--shuffle", o.train.data.steps_at_once,
                   "Steps whose tokens are made together and mixed (default: 8)")
      ->check(Range(1, 1 << 16));
  command
      ->add_option("--lr", o.train.lr,
                   "Peak learning rate (default: 0.003 at 4096 features, as 1/sqrt(width))")
      ->check(PositiveNumber());
  command
      ->add_option("--dead-after", o.train.dead_after,
                   "Tokens without firing after which a feature is revived (default: 100000)")
      ->check(positive);
  AddRunOptions(command, &o.train.run, &o.wire, "only the end");
  command->add_flag("--lines", o.lines, "Start every window at the beginning of a line");
  command->add_option("--dtype", o.dtype, "Of the files: f32, bf16 or f16 (default: f32)")
      ->check(IsMember({"f32", "bf16", "f16"}));
  command->add_flag("--dry-run", o.dry_run, "Only print what memory it takes");
}

}  // namespace clearhead::cli
