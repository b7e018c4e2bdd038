// SPDX-License-Identifier: MIT
// clearhead sparsify MODEL: the same model with a fraction of its attention edges, at the same
// loss.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "cli/precision.h"
#include "cli/run_length.h"
#include "cli/run_options.h"
#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "figures/line_chart.h"
#include "figures/running_mean.h"
#include "text/token_stream.h"
#include "train/metrics_log.h"
#include "train/sparsify.h"
#include "train/training_run.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string model, from, valid, out, logits, precision = "auto", part = "all", wire = "fp32";
  std::vector<std::string> texts;
  RunLength length;
  SparsifyOptions sparsify;
  SparsifyWatch watch;
  bool lines = false, probe = false;
  double rest = 0.0;
  Option* rest_lr = nullptr;
};

struct Texts {
  std::vector<std::int32_t> train, valid;
};

// Without --valid the last tenth of the text is held out.
Texts ReadTexts(const Options& o, const Tokenizer& tokenizer) {
  Texts texts;
  if (o.sparsify.stored != nullptr) {
    texts.train = o.sparsify.stored->ids();
    texts.valid = EncodeDocument(tokenizer, o.valid);
    return texts;
  }
  texts.train = EncodeFiles(tokenizer, std::vector<fs::path>(o.texts.begin(), o.texts.end()));
  if (!o.valid.empty()) {
    texts.valid = EncodeDocument(tokenizer, o.valid);
  } else {
    const std::size_t kept = texts.train.size() - texts.train.size() / 10;
    texts.valid.assign(texts.train.begin() + static_cast<std::ptrdiff_t>(kept), texts.train.end());
    texts.train.resize(kept);
  }
  return texts;
}

// Losses as differences to the dense model's on the same tokens: batches differ far more among
// themselves than the two models do.
void Draw(const fs::path& out, double dense_loss, const SparsifyOptions& s) {
  Series raw{.faint = true}, allowed{.name = "allowed while training"};
  Series valid{.name = "validation, hard gates", .points_only = true};
  Series edges{.name = "open gates %", .axis = ChartAxis::kRight};
  for (const Json& line : ReadMetrics(out / "metrics.jsonl")) {
    const double step = line["step"].get<double>() + 1;
    for (Series* each : {&raw, &allowed, &edges}) each->x.push_back(step);
    raw.y.push_back(s.own_text ? line["divergence"].get<double>()
                               : line["loss"].get<double>() - line["dense_loss"].get<double>());
    allowed.y.push_back(line["slack"].get<double>());
    edges.y.push_back(100.0 * line["sampled_edge_fraction"].get<double>());
    if (line.contains("valid")) {
      valid.x.push_back(step);
      valid.y.push_back(line["valid"]["loss"].get<double>() - dense_loss);
    }
  }
  const double window = std::max(1.0, static_cast<double>(raw.x.size()) / 100.0);
  LineChart chart;
  chart.x_label = "step";
  chart.left_label = "loss above dense (nats)";
  chart.right_label = "open gates (%)";
  chart.log_right = true;
  chart.reference_lines = {{s.tolerance, "tolerance"}};
  chart.series = {raw,
                  {.name = "training", .x = raw.x, .y = RunningMean(raw.y, window)},
                  allowed,
                  valid,
                  edges};
  DrawLineChart(chart, out / "sparsify.svg");
}

std::string SweepText(const std::vector<SweepPoint>& points) {
  std::string text;
  for (const SweepPoint& p : points) {
    text +=
        fmt::format("  bias {:5.2f}: {:6.2f} % open gates, {:6.2f} keys per query, loss {:+.4f}\n",
                    p.bias, 100.0 * p.quality.edge_fraction, p.quality.edges_per_query, p.above);
  }
  return text;
}

std::string ProbeText(const RateProbe& probe) {
  std::string text = fmt::format(
      "rates of all but queries and keys, and the divergence that they lead to (from {:.4f}):\n",
      probe.start);
  for (const ProbePoint& p : probe.tried) {
    text += fmt::format("  {:.2g}: {:.4f}\n", p.rest_lr, p.divergence);
  }
  return text + fmt::format("  taken: {:.2g}\n", probe.chosen);
}

void Run(const Options& given) {
  Options o = given;
  const fs::path path = FindModel(o.model);
  const Model dense = LoadModel(path);
  if (dense.config.attention != AttentionKind::kSoftmax) {
    Fail("'{}' is gated already; give the dense model, and --from to go on with a sparse one",
         path.string());
  }
  SparsifyOptions& s = o.sparsify;
  if (o.texts.empty() == o.logits.empty()) FailUsage("give --text, or --logits with --valid");
  if (!o.logits.empty() && o.valid.empty()) FailUsage("--logits needs --valid, a text");
  s.optimizer.part = ParseTrainedPart(o.part);
  if (!o.from.empty()) {
    s.from = LoadModel(FindModel(o.from));
    if (s.from->config.attention != AttentionKind::kGated) {
      Fail("--from '{}' is dense; it takes a sparse model that was made of '{}'", o.from, o.model);
    }
  }
  CheckTrainedPart(s.optimizer.part, StartOf(dense, s).config);
  if (o.rest_lr->count() > 0) s.rest_lr = o.rest;
  if (o.probe) s.probe_steps = ProbeOptions{}.steps;
  if (o.probe && s.rest_lr) FailUsage("give --lr-rest or --probe-rates, not both");
  if (s.own_text && s.distill == 0.0f) {
    FailUsage(
        "--own-text learns by KL(dense || sparse) alone; --distill 0 leaves nothing to learn");
  }
  if (!o.logits.empty() && s.cut_vocabulary) {
    FailUsage("--cut-vocabulary: the logits of --logits are of the whole vocabulary");
  }
  std::optional<StoredLogits> stored;
  if (!o.logits.empty()) {
    stored.emplace(o.logits, dense.config);
    s.stored = &*stored;
    if (s.shape.context != 0) FailUsage("--context: with --logits it is the length stored there");
    s.shape.context = stored->length() - 1;  // the last token is only a target
    for (std::int64_t i = 0; i < stored->sequences(); ++i) s.starts.push_back(i * stored->length());
  }
  if (s.shape.context == 0) s.shape.context = std::min<std::int64_t>(dense.config.positions, 256);
  if (s.shape.context > dense.config.positions) {
    Fail("--context {}: the model has {} positions", s.shape.context, dense.config.positions);
  }
  s.steps = o.length.Steps(s.shape);
  if (s.steps < 1) FailUsage("--steps must be at least 1");
  s.warmup = std::min(s.warmup, s.steps / 10);
  s.seed = o.common.seed;
  s.shape.bf16 = UseBf16(o.precision);
  s.run.together = RanksOfRun(o.wire);
  if (!s.run.resume && fs::exists(fs::path(o.out) / "model.safetensors")) {
    Fail("'{}' holds a model already; choose another folder, or remove it", o.out);
  }
  if (!s.run.resume) RefuseAnotherRun(o.out);
  const Tokenizer tokenizer = Tokenizer::Load(path);
  if (tokenizer.vocabulary_size() > dense.config.vocabulary) {
    Fail("'{}': its tokenizer has {} tokens, the model only {}", path.string(),
         tokenizer.vocabulary_size(), dense.config.vocabulary);
  }
  const Texts texts = ReadTexts(o, tokenizer);
  CheckLongEnough(texts.train, s.shape.context);
  CheckLongEnough(texts.valid, s.shape.context);
  if (o.lines && !stored) s.starts = LineStarts(tokenizer, texts.train);
  if (Ranks().first()) MakeDirectory(o.out);

  InterruptGuard interrupt;
  std::optional<Progress> bar;
  SparsifyCallbacks callbacks;
  callbacks.should_stop = [&] { return interrupt.requested(); };
  const std::int64_t per_step = s.shape.batch * s.shape.accumulation * s.shape.context;
  callbacks.on_step = [&](const SparsifyProgress& p) {
    if (!bar) bar.emplace("sparsify", p.steps * per_step, "tok", RankProgress());
    bar->Update(
        p.step * per_step,
        fmt::format("step {}/{} loss {:.3f} (dense {:.3f}) edges {:.2f} % beta {:.3g}{}", p.step,
                    p.steps, p.result.loss, p.result.dense_loss, 100.0 * p.result.open_share,
                    p.beta,
                    p.quality ? fmt::format(" valid {:.4f}/{:.4f} {:.2f} keys", p.quality->loss,
                                            p.target, p.quality->edges_per_query)
                              : std::string()));
    if (o.watch && p.model != nullptr) {
      bar->Clear();
      o.watch(p);
    }
  };
  if (!o.common.json) {
    callbacks.on_untrained = [](const std::vector<SweepPoint>& points) {
      Print("gates on the weights as they are, the line to beat (loss above dense):\n" +
            SweepText(points));
    };
    callbacks.on_probe = [](const RateProbe& probe) { Print(ProbeText(probe)); };
  }
  const SparsifyResult r = Sparsify(dense, texts.train, texts.valid, s, o.out, callbacks);
  bar.reset();
  if (!r.finished && r.step == 0) throw Interrupted("interrupted before the first step");
  if (!r.finished) {
    throw Interrupted(
        fmt::format("interrupted at step {}; go on with the same command and --resume", r.step));
  }
  if (Ranks().first()) Draw(o.out, r.dense_loss, s);
  if (s.sweep_bias && !o.common.json) {
    Print("other biases, on the windows that choose (loss above dense):\n" + SweepText(r.swept));
  }
  const fs::path kept = r.best ? fs::path(o.out) : fs::path(o.out) / kLastModel;
  if (Ranks().first()) tokenizer.Save(kept);
  if (!r.best) {
    Fail(
        "no model within {} nats of the dense validation loss {:.4f} was found: the last had loss "
        "{:.4f} at {:.2f} % open gates and is kept in '{}'; train longer, lower --lr, or raise "
        "--tolerance (metrics.jsonl and sparsify.svg are in '{}')",
        s.tolerance, r.dense_loss, r.last.loss, 100.0 * r.last.edge_fraction, kept.string(), o.out);
  }
  Json json = {{"out", o.out},
               {"dense_loss", r.dense_loss},
               {"tolerance", s.tolerance},
               {"trained", ToText(s.optimizer.part)},
               {"best", QualityJson(*r.best)},
               {"last", QualityJson(r.last)},
               {"context", s.shape.context},
               {"steps", r.step},
               {"seconds", r.seconds},
               {"tokens_per_second", r.tokens_per_second},
               {"gate_bias", r.gate_bias},
               {"untrained", SweepJson(r.untrained)}};
  if (r.probe) json["probe"] = ProbeJson(*r.probe);
  if (s.sweep_bias) json["swept"] = SweepJson(r.swept);
  if (o.common.json) return PrintJson(json);
  Print(
      fmt::format("{}: loss {:.4f} (dense {:.4f}) at {:.2f} % open gates, {:.2f} keys per query "
                  "and head; {} steps in {} "
                  "({:.0f} tokens/s)\n",
                  o.out, r.best->loss, r.dense_loss, 100.0 * r.best->edge_fraction,
                  r.best->edges_per_query, r.step, FormatDuration(r.seconds), r.tokens_per_second));
}

}  // namespace

void AddSparsify(CLI::App& app, SparsifyWatch watch) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  o.watch = std::move(watch);
  SparsifyOptions& s = o.sparsify;
  s.shape = {.batch = 16, .context = 0};
  Command* command =
      AddCommand(app, "sparsify", "Close as many attention gates as the model's loss allows",
                 "clearhead sparsify my-model --text book.txt --tokens 10M --out my-model-sparse",
                 options, Run, RunsOn::kAllRanks);
  const auto positive = Range(std::int64_t{1}, std::int64_t{1} << 40);
  command->add_option("MODEL", o.model, "Folder or name of a dense model")->required();
  command->add_option("--text", o.texts, "Text files to train on");
  command->add_option("--logits", o.logits,
                      "Train on the sequences of this file instead, against the dense model's "
                      "logits stored there (ids, logits: as `capture` writes them)");
  command->add_option("--valid", o.valid,
                      "Text file for the constraint (default: the last tenth of the text)");
  command->add_option("--out", o.out, "Folder for the sparse model, its metrics and checkpoints")
      ->required();
  o.length.Add(command);
  command
      ->add_option("--tolerance", s.tolerance,
                   "Nats above the dense validation loss (default: 0.01)")
      ->check(NonNegativeNumber());
  command
      ->add_option("--context", s.shape.context,
                   "Tokens per sequence (default: the model's positions, at most 256)")
      ->check(Range(1, 1 << 20));
  command
      ->add_option("--batch", s.shape.batch,
                   "Sequences per pass, shared by all ranks (default: 16)")
      ->check(positive);
  command
      ->add_option("--accumulate", s.shape.accumulation, "Passes per optimiser step (default: 1)")
      ->check(positive);
  command->add_option("--lr", s.lr, "Peak learning rate (default: 0.001)")->check(PositiveNumber());
  o.rest_lr =
      command
          ->add_option("--lr-rest", o.rest,
                       "Peak rate of all that makes neither queries nor keys (default: --lr)")
          ->check(NonNegativeNumber());
  command->add_flag("--probe-rates", o.probe,
                    "Find --lr-rest: the fastest rate that does a well-trained model no harm");
  command->add_option("--warmup", s.warmup, "Steps of linear warm-up (default: 30)")
      ->check(NonNegativeNumber());
  Option* bias = command->add_option("--gate-bias", s.gate_bias,
                                     "Number added to every gate's logit (default: 2)");
  Option* head_bias = command->add_flag(
      "--head-bias", s.bias_by_head, "Train a gate bias of each head, which starts at --gate-bias");
  Option* from = command->add_option("--from", o.from,
                                     "Go on with a sparse model that was made of MODEL, instead of "
                                     "MODEL with gates");
  for (Option* option : {bias, head_bias}) from->excludes(option);
  command->add_flag("--sweep-bias", s.sweep_bias,
                    "Choose the bias at the end, on the second half of the validation text; the "
                    "figures are of the first");
  command
      ->add_option("--slack", s.slack,
                   "Nats of slack at the peak rate, falling with it (default: 0.06)")
      ->check(NonNegativeNumber());
  command->add_option("--push", s.push, "More slack at the start, gone at half time (default: 0.2)")
      ->check(NonNegativeNumber());
  command
      ->add_option("--lambda-init", s.multiplier.initial,
                   "Penalty weight at the start (default: 0.5)")
      ->check(PositiveNumber());
  command->add_option("--lambda-max", s.multiplier.maximum, "Largest penalty weight (default: 10)")
      ->check(PositiveNumber());
  command->add_option("--lambda-rate", s.multiplier.rate, "How fast it moves (default: 0.02)")
      ->check(PositiveNumber());
  command
      ->add_option("--settle", s.settle,
                   "Last share of the steps in which gates have no noise, as in use (default: 0)")
      ->check(Range(0.0, 1.0));
  command->add_flag("--hold", s.hold,
                    "Keep the penalty up where opening gates would not lower the loss");
  command->add_flag("--concentrate", s.concentrate,
                    "Press on heads with few open gates more than on those with many");
  command->add_flag("--cut-vocabulary", s.cut_vocabulary,
                    "Train over the tokens that the text has, of a large vocabulary the only ones "
                    "that cost time; figures and files are of all");
  command->add_option("--ema", s.multiplier.ema, "Averaging of the constraint (default: 0.9)")
      ->check(Range(0.0, 0.9999));
  command->add_option("--distill", s.distill, "Weight of KL(dense || sparse) (default: 1)")
      ->check(NonNegativeNumber());
  command->add_flag("--own-text", s.own_text,
                    "The dense model wrote the text: KL(dense || sparse) alone is fit and held");
  command->add_option("--train", o.part,
                      "What may change: all (default), attention, qk, or lora:R (merged on save)");
  AddRunOptions(command, &s.run, &o.wire, "twenty in the run");
  command->add_flag("--recompute", s.shape.recompute,
                    "Keep less for backward and compute it again: less memory");
  command->add_flag("--lines", o.lines, "Start every sequence at the beginning of a line");
  AddPrecision(command, &o.precision);
}

}  // namespace clearhead::cli
