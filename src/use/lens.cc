// SPDX-License-Identifier: MIT
#include "use/lens.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "core/error.h"
#include "model/head_weights.h"
#include "model/output.h"
#include "use/record.h"

namespace clearhead {
namespace {

LensCell CellOf(std::span<const float> logits, std::int32_t target, std::int64_t likeliest) {
  LensCell cell{.likeliest = Likeliest(logits, likeliest)};
  const float own = logits[static_cast<std::size_t>(target)];
  cell.target_probability = std::exp(static_cast<double>(own) - LogSumExp(logits));
  // Equal ones by id, as Likeliest has them.
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool before =
        logits[i] > own || (logits[i] == own && static_cast<std::int32_t>(i) < target);
    cell.target_rank += before ? 1 : 0;
  }
  return cell;
}

// The strongest shares in one direction; only those that point there.
std::vector<LogitShare> Strongest(std::span<const float> logits, std::int64_t count, float sign) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto at = [&](std::int32_t id) { return sign * logits[static_cast<std::size_t>(id)]; };
  const auto kept = std::min<std::int64_t>(count, static_cast<std::int64_t>(order.size()));
  std::partial_sort(
      order.begin(), order.begin() + kept, order.end(),
      [&](std::int32_t a, std::int32_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  std::vector<LogitShare> shares;
  for (std::int64_t i = 0; i < kept && at(order[static_cast<std::size_t>(i)]) > 0.0f; ++i) {
    const std::int32_t id = order[static_cast<std::size_t>(i)];
    shares.push_back({id, static_cast<double>(logits[static_cast<std::size_t>(id)])});
  }
  return shares;
}

void AddHeads(const Pass& pass, const Recording& run, const LensOptions& options, Lens* lens) {
  const ModelConfig& config = pass.config();
  const std::int64_t C = config.width, H = config.heads, V = config.vocabulary, t = lens->position;
  const Norm norm = FinalNormOf(pass.model);
  const float scale = run.values.at({Tap::kLnFinalScale, 0}).values[t];
  const std::int32_t target = lens->targets[static_cast<std::size_t>(t)];
  Buffer<float> rows(H * C), logits(H * V);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (options.between) options.between();
    const float* result = run.values.at({Tap::kResult, layer}).values.data() + t * H * C;
    for (std::int64_t h = 0; h < H; ++h) {
      double mean = 0.0;
      if (norm.kind == NormKind::kLayer) {
        for (std::int64_t i = 0; i < C; ++i) mean += static_cast<double>(result[h * C + i]);
        mean /= static_cast<double>(C);
      }
      for (std::int64_t i = 0; i < C; ++i) {
        const float gain = norm.weight == nullptr ? 1.0f : norm.weight[i];
        rows[h * C + i] = (result[h * C + i] - static_cast<float>(mean)) / scale * gain;
      }
    }
    LogitsForward(pass, H, rows.data(), logits.data());
    for (std::int64_t h = 0; h < H; ++h) {
      const std::span<const float> row(logits.data() + h * V, static_cast<std::size_t>(V));
      lens->heads.push_back(
          {.layer = layer,
           .head = h,
           .target_logit = static_cast<double>(row[static_cast<std::size_t>(target)]),
           .raised = Strongest(row, options.likeliest, 1.0f),
           .lowered = Strongest(row, options.likeliest, -1.0f)});
    }
  }
}

}  // namespace

Lens LookThrough(const Model& model, std::span<const std::int32_t> ids,
                 const LensOptions& options) {
  const ModelConfig& config = model.config;
  const auto length = static_cast<std::int64_t>(ids.size());
  const std::int64_t C = config.width, V = config.vocabulary, L = config.layers;
  if (options.target && (*options.target < 0 || *options.target >= V)) {
    Fail("the target {} is not one of the model's {} tokens", *options.target, V);
  }
  if (options.position < -1 || options.position >= length) {
    Fail("position {} is outside the prompt of {} tokens", options.position, length);
  }
  if (options.heads && config.norm_place == NormPlace::kAfter) {
    Fail(
        "this family normalises what its heads give together, so that single heads have no share "
        "of the logits; ask for the stream alone");
  }
  RecordOptions record{.taps = {{Tap::kResidPre, 0}, {Tap::kLnFinalScale, 0}},
                       .interventions = options.interventions,
                       .gates = options.gates};
  for (std::int64_t layer = 0; layer < L; ++layer) {
    record.taps.push_back({Tap::kResidPost, layer});
    if (options.heads) record.taps.push_back({Tap::kResult, layer});
  }
  const Recording run = Record(model, {ids.begin(), ids.end()}, 1, record);

  Lens lens{.layers = L,
            .length = length,
            .position = options.position < 0 ? length - 1 : options.position};
  for (std::int64_t t = 0; t < length; ++t) {
    const std::span<const float> row(run.logits.data() + t * V, static_cast<std::size_t>(V));
    lens.targets.push_back(options.target ? *options.target : Likeliest(row, 1)[0].token);
  }
  const Pass pass{.model = model, .batch = 1, .length = length};
  const Norm norm = FinalNormOf(model);
  Buffer<float> normalized(length * C), logits(length * V), mean(length), scale(length);
  for (std::int64_t point = 0; point <= L; ++point) {
    if (options.between) options.between();
    const float* rows = run.logits.data();  // the last one is the model's own
    if (point < L) {
      const TapId tap = point == 0 ? TapId{Tap::kResidPre, 0} : TapId{Tap::kResidPost, point - 1};
      NormForward(norm, length, run.values.at(tap).values.data(), normalized.data(), mean.data(),
                  scale.data());
      LogitsForward(pass, length, normalized.data(), logits.data());
      rows = logits.data();
    }
    std::vector<LensCell>& cells = lens.stream.emplace_back();
    for (std::int64_t t = 0; t < length; ++t) {
      cells.push_back(CellOf({rows + t * V, static_cast<std::size_t>(V)},
                             lens.targets[static_cast<std::size_t>(t)], options.likeliest));
    }
  }
  if (options.heads) AddHeads(pass, run, options, &lens);
  return lens;
}

}  // namespace clearhead
