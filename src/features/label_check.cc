// SPDX-License-Identifier: MIT
#include "features/label_check.h"

#include <algorithm>
#include <optional>

#include "core/random.h"
#include "features/mlp_inputs.h"
#include "model/run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {

// Features that have a label, in an order that the seed alone decides.
std::vector<CheckedLabel> Draw(const FeatureIndex& index, const LabelCheckOptions& options,
                               std::int64_t* silent) {
  const std::int64_t F = index.info().features, all = F * index.info().layers;
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;
  for (std::int64_t i = 0; i < all; ++i) {
    order.emplace_back(HashCoordinates(options.seed, {static_cast<std::uint64_t>(i)}), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<CheckedLabel> drawn;
  for (const auto& [hash, i] : order) {
    if (static_cast<std::int64_t>(drawn.size()) == options.features) break;
    const FeatureId id{i / F, i % F};
    FeatureLabel label = index.Label(id);
    if (label.kind == LabelKind::kNone) {
      ++*silent;
    } else {
      drawn.push_back({.id = id, .label = std::move(label)});
    }
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const CheckedLabel& a, const CheckedLabel& b) { return a.id < b.id; });
  return drawn;
}

void Add(const CheckedLabel& label, LabelCheckSummary* summary) {
  ++summary->features;
  if (label.seen == 0) return;
  ++summary->seen;
  summary->share += static_cast<double>(label.fired) / static_cast<double>(label.seen);
}

// The features that were drawn of one layer as a transcoder of their own: a few columns are
// multiplied, not all.
struct DrawnLayer {
  std::vector<CheckedLabel*> labels;
  std::vector<float> rows, bias, threshold;
  Transcoder few;
};

std::vector<DrawnLayer> Gather(const Transcoder& transcoder, std::vector<CheckedLabel>* drawn) {
  const std::int64_t C = transcoder.config.width;
  std::vector<DrawnLayer> layers(static_cast<std::size_t>(transcoder.config.layers));
  for (CheckedLabel& label : *drawn) {
    layers[static_cast<std::size_t>(label.id.layer)].labels.push_back(&label);
  }
  for (std::size_t l = 0; l < layers.size(); ++l) {
    DrawnLayer& layer = layers[l];
    const TranscoderLayer& from = transcoder.layers[l];
    const std::size_t count = layer.labels.size();
    layer.rows.resize(count * static_cast<std::size_t>(C));
    for (std::size_t i = 0; i < count; ++i) {
      const FeatureId id = layer.labels[i]->id;
      EncoderRow(transcoder, id.layer, id.feature,
                 layer.rows.data() + i * static_cast<std::size_t>(C));
      layer.bias.push_back(from.encoder.bias == nullptr ? 0.0f : from.encoder.bias[id.feature]);
      if (from.threshold != nullptr) layer.threshold.push_back(from.threshold[id.feature]);
    }
    layer.few = transcoder;
    layer.few.config.features = static_cast<std::int64_t>(count);
    TranscoderLayer& to = layer.few.layers[l];
    to.encoder = MakeLinear(Weight(layer.rows.data()), layer.bias.data(), C,
                            static_cast<std::int64_t>(count), Order::kOutIn);
    to.input_scale = 1.0f;  // is in the rows
    if (from.threshold != nullptr) to.threshold = layer.threshold.data();
  }
  return layers;
}

// What this rank counted becomes what all did.
void SumCounts(Communicator& ranks, std::vector<CheckedLabel>* labels) {
  std::vector<double> counts;
  for (const CheckedLabel& label : *labels) {
    counts.push_back(static_cast<double>(label.seen));
    counts.push_back(static_cast<double>(label.fired));
  }
  ranks.Sum(counts);
  for (std::size_t i = 0; i < labels->size(); ++i) {
    (*labels)[i].seen = static_cast<std::int64_t>(counts[2 * i]);
    (*labels)[i].fired = static_cast<std::int64_t>(counts[2 * i + 1]);
  }
}

class LabelCheckRun {
 public:
  LabelCheckRun(const Transcoder& transcoder, const WindowedText& text,
                std::vector<CheckedLabel>* drawn)
      : transcoder_(transcoder), text_(text), layers_(Gather(transcoder, drawn)) {}

  void See(const WindowGroup& group, std::int64_t layer, const float* x) {
    DrawnLayer& drawn = layers_[static_cast<std::size_t>(layer)];
    if (drawn.labels.empty()) return;
    const std::int64_t rows = group.windows * group.length;
    const bool compete = transcoder_.config.activation == FeatureActivation::kTopK;
    const SparseRows active =
        compete ? Encode(transcoder_, layer, rows, x) : Encode(drawn.few, layer, rows, x);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (r % group.length == 0) continue;
      const auto first = active.column.begin() + active.begin[r];
      const auto last = active.column.begin() + active.begin[r + 1];
      for (std::size_t i = 0; i < drawn.labels.size(); ++i) {
        CheckedLabel& label = *drawn.labels[i];
        const bool ends = std::any_of(
            label.label.patterns.begin(), label.label.patterns.end(),
            [&](const LabelPattern& p) { return EndsAt(p.pattern, text_, group.first + r); });
        if (!ends) continue;
        ++label.seen;
        const auto column =
            static_cast<std::int32_t>(compete ? label.id.feature : static_cast<std::int64_t>(i));
        if (std::binary_search(first, last, column)) ++label.fired;
      }
    }
  }

 private:
  const Transcoder& transcoder_;
  WindowedText text_;
  std::vector<DrawnLayer> layers_;
};

}  // namespace

LabelCheck CheckLabels(const Model& model, const Transcoder& transcoder, const FeatureIndex& index,
                       std::span<const std::int32_t> tokens, const LabelCheckOptions& options) {
  CheckFits(transcoder, model);
  index.CheckBelongsTo(transcoder);
  LabelCheck check;
  check.labels = Draw(index, options, &check.silent);
  const WindowPlan plan =
      PlanWindows(model.config, tokens,
                  {.context = options.context > 0 ? options.context : index.info().context,
                   .max_tokens = options.max_tokens});
  const WindowedText text{tokens.first(static_cast<std::size_t>(plan.predictions)),
                          std::min(plan.context, plan.predictions)};
  LabelCheckRun run(transcoder, text, &check.labels);
  Communicator alone;
  Communicator& ranks = options.ranks == nullptr ? alone : *options.ranks;
  std::optional<Activations> activations;
  std::int64_t done = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WindowGroup& group = plan.groups[g];
    check.tokens += group.windows * (group.length - 1);
    done += group.windows * group.length;
    if (!ranks.Owns(g)) continue;
    if (!activations || activations->batch != group.windows ||
        activations->length != group.length) {
      activations.emplace(model.config, group.windows, group.length, Keep::kNothing, 0);
    }
    MlpInputHooks hooks(transcoder.config.reads,
                        [&](std::int64_t layer, const float* x) { run.See(group, layer, x); });
    Pass pass = PassOver(model, group, {.sum_probabilities = false});
    pass.hooks = &hooks;
    ForwardToFinalNorm(pass, text.tokens.data() + group.first, *activations);
    if (options.progress) options.progress(done, plan.predictions);
  }
  SumCounts(ranks, &check.labels);
  check.layers.resize(static_cast<std::size_t>(transcoder.config.layers));
  for (const CheckedLabel& label : check.labels) {
    check.places += label.seen;
    check.fired += label.fired;
    Add(label, &check.all);
    Add(label, &check.kinds[static_cast<std::size_t>(label.label.kind)]);
    Add(label, &check.layers[static_cast<std::size_t>(label.id.layer)]);
  }
  const auto finish = [](LabelCheckSummary& summary) {
    if (summary.seen > 0) summary.share /= static_cast<double>(summary.seen);
  };
  finish(check.all);
  std::for_each(check.kinds.begin(), check.kinds.end(), finish);
  std::for_each(check.layers.begin(), check.layers.end(), finish);
  return check;
}

}  // namespace clearhead
