// SPDX-License-Identifier: MIT
#include "train/sparsify.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "model/vocabulary_cut.h"
#include "train/checkpoint.h"
#include "train/frontier.h"
#include "train/run_settings.h"
#include "train/training_run.h"

namespace clearhead {
namespace {
Json SparsifySettings(const Model& dense, const Model& start, std::span<const std::int32_t> train,
                      std::span<const std::int32_t> valid, const SparsifyOptions& o) {
  Json json = StepSettings(start.config, train, o.shape);
  json.update({{"dense_hash", WeightsFingerprint(start)},
               {"trained", ToText(o.optimizer.part)},
               {"stored_logits", o.stored != nullptr},
               {"valid_hash", TokensFingerprint(valid)},
               {"steps", o.steps},
               {"warmup", o.warmup},
               {"lr", o.lr},
               {"decay", o.decay_fraction},
               {"tolerance", o.tolerance},
               {"slack", o.slack},
               {"push", o.push},
               {"distill", o.distill},
               {"lambda_init", o.multiplier.initial},
               {"lambda_max", o.multiplier.maximum},
               {"lambda_rate", o.multiplier.rate},
               {"ema", o.multiplier.ema},
               {"starts", o.starts.size()},
               {"seed", o.seed}});
  // What a run may leave out; without it, it is what it was before there was a choice.
  if (o.from) json["teacher_hash"] = WeightsFingerprint(dense);
  if (o.rest_lr) json["rest_lr"] = *o.rest_lr;
  if (o.concentrate) json["concentrate"] = true;
  if (o.own_text) json["own_text"] = true;
  if (o.hold) json["hold"] = true;
  if (o.settle > 0.0) json["settle"] = o.settle;
  if (o.sweep_bias) json["sweep_bias"] = true;
  if (o.cut_vocabulary) json["cut_vocabulary"] = true;
  return json;
}

// Linear warm-up, plateau, linear decay to 0.
double RateAt(const SparsifyOptions& o, std::int64_t step) {
  const double warm =
      o.warmup > 0 ? static_cast<double>(step + 1) / static_cast<double>(o.warmup) : 1.0;
  const double left =
      static_cast<double>(o.steps - step) / (o.decay_fraction * static_cast<double>(o.steps));
  return o.lr * std::min({1.0, warm, left});
}

double SlackAt(const SparsifyOptions& o, std::int64_t step) {
  const double done = static_cast<double>(step) / static_cast<double>(o.steps);
  return o.slack * RateAt(o, step) / o.lr + o.push * std::max(0.0, 1.0 - 2.0 * done);
}

GateMode GatesAt(const SparsifyOptions& o, std::int64_t step) {
  const double left = static_cast<double>(o.steps - step);
  return left <= o.settle * static_cast<double>(o.steps) ? GateMode::kHard : GateMode::kSampled;
}

// How often, and how far, the held multiplier looks whether more open gates would help; and how
// many nats they must buy, as a share of what counts as a full violation.
constexpr std::int64_t kLookEvery = 10;
constexpr double kLookShift = 1.0;
constexpr double kLeastGain = 0.1;

// Where the choice of the bias has windows of its own, the figures have the first half.
QualityWindows QuotedWindows(std::span<const std::int32_t> valid, const SparsifyOptions& o) {
  return {.tokens = o.sweep_bias ? valid.first(valid.size() / 2) : valid,
          .context = o.shape.context,
          .max_tokens = o.run.eval_tokens,
          .ranks = o.run.together.ranks};
}
QualityWindows ChoosingWindows(std::span<const std::int32_t> valid, const SparsifyOptions& o) {
  QualityWindows windows = QuotedWindows(valid, o);
  windows.tokens = valid.subspan(valid.size() / 2);
  return windows;
}

OptimizerOptions RatesOf(const SparsifyOptions& o) {
  OptimizerOptions optimizer = o.optimizer;
  if (o.rest_lr) optimizer.rest_rate = static_cast<float>(*o.rest_lr / o.lr);
  return optimizer;
}

SparsifyStepOptions StepOptionsOf(const SparsifyOptions& o) {
  return {.shape = o.shape,
          .distill = o.distill,
          .own_text = o.own_text,
          .seed = HashCoordinates(o.seed, {2}),
          .concentrate = o.concentrate,
          .stored = o.stored,
          .ranks = o.run.together.ranks};
}

// What steps are made of: the model, its gated copy and the text, over the text's own tokens where
// the vocabulary is cut.
struct Material {
  std::optional<VocabularyCut> cut;
  Model dense, gated;
  std::vector<std::int32_t> cut_train;
  std::span<const std::int32_t> train;
};
Material MaterialOf(const Model& dense, std::span<const std::int32_t> train,
                    const SparsifyOptions& o) {
  Material m{.dense = dense, .gated = StartOf(dense, o), .train = train};
  if (o.cut_vocabulary) {
    m.cut = CutToTokens(train, dense.config.vocabulary);
    m.dense = CutModel(m.dense, *m.cut);
    m.gated = CutModel(m.gated, *m.cut);
    m.cut_train = CutIds(train, *m.cut);
    m.train = m.cut_train;
  }
  return m;
}

class SparsifyRun final : public TrainingRun {
 public:
  SparsifyRun(const Model& dense, const Material& material, std::span<const std::int32_t> valid,
              const SparsifyOptions& options, const std::filesystem::path& best_folder,
              const SparsifyCallbacks& callbacks)
      : dense_(dense),
        material_(material),
        options_(options),
        best_folder_(best_folder),
        callbacks_(callbacks),
        windows_(QuotedWindows(valid, options)),
        settings_(SparsifySettings(dense, material.gated, material.train, valid, options)),
        dense_loss_(MeasureQuality(dense, windows_).loss),
        batches_(material.train, options.shape.context, HashCoordinates(options.seed, {1}),
                 options.starts),
        optimizer_(material.gated, RatesOf(options), options.run.together),
        step_(optimizer_.model().config, StepOptionsOf(options)),
        multiplier_(options.multiplier),
        progress_{.steps = options.steps, .target = target()} {}

  std::int64_t steps() const override { return options_.steps; }
  double tokens_per_step() const override {
    return static_cast<double>(options_.shape.batch * options_.shape.accumulation *
                               options_.shape.context);
  }
  double loss_of_guessing() const override {
    return std::log(static_cast<double>(dense_.config.vocabulary));
  }
  Json Settings() const override { return settings_; }
  ParameterBlock& parameters() override { return optimizer_.parameters(); }

  RunStep Gradients(std::int64_t step) override {
    const double lr = RateAt(options_, step), slack = SlackAt(options_, step);
    const double beta = multiplier_.beta();
    const SparsifyStepResult r =
        step_.Gradients(optimizer_, material_.dense, batches_, step, beta, GatesAt(options_, step));
    const bool held = Look(step);
    const double above = options_.own_text ? r.divergence : r.loss - r.dense_loss;
    multiplier_.Update(above - slack, held);
    progress_.result = r;
    progress_.beta = beta;
    progress_.slack = slack;
    progress_.lr = lr;
    RunStep done{.loss = r.loss,
                 .gradient_norm = r.gradient_norm,
                 .lr = lr,
                 .broken_rank = r.broken_rank,
                 .metrics = {{"loss", r.loss},
                             {"dense_loss", r.dense_loss},
                             {"divergence", r.divergence},
                             {"gate_probability", r.penalty},
                             {"sampled_edge_fraction", r.open_share},
                             {"beta", beta},
                             {"slack", slack},
                             {"lr", lr},
                             {"gradient_norm", r.gradient_norm}}};
    if (gain_) done.metrics["gain_of_opening"] = *gain_;
    return done;
  }
  void Update(double lr, double norm) override { optimizer_.Step(lr, norm); }

  bool Evaluate(Json& line) override {
    const Model& whole = Whole();
    quality_ = MeasureQuality(whole, windows_);
    progress_.model = &whole;
    const bool feasible = quality_->loss <= target();
    line["valid"] = QualityJson(*quality_);
    line["target"] = target();
    line["feasible"] = feasible;
    if (!feasible || (best_ && quality_->edge_fraction >= best_->edge_fraction)) return false;
    best_ = quality_;
    if (options_.run.together.writes()) SaveModel(whole, best_folder_);
    return true;  // the best model and the memory of it belong together
  }

  Json State() const override {
    Json state = {{"beta", multiplier_.beta()},
                  {"violation", multiplier_.average()},
                  {"last", QualityJson(quality_)},
                  {"best", QualityJson(best_)}};
    if (gain_) state["gain_of_opening"] = *gain_;
    if (options_.concentrate) state["concentrate_scale"] = step_.concentrate_scale();
    return state;
  }
  void Restore(const Json& state, const std::string& source) override {
    try {
      multiplier_.Restore(state.at("beta").get<double>(), state.at("violation").get<double>());
      quality_ = QualityOf(state.at("last"));
      best_ = QualityOf(state.at("best"));
      if (state.contains("gain_of_opening")) gain_ = state["gain_of_opening"].get<double>();
      if (options_.concentrate) {
        step_.RestoreConcentrateScale(state.at("concentrate_scale").get<double>());
      }
    } catch (const Json::exception&) {
      Fail("{}: not a checkpoint of sparsify", source);
    }
    optimizer_.Restored();
  }
  Json StateOfNumbers(std::span<const double> v) const override {
    if (v.size() != 10) return Json::object();
    const auto quality = [&](std::size_t at) {
      return v[at] == 0.0 ? Json() : QualityJson(SparseQuality{v[at + 1], v[at + 2], v[at + 3]});
    };
    return {{"beta", v[0]}, {"violation", v[1]}, {"last", quality(2)}, {"best", quality(6)}};
  }
  bool PickTrained(std::span<const float> whole, std::span<float> out) const override {
    return optimizer_.PickTrained(whole, out);
  }

  void OnStep(std::int64_t step, double rate) override {
    progress_.step = step;
    progress_.tokens_per_second = rate;
    progress_.quality = quality_;
    progress_.best = best_;
    if (callbacks_.on_step) callbacks_.on_step(progress_);
    progress_.model = nullptr;
  }

  double dense_loss() const { return dense_loss_; }
  double target() const { return dense_loss_ + options_.tolerance; }
  SparseQuality last() const { return quality_.value_or(SparseQuality{}); }
  std::optional<SparseQuality> best() const { return best_; }
  // What is measured and kept: as it is now, with every token of the vocabulary.
  const Model& Whole() {
    if (!material_.cut) return optimizer_.model();
    const Model& others = options_.from ? *options_.from : dense_;
    uncut_ = UncutModel(optimizer_.model(), others, *material_.cut);
    return uncut_;
  }
  const QualityWindows& windows() const { return windows_; }

 private:
  // Whether the penalty is to be held. Looks now and then, where it would fall.
  bool Look(std::int64_t step) {
    if (!options_.hold) return false;
    if (step % kLookEvery == 0 && multiplier_.average() > 0.0) {
      const double gain = step_.GainOfOpening(optimizer_.model(), kLookShift);
      gain_ = gain_ ? 0.5 * (*gain_ + gain) : gain;
    }
    return gain_ && *gain_ < kLeastGain * options_.multiplier.scale;
  }

  const Model& dense_;
  const Material& material_;
  const SparsifyOptions& options_;
  std::filesystem::path best_folder_;
  const SparsifyCallbacks& callbacks_;
  QualityWindows windows_;
  Json settings_;
  double dense_loss_;  // validation
  Batches batches_;
  Optimizer optimizer_;
  Model uncut_;
  SparsifyStep step_;
  Multiplier multiplier_;
  SparsifyProgress progress_;
  std::optional<SparseQuality> quality_, best_;  // last known; feasible with the fewest edges
  std::optional<double> gain_;  // of opening gates: mean of the looks, later ones count more
};

// A resumed run goes on with the rate that was found when it began. Nothing when stopped.
std::optional<RateProbe> Probe(const Material& m, const SparsifyOptions& o,
                               const std::filesystem::path& out,
                               const SparsifyCallbacks& callbacks) {
  const std::filesystem::path file = out / "probe.json";
  if (o.run.resume) return ProbeOf(ReadJsonFile(file), file.string());
  Batches batches(m.train, o.shape.context, HashCoordinates(o.seed, {3}), o.starts);
  SparsifyStep step(m.gated.config, StepOptionsOf(o));
  Communicator* ranks = o.run.together.ranks;
  const auto should_stop = [&] {  // all ranks or none
    const bool mine = callbacks.should_stop && callbacks.should_stop();
    return ranks == nullptr ? mine : ranks->Any(mine);
  };
  std::optional<RateProbe> probe = ProbeRestRate(
      m.gated, m.dense, o.optimizer, o.run.together, batches, step,
      {.steps = o.probe_steps, .lr = o.lr, .beta = o.multiplier.minimum}, should_stop);
  if (!probe) return std::nullopt;
  if (o.run.together.writes()) {
    MakeDirectory(out);
    WriteJsonFile(file, ProbeJson(*probe));
  }
  if (callbacks.on_probe) callbacks.on_probe(*probe);
  return probe;
}

// The bias with the fewest edges within the tolerance on the windows for choosing; as it is, where
// none is.
std::vector<SweepPoint> ChooseBias(const Model& dense, const QualityWindows& windows,
                                   double tolerance, Model* model) {
  std::vector<double> shifts;
  for (double shift = 1.0; shift >= -2.0; shift -= 0.25) shifts.push_back(shift);
  const double dense_loss = MeasureQuality(dense, windows).loss;
  std::vector<SweepPoint> points = SweepBias(*model, dense_loss, windows, shifts);
  if (const SweepPoint* best = FewestEdges(points, tolerance)) {
    model->config.gate_bias = static_cast<float>(best->bias);
  }
  return points;
}

}  // namespace

Model GatedCopy(const Model& dense, float bias, bool bias_by_head) {
  Model gated = dense;
  gated.config.attention = AttentionKind::kGated;
  gated.config.gate_bias = bias;
  gated.config.gate_bias_by_head = bias_by_head;
  if (!bias_by_head) return gated;
  struct Storage {
    std::shared_ptr<const void> base;
    std::vector<float> zeros;
  };
  const ModelConfig& config = gated.config;
  auto storage = std::make_shared<Storage>();
  storage->base = dense.storage;
  storage->zeros.resize(static_cast<std::size_t>(config.heads));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    gated.weights(Role::kGateBias, layer) = Weight(storage->zeros.data());
  }
  gated.storage = std::move(storage);
  return gated;
}

Model StartOf(const Model& dense, const SparsifyOptions& options) {
  if (!options.from) return GatedCopy(dense, options.gate_bias, options.bias_by_head);
  ModelConfig shape = options.from->config;
  Check(shape.attention == AttentionKind::kGated, "a dense model is no place to go on from");
  shape.attention = dense.config.attention;
  shape.gate_bias = dense.config.gate_bias;
  shape.gate_bias_by_head = false;
  if (ToJson(shape, "") != ToJson(dense.config, "")) {
    Fail(
        "the sparse model to go on from has another shape than the dense one; it must be made of "
        "it");
  }
  return *options.from;
}

SparsifyResult Sparsify(const Model& dense, std::span<const std::int32_t> train,
                        std::span<const std::int32_t> valid, const SparsifyOptions& options,
                        const std::filesystem::path& out, const SparsifyCallbacks& callbacks) {
  Check(dense.config.attention == AttentionKind::kSoftmax, "sparsify starts from a dense model");
  CheckStepShape(dense.config, options.shape, options.steps);
  CheckVocabulary(train, dense.config.vocabulary);
  CheckVocabulary(valid, dense.config.vocabulary);
  Check(options.stored == nullptr || !options.cut_vocabulary,
        "stored logits are of the whole vocabulary");
  if (!options.run.resume) RefuseAnotherRun(out);
  const std::filesystem::path best_folder = out / "best";
  const Material material = MaterialOf(dense, train, options);
  SparsifyResult result;
  result.untrained =
      SweepUntrained(dense, GatedCopy(dense, options.gate_bias, options.bias_by_head),
                     QuotedWindows(valid, options));
  if (callbacks.on_untrained) callbacks.on_untrained(result.untrained);
  SparsifyOptions chosen = options;
  if (options.probe_steps > 0) {
    result.probe = Probe(material, options, out, callbacks);
    if (!result.probe) return result;
    chosen.rest_lr = result.probe->chosen;
  }
  SparsifyRun run(dense, material, valid, chosen, best_folder, callbacks);
  if (options.run.together.writes()) {
    MakeDirectory(out);
    WriteRunStart({.dense_loss = run.dense_loss(),
                   .context = options.shape.context,
                   .tokens_per_step = run.tokens_per_step(),
                   .untrained = result.untrained},
                  out);
  }
  RunOptions run_options = options.run;
  if (run_options.eval_every == 0) {
    run_options.eval_every = std::max<std::int64_t>(1, options.steps / 20);
  }
  const RunOutcome outcome = RunTraining(run, run_options, out, callbacks.should_stop);
  result.finished = outcome.finished;
  result.step = outcome.step;
  result.dense_loss = run.dense_loss();
  result.last = run.last();
  result.best = run.best();
  result.seconds = outcome.seconds;
  result.tokens_per_second = outcome.tokens_per_second;
  if (!outcome.finished || !options.run.together.writes()) return result;
  Model kept = run.best() ? LoadModel(best_folder) : run.Whole();
  if (options.sweep_bias) {
    QualityWindows choosing = ChoosingWindows(valid, options), quoted = run.windows();
    choosing.ranks = quoted.ranks = nullptr;  // the others have left
    result.swept = ChooseBias(dense, choosing, options.tolerance, &kept);
    const SparseQuality quality = MeasureQuality(kept, quoted);
    if (run.best() || quality.loss <= run.target()) {
      result.best = quality;
    } else {
      result.last = quality;
    }
  }
  result.gate_bias = kept.config.gate_bias;
  SaveModel(kept, result.best ? out : out / kLastModel);
  std::error_code ignored;
  std::filesystem::remove_all(best_folder, ignored);
  RemoveCheckpoints(CheckpointFolder(out));
  return result;
}

}  // namespace clearhead
