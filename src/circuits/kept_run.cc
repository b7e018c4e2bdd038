// SPDX-License-Identifier: MIT
#include "circuits/kept_run.h"

#include <algorithm>
#include <numeric>

#include "circuits/task_score.h"
#include "core/threads.h"
#include "model/head_weights.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

class KeepOutputs final : public Hooks {
 public:
  KeepOutputs(KeptRun& run, const ModelConfig& config)
      : run_(run), keeps_scale_(config.norm_place == NormPlace::kAfter) {
    for (auto* list :
         {&run.resid_pre, &run.resid_mid, &run.z, &run.mlp_out, &run.attention_scale}) {
      list->resize(static_cast<std::size_t>(config.layers));
    }
  }

  bool Wants(TapId id) const override { return Place(id) != nullptr; }

  void Visit(TapId id, const TensorView<float>& value) override {
    Buffer<float>& place = *Place(id);
    place = Buffer<float>(value.shape.size());
    CopyTo(value, place.data());
  }

 private:
  Buffer<float>* Place(TapId id) const {
    const auto layer = static_cast<std::size_t>(id.layer);
    switch (id.tap) {
      case Tap::kResidPre:
        return &run_.resid_pre[layer];
      case Tap::kResidMid:
        return &run_.resid_mid[layer];
      case Tap::kZ:
        return &run_.z[layer];
      case Tap::kMlpOut:
        return &run_.mlp_out[layer];
      case Tap::kLn1Scale:
        return keeps_scale_ ? &run_.attention_scale[layer] : nullptr;
      default:
        return nullptr;
    }
  }

  KeptRun& run_;
  bool keeps_scale_;
};

}  // namespace

Buffer<float> LastRows(std::int64_t batch, std::int64_t length, std::int64_t width,
                       const float* rows) {
  Buffer<float> last(batch * width);
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* row = rows + (b * length + length - 1) * width;
    std::copy(row, row + width, last.data() + b * width);
  }
  return last;
}

std::vector<double> LastMetrics(const Pass& pass, const TaskSet& set, const TaskBatch& batch,
                                const float* normalized) {
  const std::int64_t V = pass.config().vocabulary, C = pass.config().width;
  std::vector<double> metrics(static_cast<std::size_t>(pass.batch));
  const auto item = [&](std::int64_t r) -> const TaskItem& {
    return set.items[batch.items[static_cast<std::size_t>(r % batch.size())]];
  };
  if (set.metric == TaskMetric::kLogitDifference) {
    ParallelFor(pass.batch, [&](std::int64_t r) {
      const float* row = normalized + r * C;
      metrics[static_cast<std::size_t>(r)] = LogitDifference(item(r), [&](std::int32_t id) {
        const std::vector<float> token = OutputRow(pass.model, id);
        return std::inner_product(row, row + C, token.begin(), 0.0);
      });
    });
    return metrics;
  }
  constexpr std::int64_t kLogitRows = 256;  // at a time
  Buffer<float> logits(std::min(pass.batch, kLogitRows) * V);
  for (std::int64_t first = 0; first < pass.batch; first += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, pass.batch - first);
    LogitsForward(pass, rows, normalized + first * C, logits.data());
    ParallelFor(rows, [&](std::int64_t r) {
      metrics[static_cast<std::size_t>(first + r)] = TaskMetricOf(
          item(first + r), set.metric, {logits.data() + r * V, static_cast<std::size_t>(V)});
    });
  }
  return metrics;
}

KeptRun RunAndKeep(const Model& model, const TaskSet& set, const TaskBatch& batch, bool corrupted) {
  const ModelConfig& config = model.config;
  KeptRun run{.cache = KeyValueCache(config, batch.size(), batch.length)};
  KeepOutputs hooks(run, config);
  const Pass pass{.model = model,
                  .batch = batch.size(),
                  .length = batch.length,
                  .hooks = &hooks,
                  .cache = &run.cache};
  Activations activations(config, batch.size(), batch.length, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, batch.Prompts(corrupted).data(), activations);
  const Buffer<float> last = LastRows(batch.size(), batch.length, config.width, activations.ln_f);
  run.metrics = LastMetrics(pass, set, batch, last.data());
  return run;
}

}  // namespace clearhead
