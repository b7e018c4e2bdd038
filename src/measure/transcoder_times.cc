// SPDX-License-Identifier: MIT
#include "measure/transcoder_times.h"

#include "measure/bench_inputs.h"
#include "train/parameter_block.h"
#include "train/transcoder_step.h"

namespace clearhead {

TranscoderTimes TimeTranscoderStep(const Budget& budget) {
  const TranscoderShape shape{.layers = 6, .width = 256, .features = 4096};
  const std::int64_t rows = 4096;
  TranscoderStep step(shape, {.rule = FiringRule::kBatchTopK, .l0 = 16.0}, rows);
  ParameterBlock block({{ParameterCount(shape), false}});
  FillStart(shape, 0, block.values().data());
  const auto weights = Bind(shape, block.values().data());
  const auto gradients = Bind(shape, block.gradients().data());
  std::vector<Buffer<float>> x;
  const Buffer<float> y = RandomValues(rows * shape.layers * shape.width);
  TranscoderRows batch{.rows = rows, .x = {}, .y = y.data()};
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    x.push_back(RandomValues(rows * shape.width));
    batch.x.push_back(x.back().data());
  }
  TranscoderTimes times{.tokens = static_cast<double>(rows)};
  times.seconds = BestSeconds(budget, [&] {
    step.Gradients(batch, weights, gradients, 0.0f, {});
    block.Step({.beta2 = 0.999f, .weight_decay = 0.0f, .clip_norm = 0.0f}, 1e-3, 0.0);
  });
  times.flops = 2.0 * static_cast<double>(rows * shape.width * shape.features * shape.layers);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    times.flops += 2.0 * static_cast<double>(step.fired(l).size() * shape.width) *
                   static_cast<double>(3 * shape.targets(l) + 1);
  }
  return times;
}

}  // namespace clearhead
