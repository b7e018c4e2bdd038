// SPDX-License-Identifier: MIT
// The 124M shape in fp32, random weights: forward with and without patterns, one decoding step.
#include <benchmark/benchmark.h>

#include "model/run.h"
#include "use/generate.h"
#include "use/recorder.h"

namespace clearhead {
namespace {

const Model& TestModel() {
  static const Model model = [] {
    ModelConfig config{.layers = 12,
                       .heads = 12,
                       .width = 768,
                       .vocabulary = 50257,
                       .positions = 1024,
                       .inner = 3072};
    return RandomModel(config, 1);
  }();
  return model;
}

// Arguments: tokens, whether all patterns are kept.
void ForwardPass(benchmark::State& state) {
  const std::int64_t T = state.range(0);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(T), 17);
  std::vector<TapId> taps;
  for (std::int64_t layer = 0; state.range(1) != 0 && layer < 12; ++layer)
    taps.push_back({Tap::kPattern, layer});
  Recorder recorder(taps, {}, {});
  const Pass pass{.model = TestModel(), .batch = 1, .length = T, .hooks = &recorder};
  Activations activations(TestModel().config, 1, T, Keep::kNothing, 0);
  Buffer<float> logits(T * TestModel().config.vocabulary);
  for (auto _ : state) Forward(pass, ids.data(), activations, logits.data());
  state.SetItemsProcessed(state.iterations() * T);
}
BENCHMARK(ForwardPass)
    ->ArgNames({"tokens", "patterns"})
    ->ArgsProduct({{64, 256, 1024}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void Decode(benchmark::State& state) {
  double tokens = 0.0, seconds = 0.0;
  for (auto _ : state) {
    const Generation g = Generate(TestModel(), {1, 2, 3, 4}, {.max_new = 17});
    tokens += static_cast<double>(g.new_tokens - 1);
    seconds += g.decode_seconds;
  }
  state.counters["tokens/s"] = tokens / seconds;
}
BENCHMARK(Decode)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace clearhead
