// SPDX-License-Identifier: MIT
#include "features/intervention_check.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "features/feature_run.h"
#include "features/influence.h"
#include "model/head_weights.h"
#include "model/run.h"

namespace clearhead {
namespace {

class Correlation {
 public:
  void Add(double x, double y) {
    ++n_;
    x_ += x;
    y_ += y;
    xx_ += x * x;
    yy_ += y * y;
    xy_ += x * y;
  }
  double Value() const {
    const double n = n_;
    const double spread = (xx_ - x_ * x_ / n) * (yy_ - y_ * y_ / n);
    return n_ > 1 && spread > 0.0 ? (xy_ - x_ * y_ / n) / std::sqrt(spread) : 0.0;
  }

 private:
  int n_ = 0;
  double x_ = 0.0, y_ = 0.0, xx_ = 0.0, yy_ = 0.0, xy_ = 0.0;
};

// The rows' targets in a run with one feature switched off.
std::vector<double> Measure(const FrozenPrompt& prompt, const AttributionGraph& graph,
                            const ActiveFeature* off, const FrozenRun& frozen) {
  FeatureRunOptions options{.frozen = &frozen, .keep_active = false, .keep_pre = true};
  if (off != nullptr) {
    options.interventions.push_back({.feature = {off->layer, off->feature},
                                     .value = 0.0f,
                                     .positions = {{off->position, off->position}}});
  }
  FeatureRun hooks(*prompt.model, *prompt.transcoder, std::move(options));
  const std::int64_t T = prompt.length(), C = prompt.config().width;
  const Pass pass{.model = *prompt.model, .batch = 1, .length = T, .hooks = &hooks};
  Activations activations(prompt.config(), 1, T, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, prompt.ids.data(), activations);
  std::vector<double> values;
  const std::int64_t F = prompt.transcoder->config.features;
  for (const std::int64_t node : graph.traced) {
    const ActiveFeature& f = graph.features[node];
    values.push_back(hooks.values()[f.layer].pre[f.position * F + f.feature]);
  }
  for (const LogitTarget& logit : graph.logits) {
    const std::vector<float> direction = DirectionOf(prompt, logit);
    double sum = 0.0;
    for (std::int64_t i = 0; i < C; ++i) {
      sum += static_cast<double>(direction[i]) * activations.ln_f[logit.position * C + i];
    }
    values.push_back(sum);
  }
  return values;
}

}  // namespace

InterventionCheck CheckInterventions(const FrozenPrompt& prompt, const AttributionGraph& graph,
                                     std::int64_t count) {
  InterventionCheck check;
  if (prompt.transcoder == nullptr) return check;
  const GraphScores scores = ScoreGraph(graph);
  std::vector<std::int64_t> strongest = graph.traced;
  std::stable_sort(strongest.begin(), strongest.end(), [&](std::int64_t a, std::int64_t b) {
    return scores.influence[a] > scores.influence[b];
  });
  strongest.resize(
      std::min(strongest.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0))));
  check.interventions = static_cast<std::int64_t>(strongest.size());
  for (const Freeze freeze : {Freeze::kAll, Freeze::kAttention, Freeze::kNothing}) {
    const FrozenRun frozen =
        KeepForFreezing(*prompt.model, *prompt.transcoder, prompt.ids, 1, freeze, {});
    const std::vector<double> before = Measure(prompt, graph, nullptr, frozen);
    Correlation all, logits;
    for (const std::int64_t source : strongest) {
      const std::vector<double> after = Measure(prompt, graph, &graph.features[source], frozen);
      for (std::int64_t r = 0; r < graph.rows(); ++r) {
        const std::int64_t node = graph.NodeOfRow(r);
        // Only what the source can reach; the rest is exactly 0 on both sides.
        if (node < graph.nodes.features &&
            (graph.features[node].layer <= graph.features[source].layer ||
             graph.features[node].position < graph.features[source].position)) {
          continue;
        }
        const double predicted = -graph.Row(r)[source], measured = after[r] - before[r];
        all.Add(predicted, measured);
        if (node >= graph.nodes.features) logits.Add(predicted, measured);
        if (freeze != Freeze::kAll) continue;
        ++check.predictions;
        check.largest_difference =
            std::max(check.largest_difference, std::abs(measured - predicted));
        check.largest_prediction = std::max(check.largest_prediction, std::abs(predicted));
      }
    }
    if (freeze == Freeze::kAttention) {
      check.frozen_attention_correlation = all.Value();
      check.frozen_attention_logits = logits.Value();
    } else if (freeze == Freeze::kNothing) {
      check.free_correlation = all.Value();
      check.free_logits = logits.Value();
    }
  }
  return check;
}

}  // namespace clearhead
