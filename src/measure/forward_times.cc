// SPDX-License-Identifier: MIT
#include "measure/forward_times.h"

#include <algorithm>

#include "core/threads.h"
#include "kernels/gemm.h"
#include "measure/bench_inputs.h"
#include "model/head_weights.h"
#include "model/run.h"

namespace clearhead {
namespace {

std::vector<TapId> AllPatterns(const ModelConfig& config) {
  std::vector<TapId> taps;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    taps.push_back({Tap::kPattern, layer});
  }
  return taps;
}

double ProductsSeconds(const Model& model, std::int64_t T, const Budget& budget) {
  const ModelConfig& c = model.config;
  const std::int64_t C = c.width, F = c.inner, D = c.head_size();
  const Buffer<float> x = RandomValues(T * std::max(F, C));
  Buffer<float> y(T * std::max({c.vocabulary, F, 3 * C}));
  std::vector<Buffer<float>> scores;
  for (std::int64_t h = 0; h < c.heads; ++h) scores.emplace_back(T * T);
  const BlockLayers w = LayersOf(model, 0);
  const auto product = [&](const BlockLinear& layer) {
    const Linear& l = layer.linear;
    const Op op = l.order == Order::kInOut ? Op::kNone : Op::kTranspose;
    Gemm({T, l.out, l.in}, {x.data(), l.in}, {l.weight.f32(), l.stride, op}, y.data(), l.out,
         false);
  };
  return BestSeconds(budget, [&] {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      for (int i = 0; i < w.projection_count; ++i) {
        product(w.projections[static_cast<std::size_t>(i)].layer);
      }
      product(w.output);
      product(w.mlp_in);
      product(w.mlp_out);
      ParallelFor(c.heads, [&](std::int64_t h) {
        const float* rows = x.data() + h * D;
        float* map = scores[static_cast<std::size_t>(h)].data();
        Gemm({T, T, D}, {rows, C}, {rows, C, Op::kTranspose}, map, T, false);
        Gemm({T, D, T}, {map, T}, {rows, C}, y.data() + h * D, C, false);
      });
    }
    Gemm({T, c.vocabulary, C}, {x.data(), C},
         {OutputMatrix(c, model.weights).f32(), C, Op::kTranspose}, y.data(), c.vocabulary, false);
  });
}

}  // namespace

ForwardWork::ForwardWork(const Model& model, std::int64_t length)
    : model_(model),
      length_(length),
      ids_(RandomTokens(model.config, length)),
      recorder_(AllPatterns(model.config), {}, {}),
      activations_(model.config, 1, length, Keep::kNothing, 0),
      logits_(length * model.config.vocabulary) {}

void ForwardWork::Run() {
  const Pass pass{.model = model_, .batch = 1, .length = length_, .hooks = &recorder_};
  Forward(pass, ids_.data(), activations_, logits_.data());
}

ForwardTimes TimeForward(const Model& model, std::int64_t length, const Budget& budget) {
  ForwardTimes times{};
  times.products_seconds = ProductsSeconds(model, length, budget);
  ForwardWork work(model, length);
  times.seconds = BestSeconds(budget, [&] { work.Run(); });
  return times;
}

}  // namespace clearhead
