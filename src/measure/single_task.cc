// SPDX-License-Identifier: MIT
#include "measure/single_task.h"

#include <fmt/format.h>

#include <array>

#include "core/error.h"
#include "measure/attention_times.h"
#include "measure/bench_inputs.h"
#include "measure/forward_times.h"
#include "measure/step_times.h"
#include "measure/transcoder_times.h"
#include "model/packed_weights.h"
#include "use/generate.h"

namespace clearhead {
namespace {

constexpr std::int64_t kBatch = 4, kPrompt = 8, kDecoded = 32;

constexpr std::array<SingleTask, 9> kTasks = {{
    {"dense-step-256", "training step, 4 x 256", kBatch * 256},
    {"sparse-step-256", "step with sampled gates and edge penalty, 4 x 256", kBatch * 256},
    {"sparse-step-512", "step with sampled gates and edge penalty, 4 x 512", kBatch * 512},
    {"dense-attention", "attention with backward, (4,12,1024,64)", 0},
    {"gated-attention", "gated attention with backward, (4,12,1024,64)", 0},
    {"forward-64", "forward, 1 x 64, all maps kept", 0},
    {"forward-1024", "forward, 1 x 1024, all maps kept", 0},
    {"decoding", "32 tokens, greedy, after a prompt of 8", kDecoded},
    {"features-step", "a step of 6 x 4096 cross-layer features, 4096 tokens", 4096},
}};

}  // namespace

std::span<const SingleTask> SingleTasks() { return kTasks; }

const SingleTask& FindSingleTask(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SingleTask& task : kTasks) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  Fail("'{}' is no task of bench; the tasks are {}", name, fmt::join(names, ", "));
}

std::vector<double> TimeSingleTask(const SingleTask& task, const ModelConfig& config, int runs) {
  if (task.name.ends_with("-attention")) {
    AttentionWork work = BenchAttention();
    if (task.name == "dense-attention") {
      return EachSeconds(runs, [&] { work.DenseWithBackward(); });
    }
    return EachSeconds(runs, [&] { work.SampledWithBackward(); });
  }
  if (task.name == "features-step") {
    TranscoderWork work;
    return EachSeconds(runs, [&] { work.Run(); });
  }
  Model model = RandomModel(config, 0);
  if (task.name == "dense-step-256") {
    TrainingWork work(model, {.batch = kBatch, .context = 256});
    return EachSeconds(runs, [&] { work.Run(); });
  }
  if (task.name.starts_with("sparse-step-")) {
    PostTrainingWork work(model, {.batch = kBatch, .context = task.tokens / kBatch});
    return EachSeconds(runs, [&] { work.Gated(); });
  }
  if (task.name.starts_with("forward-")) {
    PackForUse(&model);
    ForwardWork work(model, task.name == "forward-64" ? 64 : 1024);
    return EachSeconds(runs, [&] { work.Run(); });
  }
  Check(task.name == "decoding", "a task without a measurement");
  PackForUse(&model);
  const std::vector<std::int32_t> prompt = RandomTokens(config, kPrompt);
  return EachSeconds(runs, [&] { Generate(model, prompt, {.max_new = kDecoded}); });
}

}  // namespace clearhead
