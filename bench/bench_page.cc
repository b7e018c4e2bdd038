// SPDX-License-Identifier: MIT
// What the page waits for: both models' runs of one prompt, with maps, names of heads and
// predictions, packed into a frame. The shape of the pair that ships (6 layers of 8 heads, width
// 256), random weights. The plain passes beside it say how much of that is the models themselves.
#include <benchmark/benchmark.h>

#include "model/packed_weights.h"
#include "model/run.h"
#include "text/bpe_train.h"
#include "viewer/page_api.h"

namespace clearhead {
namespace {

const ModelSet& Pair() {
  static const ModelSet pair = [] {
    const std::string text = "The cat sat on the mat, and the other cat sat on the other mat.";
    const std::vector<std::string_view> texts = {text};
    ModelConfig config{
        .layers = 6, .heads = 8, .width = 256, .vocabulary = 4096, .positions = 256, .inner = 1024};
    ModelSet set{.tokenizer = TrainBpe(texts, {.vocabulary_size = 280})};
    set.models.push_back({"dense", RandomModel(config, 1)});
    config.attention = AttentionKind::kGated;
    set.models.push_back({"gated", RandomModel(config, 2)});
    for (ViewedModel& viewed : set.models) PackForUse(&viewed.model);
    return set;
  }();
  return pair;
}

std::vector<std::int32_t> Ids(std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * i % 251));
  return ids;
}

void Lengths(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("tokens")->Arg(32)->Arg(256)->MeasureProcessCPUTime()->UseRealTime()->Unit(
      benchmark::kMillisecond);
}

// Argument: tokens. The aim: 32 tokens within 300 ms on two cores.
void PageAnswer(benchmark::State& state) {
  PageQuestion question{.prompt = "", .ids = Ids(state.range(0)), .ablated = {{}, {}}};
  const ModelSet& pair = Pair();  // made before the clock runs
  std::size_t bytes = 0;
  for (auto _ : state) bytes = RunFrame(pair, question, {}).size();
  state.counters["kB"] = static_cast<double>(bytes) / 1e3;
}
BENCHMARK(PageAnswer)->Apply(Lengths);

void PlainPasses(benchmark::State& state) {
  const std::int64_t T = state.range(0);
  const std::vector<std::int32_t> ids = Ids(T);
  Buffer<float> logits(T * Pair().models[0].model.config.vocabulary);
  for (auto _ : state) {
    for (const ViewedModel& viewed : Pair().models) {
      const Pass pass{.model = viewed.model, .batch = 1, .length = T};
      Activations activations(viewed.model.config, 1, T, Keep::kNothing, 0);
      Forward(pass, ids.data(), activations, logits.data());
    }
  }
}
BENCHMARK(PlainPasses)->Apply(Lengths);

}  // namespace
}  // namespace clearhead
