// SPDX-License-Identifier: MIT
#include "viewer/prompt_run.h"

#include <algorithm>

#include "core/buffer.h"
#include "core/threads.h"
#include "features/feature_run.h"
#include "heads/head_map.h"
#include "heads/layer_matrices.h"
#include "model/intervention.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

constexpr std::int64_t kLogitRows = 32;  // logits that exist at a time

class PromptHooks final : public Hooks {
 public:
  PromptHooks(const ModelConfig& config, std::span<const std::int32_t> ids,
              const PromptRunOptions& options, Activations* activations, PromptRun* run)
      : config_(config),
        options_(options),
        activations_(activations),
        run_(run),
        copies_(EarlierCopies(ids)),
        sums_(static_cast<std::size_t>(config.layers * config.heads)) {
    for (const HeadId head : options.ablated) {
      changes_.push_back({.tap = {Tap::kZ, head.layer}, .heads = {head.head}});
    }
    for (const AttentionCell& cell : options.cut) {
      changes_.push_back({.tap = {Tap::kPattern, cell.head.layer},
                          .positions = {cell.query},
                          .heads = {cell.head.head},
                          .keys = {cell.key}});
    }
    for (const Intervention& change : changes_) CheckIntervention(change, config, 1, run->length);
  }

  bool Wants(TapId id) const override {
    const bool patterns = options_.heads || options_.whole_head || options_.position;
    return (patterns && id.tap == Tap::kPattern) || Changes(id);
  }
  bool Changes(TapId id) const override {
    return std::any_of(changes_.begin(), changes_.end(),
                       [&](const Intervention& change) { return change.tap == id; });
  }

  float* Storage(TapId id, const Shape& shape) override { return matrices_.Place(id, shape); }

  void Visit(TapId id, const TensorView<float>& value) override {
    if (options_.cancelled && options_.cancelled()) throw Cancelled("the run was cancelled");
    for (const Intervention& change : changes_) {
      if (change.tap == id) ApplyIntervention(change, value);
    }
    if (id.tap != Tap::kPattern) return;
    Keep(id.layer, value.data);
    LayerMatrices::ForgetBefore(id.layer, *activations_);
  }

  std::vector<HeadResult> Heads() const {
    std::vector<HeadResult> heads;
    for (std::size_t h = 0; h < sums_.size(); ++h) {
      const auto at = static_cast<std::int64_t>(h);
      HeadResult& result = heads.emplace_back();
      result.statistics = sums_[h].Finish({at / config_.heads, at % config_.heads});
      result.name = NameHead(result.statistics);
    }
    return heads;
  }

 private:
  void Keep(std::int64_t layer, const float* weights) {
    const std::int64_t T = run_->length, n = run_->cells;
    ParallelFor(config_.heads, [&](std::int64_t head) {
      const float* map = weights + head * T * T;
      const std::int64_t h = layer * config_.heads + head;
      if (options_.heads) {
        sums_[static_cast<std::size_t>(h)].Add(map, T, copies_);
        const HeadMap reduced = ReduceMap({layer, head}, map, T, options_.cells);
        Check(reduced.cells == n, "every head's map has the same cells");
        std::copy(reduced.weights.begin(), reduced.weights.end(), run_->maps.begin() + h * n * n);
      }
      if (options_.whole_head == HeadId{layer, head}) run_->whole.assign(map, map + T * T);
      if (!options_.position) return;
      const std::int64_t p = *options_.position;
      std::copy(map + p * T, map + (p + 1) * T, run_->reads.begin() + h * T);
      for (std::int64_t i = 0; i < T; ++i) {
        run_->read_by[static_cast<std::size_t>(h * T + i)] = map[i * T + p];
      }
    });
  }

  const ModelConfig& config_;
  const PromptRunOptions& options_;
  Activations* activations_;
  PromptRun* run_;
  std::vector<std::int64_t> copies_;
  std::vector<HeadAccumulator> sums_;
  std::vector<Intervention> changes_;
  LayerMatrices matrices_;
};

void AddPredictions(const Pass& pass, std::span<const std::int32_t> ids, const Activations& acts,
                    const PromptRunOptions& options, PromptRun* run) {
  const std::int64_t T = run->length, V = pass.config().vocabulary, C = pass.config().width;
  run->predictions.resize(static_cast<std::size_t>(T));
  Buffer<float> logits(std::min(T, kLogitRows) * V);
  double sum = 0.0;
  for (std::int64_t first = 0; first < T; first += kLogitRows) {
    if (options.cancelled && options.cancelled()) throw Cancelled("the run was cancelled");
    const std::int64_t rows = std::min(kLogitRows, T - first);
    LogitsForward(pass, rows, acts.ln_f + first * C, logits.data());
    ParallelFor(rows, [&](std::int64_t row) {
      const std::span<const float> of_row(logits.data() + row * V, static_cast<std::size_t>(V));
      const auto t = static_cast<std::size_t>(first + row);
      PositionPrediction& prediction = run->predictions[t];
      prediction.likeliest = Likeliest(of_row, options.likeliest);
      if (t + 1 < ids.size()) {
        prediction.loss = LogSumExp(of_row) - of_row[static_cast<std::size_t>(ids[t + 1])];
      }
    });
  }
  for (const PositionPrediction& prediction : run->predictions) sum += prediction.loss.value_or(0);
  if (T > 1) run->loss = sum / static_cast<double>(T - 1);
}

}  // namespace

PromptRun RunPrompt(const Model& model, std::span<const std::int32_t> ids,
                    const PromptRunOptions& options) {
  const ModelConfig& config = model.config;
  const auto T = static_cast<std::int64_t>(ids.size());
  CheckTokens(config, ids, 1, T);
  Check(options.cells >= 1, "at least one cell");
  Check(!options.position || (*options.position >= 0 && *options.position < T), "a position");
  PromptRun run{.length = T};
  run.tokens_per_cell = (T + options.cells - 1) / options.cells;
  run.cells = (T + run.tokens_per_cell - 1) / run.tokens_per_cell;
  const std::int64_t heads = config.layers * config.heads;
  if (options.heads) run.maps.resize(static_cast<std::size_t>(heads * run.cells * run.cells));
  if (options.position) {
    run.reads.resize(static_cast<std::size_t>(heads * T));
    run.read_by.resize(static_cast<std::size_t>(heads * T));
  }
  Activations activations(config, 1, T, Keep::kNothing, 0);
  PromptHooks hooks(config, ids, options, &activations, &run);
  std::optional<FeatureRun> outer;
  if (!options.features.empty()) {
    Check(options.transcoder != nullptr, "changed features are a transcoder's");
    for (const FeatureIntervention& change : options.features) {
      CheckFeatureIntervention(change, options.transcoder->config, T);
    }
    outer.emplace(model, *options.transcoder,
                  FeatureRunOptions{.interventions = options.features, .keep_active = false},
                  &hooks);
  }
  const Pass pass{.model = model,
                  .batch = 1,
                  .length = T,
                  .hooks = outer ? static_cast<Hooks*>(&*outer) : &hooks,
                  .gates = {.open = options.open_gates, .sum_probabilities = false}};
  ForwardToFinalNorm(pass, ids.data(), activations);
  if (options.heads) {
    run.heads = hooks.Heads();
    run.summary = Summarise(run.heads);
  }
  if (options.predictions) AddPredictions(pass, ids, activations, options, &run);
  return run;
}

}  // namespace clearhead
