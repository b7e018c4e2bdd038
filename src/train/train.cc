// SPDX-License-Identifier: MIT
#include "train/train.h"

#include <cmath>

#include "core/random.h"
#include "train/checkpoint.h"
#include "train/run_settings.h"
#include "train/training_run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {
// Whatever changes the numbers of a run; a resumed one must agree.
Json TrainSettings(const Model& start, std::span<const std::int32_t> train, const TrainOptions& o) {
  Json json = StepSettings(start.config, train, o.shape);
  // A start drawn from the seed follows from the other settings.
  if (!o.drawn_start) json["start_hash"] = WeightsFingerprint(start);
  json.update({{"steps", o.schedule.total},
               {"warmup", o.schedule.warmup},
               {"lr", o.schedule.peak},
               {"weight_decay", o.optimizer.weight_decay},
               {"clip", o.optimizer.clip_norm},
               {"starts", o.starts.size()},
               {"seed", o.seed}});
  return json;
}

double ValidationLoss(const Model& model, std::span<const std::int32_t> valid,
                      const TrainOptions& o) {
  return Evaluate(model, valid,
                  {.context = o.shape.context,
                   .max_tokens = o.run.eval_tokens,
                   .ranks = o.run.together.ranks})
      .loss;
}

class LanguageRun final : public TrainingRun {
 public:
  LanguageRun(const Model& start, std::span<const std::int32_t> train,
              std::span<const std::int32_t> valid, const TrainOptions& options,
              const TrainCallbacks& callbacks)
      : options_(options),
        callbacks_(callbacks),
        valid_(valid),
        settings_(TrainSettings(start, train, options)),
        batches_(train, options.shape.context, HashCoordinates(options.seed, {1}), options.starts),
        optimizer_(start, options.optimizer, options.run.together),
        step_(start.config, options.shape, options.run.together.ranks) {}

  std::int64_t steps() const override { return options_.schedule.total; }
  double tokens_per_step() const override {
    return static_cast<double>(samples_per_step() * options_.shape.context);
  }
  double loss_of_guessing() const override {
    return std::log(static_cast<double>(optimizer_.model().config.vocabulary));
  }
  Json Settings() const override { return settings_; }
  ParameterBlock& parameters() override { return optimizer_.parameters(); }

  RunStep Gradients(std::int64_t step) override {
    const StepResult r = step_.Gradients(optimizer_, batches_, step * samples_per_step());
    const double lr = LearningRate(options_.schedule, step);
    last_ = {.loss = r.loss,
             .gradient_norm = r.gradient_norm,
             .lr = lr,
             .broken_rank = r.broken_rank,
             .metrics = {{"loss", r.loss}, {"lr", lr}, {"gradient_norm", r.gradient_norm}}};
    return last_;
  }
  void Update(double lr, double norm) override { optimizer_.Step(lr, norm); }

  bool Evaluate(Json& line) override {
    if (valid_.empty()) return false;
    valid_loss_ = ValidationLoss(model(), valid_, options_);
    line["valid_loss"] = *valid_loss_;
    return false;
  }

  void Restore(const Json&, const std::string&) override { optimizer_.Restored(); }
  bool PickTrained(std::span<const float> whole, std::span<float> out) const override {
    return optimizer_.PickTrained(whole, out);
  }

  void OnStep(std::int64_t step, double rate) override {
    if (!callbacks_.on_step) return;
    callbacks_.on_step(
        {step, steps(), last_.loss, valid_loss_, last_.lr, last_.gradient_norm, rate});
  }

  const Model& model() const { return optimizer_.model(); }
  double loss() const { return last_.loss; }
  std::optional<double> valid_loss() const { return valid_loss_; }

 private:
  std::int64_t samples_per_step() const {
    return options_.shape.batch * options_.shape.accumulation;
  }

  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  std::span<const std::int32_t> valid_;
  Json settings_;
  Batches batches_;
  Optimizer optimizer_;
  TrainStep step_;
  RunStep last_;
  std::optional<double> valid_loss_;
};

}  // namespace

TrainResult Train(const Model& start, std::span<const std::int32_t> train,
                  std::span<const std::int32_t> valid, const TrainOptions& options,
                  const std::filesystem::path& out, const TrainCallbacks& callbacks) {
  CheckStepShape(start.config, options.shape, options.schedule.total);
  CheckVocabulary(train, start.config.vocabulary);
  CheckVocabulary(valid, start.config.vocabulary);
  if (!options.run.resume) RefuseAnotherRun(out);
  LanguageRun run(start, train, valid, options, callbacks);
  const RunOutcome outcome = RunTraining(run, options.run, out, callbacks.should_stop);
  if (outcome.finished && options.run.together.writes()) {
    SaveModel(run.model(), out);
    RemoveCheckpoints(CheckpointFolder(out));
  }
  return {.finished = outcome.finished,
          .step = outcome.step,
          .loss = run.loss(),
          .valid_loss = run.valid_loss(),
          .seconds = outcome.seconds,
          .tokens_per_second = outcome.tokens_per_second};
}

}  // namespace clearhead
