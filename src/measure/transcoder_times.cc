// SPDX-License-Identifier: MIT
#include "measure/transcoder_times.h"

#include "measure/bench_inputs.h"

namespace clearhead {
namespace {
constexpr TranscoderShape kShape{.layers = 6, .width = 256, .features = 4096};
constexpr std::int64_t kRows = 4096;
}  // namespace

TranscoderWork::TranscoderWork()
    : shape_(kShape),
      step_(kShape, {.rule = FiringRule::kBatchTopK, .l0 = 16.0}, kRows),
      block_({{ParameterCount(kShape), false}}),
      y_(RandomValues(kRows * kShape.layers * kShape.width)) {
  FillStart(shape_, 0, block_.values().data());
  weights_ = Bind(shape_, block_.values().data());
  gradients_ = Bind(shape_, block_.gradients().data());
  batch_ = {.rows = kRows, .x = {}, .y = y_.data()};
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    x_.push_back(RandomValues(kRows * shape_.width));
    batch_.x.push_back(x_.back().data());
  }
}

void TranscoderWork::Run() {
  step_.Gradients(batch_, weights_, gradients_, 0.0f, {});
  block_.Step({.beta2 = 0.999f, .weight_decay = 0.0f, .clip_norm = 0.0f}, 1e-3, 0.0);
}

double TranscoderWork::tokens() const { return static_cast<double>(kRows); }

double TranscoderWork::Flops() const {
  double flops = 2.0 * static_cast<double>(kRows * shape_.width * shape_.features * shape_.layers);
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    flops += 2.0 * static_cast<double>(step_.fired(l).size() * shape_.width) *
             static_cast<double>(3 * shape_.targets(l) + 1);
  }
  return flops;
}

TranscoderTimes TimeTranscoderStep(const Budget& budget) {
  TranscoderWork work;
  const double seconds = BestSeconds(budget, [&] { work.Run(); });
  return {seconds, work.tokens(), work.Flops()};
}

}  // namespace clearhead
