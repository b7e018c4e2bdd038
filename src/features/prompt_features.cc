// SPDX-License-Identifier: MIT
#include "features/prompt_features.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "model/run.h"

namespace clearhead {
namespace {

class PromptFeatureHooks final : public Hooks {
 public:
  PromptFeatureHooks(const Transcoder& transcoder, const PromptFeaturesOptions& options,
                     PromptFeatures* result)
      : transcoder_(transcoder), options_(options), result_(result) {}

  bool Wants(TapId id) const override { return id.tap == transcoder_.config.reads || Changes(id); }
  bool Changes(TapId id) const override {
    return std::any_of(options_.interventions.begin(), options_.interventions.end(),
                       [&](const Intervention& change) { return change.tap == id; });
  }
  void Visit(TapId id, const TensorView<float>& value) override {
    for (const Intervention& change : options_.interventions) {
      if (change.tap == id) ApplyIntervention(change, value);
    }
    if (id.tap != transcoder_.config.reads) return;
    if (options_.between_layers) options_.between_layers();
    Keep(id.layer, Encode(transcoder_, id.layer, result_->length, value.data));
  }

 private:
  void Keep(std::int64_t layer, const SparseRows& active) {
    ParallelFor(result_->length - 1, [&](std::int64_t before) {
      const std::int64_t t = before + 1;
      FiringCell& cell = result_->cells[static_cast<std::size_t>(layer * result_->length + t)];
      for (std::int64_t e = active.begin[t]; e < active.begin[t + 1]; ++e) {
        double norm = 0.0;
        for (const float part : WrittenNorms(transcoder_, {layer, active.column[e]})) {
          norm += double{part} * part;
        }
        cell.strongest.push_back({active.column[e], active.value[e],
                                  active.value[e] * static_cast<float>(std::sqrt(norm))});
      }
      cell.active = static_cast<std::int64_t>(cell.strongest.size());
      std::stable_sort(cell.strongest.begin(), cell.strongest.end(),
                       [](const FiringFeature& a, const FiringFeature& b) {
                         return std::abs(a.written) > std::abs(b.written);
                       });
      if (cell.active > options_.strongest) {
        cell.strongest.resize(static_cast<std::size_t>(options_.strongest));
      }
    });
  }

  const Transcoder& transcoder_;
  const PromptFeaturesOptions& options_;
  PromptFeatures* result_;
};

}  // namespace

std::vector<float> WrittenNorms(const Transcoder& transcoder, FeatureId id) {
  std::vector<float> norms, row(static_cast<std::size_t>(transcoder.config.width));
  for (std::int64_t t = id.layer; t < LastTarget(transcoder.config, id.layer); ++t) {
    DecoderRow(transcoder, id.layer, id.feature, t, row.data());
    double sum = 0.0;
    for (const float value : row) sum += double{value} * value;
    norms.push_back(static_cast<float>(std::sqrt(sum)));
  }
  return norms;
}

PromptFeatures FeaturesOfPrompt(const Model& model, const Transcoder& transcoder,
                                std::span<const std::int32_t> ids,
                                const PromptFeaturesOptions& options) {
  const auto T = static_cast<std::int64_t>(ids.size());
  CheckTokens(model.config, ids, 1, T);
  for (const Intervention& change : options.interventions) {
    CheckIntervention(change, model.config, 1, T);
  }
  PromptFeatures result{.length = T, .layers = transcoder.config.layers};
  result.cells.resize(static_cast<std::size_t>(T * result.layers));
  if (T == 1) return result;
  Activations activations(model.config, 1, T, Keep::kNothing, 0);
  PromptFeatureHooks hooks(transcoder, options, &result);
  const Pass pass{.model = model,
                  .batch = 1,
                  .length = T,
                  .hooks = &hooks,
                  .gates = {.open = options.open_gates, .sum_probabilities = false}};
  ForwardToFinalNorm(pass, ids.data(), activations);
  return result;
}

}  // namespace clearhead
