// SPDX-License-Identifier: MIT
#include "train/transcoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "features/transcoder_files.h"
#include "model/fingerprint.h"
#include "train/checkpoint.h"
#include "train/run_settings.h"
#include "train/schedule.h"

namespace clearhead {
namespace {
constexpr double kThresholdMemory = 0.95;   // of the running mean of batch thresholds
constexpr std::int64_t kValidSteps = 4;     // batches of a validation
constexpr double kStartingFeatures = 64.0;  // that fire per row and layer at first (JumpReLU)
constexpr double kLeastPenalty = 1e-5;      // (JumpReLU) and where it starts
constexpr double kPenaltyRate = 0.15;       // how fast it follows the number of features

TranscoderShape ShapeOf(const ModelConfig& config, const TranscoderOptions& o) {
  return {.kind = o.kind,
          .layers = config.layers,
          .width = config.width,
          .features = o.features,
          .thresholds = o.step.rule == FiringRule::kJumpRelu};
}

TranscoderDataOptions DataOptions(const TranscoderOptions& o, bool valid) {
  TranscoderDataOptions data = o.data;
  if (valid) {
    data.seed = HashCoordinates(o.data.seed, {5});
    data.steps_at_once = 1;
    data.starts.clear();
  }
  return data;
}

std::string_view NameOf(FiringRule rule) {
  switch (rule) {
    case FiringRule::kTopK:
      return "topk";
    case FiringRule::kBatchTopK:
      return "batchtopk";
    case FiringRule::kJumpRelu:
      break;
  }
  return "jumprelu";
}

Json SettingsOf(const Model& model, std::span<const std::int32_t> train, const TranscoderOptions& o,
                double lr) {
  return {{"model", ToJson(model.config, "float32")},
          {"model_hash", WeightsFingerprint(model)},
          {"tokens", train.size()},
          {"text_hash", TokensFingerprint(train)},
          {"kind", NameOf(o.kind)},
          {"features", o.features},
          {"activation", NameOf(o.step.rule)},
          {"l0", o.step.l0},
          {"aux", o.step.aux},
          {"context", o.data.context},
          {"batch", o.data.rows},
          {"shuffle", o.data.steps_at_once},
          {"reads", TapName({o.data.reads, 0})},
          {"starts", o.data.starts.size()},
          {"dead_after", o.dead_after},
          {"steps", o.steps},
          {"lr", lr},
          {"seed", o.data.seed}};
}

void CheckOptions(const ModelConfig& config, const TranscoderOptions& o) {
  if (o.features < 1 || o.features > (1 << 24)) {
    Fail("{} features of each layer were asked for; 1 to {} are possible", o.features, 1 << 24);
  }
  if (!(o.step.l0 >= 0.1) || o.step.l0 > static_cast<double>(o.features)) {
    Fail("an L0 of {} was asked for; it must lie between 0.1 and the {} features of a layer",
         o.step.l0, o.features);
  }
  if (o.data.rows < 1 || o.data.steps_at_once < 1 || o.steps < 1) {
    Fail(
        "a batch of {} tokens, a buffer of {} batches and {} steps were asked for; each must be "
        "at least 1",
        o.data.rows, o.data.steps_at_once, o.steps);
  }
  if (o.data.reads == Tap::kLn2Normalized && config.norm_place != NormPlace::kBefore) {
    Fail("this model's norms stand behind its MLPs; its features can only read hook_resid_mid");
  }
  if (o.step.rule == FiringRule::kTopK && o.kind == TranscoderKind::kCrossLayer) {
    Fail(
        "files of cross-layer features have no place for a k; train them with batchtopk, or "
        "per-layer features with topk");
  }
}

class TranscoderRun final : public TrainingRun {
 public:
  TranscoderRun(const Model& model, std::span<const std::int32_t> train,
                std::span<const std::int32_t> valid, const TranscoderOptions& options,
                const TranscoderCallbacks& callbacks)
      : options_(options),
        callbacks_(callbacks),
        shape_(ShapeOf(model.config, options)),
        lr_(options.lr > 0.0 ? options.lr
                             : 3e-3 * std::sqrt(4096.0 / static_cast<double>(options.features))),
        settings_(SettingsOf(model, train, options, lr_)),
        ranks_(options.run.together.ranks),
        data_(model, train, DataOptions(options, false), ranks_),
        step_(shape_, options.step, options.data.rows, ranks_),
        block_({{ParameterCount(shape_), false}}, options.run.together),
        weights_(Bind(shape_, block_.values().data())),
        gradients_(Bind(shape_, block_.gradients().data())) {
    const auto features = static_cast<std::size_t>(shape_.layers * shape_.features);
    silent_for_.assign(features, 0);
    silent_.assign(features, 0);
    fired_.assign(features, 0.0f);
    units_ = data_.MeasureUnits();
    data_.SetUnits(units_);
    if (!valid.empty()) {
      valid_.emplace(model, valid, DataOptions(options, true), ranks_);
      valid_->SetUnits(units_);
    }
    FillStart(shape_, options.data.seed, block_.values().data());
    if (shape_.thresholds && !options.run.resume) StartThresholds();
    penalty_weight_ = shape_.thresholds ? kLeastPenalty : 0.0;
  }

  std::int64_t steps() const override { return options_.steps; }
  double tokens_per_step() const override { return static_cast<double>(options_.data.rows); }
  double loss_of_guessing() const override { return 1.0; }  // the mean explains nothing
  Json Settings() const override { return settings_; }
  ParameterBlock& parameters() override { return block_; }

  RunStep Gradients(std::int64_t step) override {
    const TranscoderRows batch = data_.Step(step);
    measure_ =
        step_.Gradients(batch, weights_, gradients_, static_cast<float>(penalty_weight_), silent_);
    NoteSilent();
    NoteThresholds();
    FollowPenalty(step);
    progress_lr_ = WarmHoldDecay(lr_, options_.steps, step);
    block_.SumGradients();
    const double norm = block_.GradientNorm();
    RunStep done{.loss = measure_.loss, .gradient_norm = norm, .lr = progress_lr_};
    done.metrics = {{"loss", measure_.loss}, {"unexplained", measure_.unexplained},
                    {"l0", measure_.l0},     {"dead_share", dead_share()},
                    {"lr", progress_lr_},    {"gradient_norm", norm}};
    if (shape_.thresholds) done.metrics["penalty_weight"] = penalty_weight_;
    return done;
  }

  // Adam as it is, over all rows. A row whose feature did not fire has no gradient but still moves
  // by its momentum, so leaving it out would be another method; and this is a fiftieth of a step.
  void Update(double lr, double norm) override {
    block_.Step({.beta1 = 0.9f, .beta2 = 0.999f, .weight_decay = 0.0f, .clip_norm = 0.0f}, lr,
                norm);
    // Nothing comes near the threshold of a silent feature, so it has no gradient: it falls.
    for (std::size_t i = 0; shape_.thresholds && i < silent_.size(); ++i) {
      if (silent_[i] == 0) continue;
      const auto F = static_cast<std::size_t>(shape_.features);
      weights_[i / F].threshold[i % F] -= static_cast<float>(lr);
    }
  }

  bool Evaluate(Json& line) override {
    if (!valid_) return false;
    quality_ = MeasureValid();
    line["valid_unexplained"] = quality_->unexplained;
    line["valid_l0"] = quality_->l0;
    return false;
  }

  Json State() const override {
    return {{"silent_for", silent_for_},
            {"thresholds", averaged_},
            {"penalty_weight", penalty_weight_}};
  }
  void Restore(const Json& state, const std::string& source) override {
    silent_for_ = state.at("silent_for").get<std::vector<std::int64_t>>();
    averaged_ = state.at("thresholds").get<std::vector<double>>();
    penalty_weight_ = state.at("penalty_weight").get<double>();
    if (silent_for_.size() != silent_.size()) {
      Fail("{}: it is of {} features, this run has {}", source, silent_for_.size(), silent_.size());
    }
    MarkSilent();
  }

  void OnStep(std::int64_t step, double rate) override {
    if (!callbacks_.on_step) return;
    callbacks_.on_step({step, steps(), measure_, dead_share(), progress_lr_, rate});
  }

  Transcoder Result(const Model& model) const {
    TranscoderConfig config{
        .kind = options_.kind,
        .activation = options_.step.rule == FiringRule::kTopK ? FeatureActivation::kTopK
                                                              : FeatureActivation::kJumpRelu,
        .layers = shape_.layers,
        .width = shape_.width,
        .features = shape_.features,
        .k = options_.step.rule == FiringRule::kTopK ? std::llround(options_.step.l0) : 0,
        .reads = options_.data.reads,
        .model = options_.model_name,
        .model_hash = fmt::format("{:016x}", WeightsFingerprint(model)),
        .first_position = 1};
    return FoldUnits(shape_, weights_, units_, Thresholds(), config);
  }

  double dead_share() const {
    return static_cast<double>(std::count(silent_.begin(), silent_.end(), 1)) /
           static_cast<double>(silent_.size());
  }
  const TranscoderMeasure& measure() const { return measure_; }
  const std::optional<TranscoderQuality>& quality() const { return quality_; }

 private:
  void StartThresholds() {
    const TranscoderRows batch = data_.Step(0);
    const double share = std::min(0.5, kStartingFeatures / static_cast<double>(shape_.features));
    for (std::int64_t l = 0; l < shape_.layers; ++l) {
      const std::vector<float> start = step_.QuantileThresholds(batch, weights_, l, share);
      for (std::size_t f = 0; f < start.size(); ++f) {
        weights_[static_cast<std::size_t>(l)].threshold[f] = std::log(start[f]) / kThresholdRate;
      }
    }
  }

  void NoteSilent() {
    const std::int64_t F = shape_.features;
    std::fill(fired_.begin(), fired_.end(), 0.0f);
    for (std::int64_t l = 0; l < shape_.layers; ++l) {
      for (const std::int32_t f : step_.fired(l).column) {
        fired_[static_cast<std::size_t>(l * F + f)] = 1.0f;
      }
    }
    if (ranks_ != nullptr) {  // on any of them
      ranks_->StartReduceScatter(fired_);
      ranks_->WaitAll();
      ranks_->StartAllGather(fired_);
      ranks_->WaitAll();
    }
    for (std::size_t i = 0; i < silent_for_.size(); ++i) {
      silent_for_[i] = fired_[i] > 0.0f ? 0 : silent_for_[i] + options_.data.rows;
    }
    MarkSilent();
  }
  void MarkSilent() {
    for (std::size_t i = 0; i < silent_.size(); ++i) {
      silent_[i] = silent_for_[i] > options_.dead_after ? 1 : 0;
    }
  }

  void NoteThresholds() {
    if (options_.step.rule != FiringRule::kBatchTopK) return;
    const std::vector<float>& now = step_.batch_thresholds();
    if (averaged_.empty()) averaged_.assign(now.begin(), now.end());
    for (std::size_t l = 0; l < now.size(); ++l) {
      averaged_[l] = kThresholdMemory * averaged_[l] + (1.0 - kThresholdMemory) * now[l];
    }
  }

  // The penalty's weight rises while more features fire than wanted. What is wanted falls from
  // where thresholds start to l0 over the first third of the run.
  void FollowPenalty(std::int64_t step) {
    if (!shape_.thresholds) return;
    double l0 = 0.0;
    for (const double l : measure_.l0) l0 += l / static_cast<double>(shape_.layers);
    const double left =
        std::max(0.0, 1.0 - 3.0 * static_cast<double>(step) / static_cast<double>(steps()));
    const double wanted =
        options_.step.l0 * std::pow(std::max(1.0, kStartingFeatures / options_.step.l0), left);
    const double error = std::clamp(std::log(std::max(l0, 1e-3) / wanted), -1.0, 1.0);
    penalty_weight_ =
        std::clamp(penalty_weight_ * std::exp(kPenaltyRate * error), kLeastPenalty, 1.0);
  }

  std::vector<std::vector<float>> Thresholds() const {
    std::vector<std::vector<float>> thresholds(static_cast<std::size_t>(shape_.layers));
    for (std::size_t l = 0; l < thresholds.size(); ++l) {
      const auto F = static_cast<std::size_t>(shape_.features);
      if (!shape_.thresholds) {
        thresholds[l].assign(F, averaged_.empty() ? 0.0f : static_cast<float>(averaged_[l]));
        continue;
      }
      for (std::size_t f = 0; f < F; ++f) {
        thresholds[l].push_back(std::exp(kThresholdRate * weights_[l].threshold[f]));
      }
    }
    return thresholds;
  }

  TranscoderQuality MeasureValid() {
    TranscoderQuality q;
    const auto L = static_cast<std::size_t>(shape_.layers);
    q.unexplained.assign(L, 0.0);
    q.l0.assign(L, 0.0);
    const std::vector<std::vector<float>> thresholds = Thresholds();
    for (std::int64_t s = 0; s < kValidSteps; ++s) {
      const TranscoderRows rows = valid_->Step(s);
      const TranscoderMeasure m = step_.Measure(rows, weights_, thresholds);
      q.rows += rows.rows;
      for (std::size_t l = 0; l < L; ++l) {
        q.unexplained[l] += m.unexplained[l] / static_cast<double>(kValidSteps);
        q.l0[l] += m.l0[l] / static_cast<double>(kValidSteps);
      }
    }
    return q;
  }

  const TranscoderOptions& options_;
  const TranscoderCallbacks& callbacks_;
  TranscoderShape shape_;
  double lr_;
  Json settings_;
  Communicator* ranks_;  // null: one alone
  TranscoderData data_;
  std::optional<TranscoderData> valid_;
  std::vector<LayerUnits> units_;
  TranscoderStep step_;
  ParameterBlock block_;
  std::vector<TranscoderTensors> weights_, gradients_;
  std::vector<std::int64_t> silent_for_;  // [l * F + f] tokens since it last fired
  std::vector<char> silent_;              // [l * F + f]
  std::vector<float> fired_;              // [l * F + f] whether it did in this step, on any rank
  std::vector<double> averaged_;          // [l] running mean of batch thresholds
  double penalty_weight_ = 0.0;
  TranscoderMeasure measure_;
  double progress_lr_ = 0.0;
  std::optional<TranscoderQuality> quality_;
};

}  // namespace

TranscoderResult TrainTranscoder(const Model& model, std::span<const std::int32_t> train,
                                 std::span<const std::int32_t> valid,
                                 const TranscoderOptions& options, const std::filesystem::path& out,
                                 const TranscoderCallbacks& callbacks) {
  CheckOptions(model.config, options);
  CheckVocabulary(train, model.config.vocabulary);
  CheckVocabulary(valid, model.config.vocabulary);
  if (!options.run.resume) RefuseAnotherRun(out);
  TranscoderRun run(model, train, valid, options, callbacks);
  const RunOutcome outcome = RunTraining(run, options.run, out, callbacks.should_stop);
  if (outcome.finished && options.run.together.writes()) {
    SaveTranscoder(run.Result(model), out, options.dtype);
    RemoveCheckpoints(CheckpointFolder(out));
  }
  return {.finished = outcome.finished,
          .step = outcome.step,
          .last = run.measure(),
          .dead_share = run.dead_share(),
          .valid = run.quality(),
          .seconds = outcome.seconds,
          .tokens_per_second = outcome.tokens_per_second};
}

std::vector<MemoryItem> TranscoderMemoryPlan(const ModelConfig& config,
                                             const TranscoderOptions& o) {
  const std::int64_t parameters = ParameterCount(ShapeOf(config, o)) * 4;
  const std::int64_t row = config.layers * config.width * 4;
  return {{"weights", parameters},
          {"gradients", parameters},
          {"Adam's moments", 2 * parameters},
          {"packed encoders", o.features * row},
          {"rows of the model", TranscoderData::BytesOf(config, DataOptions(o, false))},
          {"reconstructions", o.data.rows * row + o.data.rows / 8 * row}};
}

}  // namespace clearhead
