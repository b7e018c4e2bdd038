// SPDX-License-Identifier: MIT
// clearhead bench: what this machine reaches, each figure beside a limit measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "core/error.h"
#include "core/threads.h"
#include "kernels/bf16_gemm.h"
#include "measure/attention_times.h"
#include "measure/bench_inputs.h"
#include "measure/decoding_speed.h"
#include "measure/forward_times.h"
#include "measure/machine_speed.h"
#include "measure/patching_times.h"
#include "measure/single_task.h"
#include "measure/step_times.h"
#include "measure/transcoder_times.h"
#include "model/packed_weights.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  bool full = false;
  std::string task;
  int runs = 3;
  Option* runs_option = nullptr;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : o_(options), model_(RandomModel(Shape124M(), options.common.seed)) {
    PackForUse(&model_);
  }

  void Run() {
    json_ = {{"threads", Threads()}, {"full", o_.full}};
    Machine();
    Decoding();
    for (const std::int64_t length : {std::int64_t{64}, std::int64_t{1024}}) Forward(length);
    Attention();
    Training();
    Patching();
    Features();
    if (o_.common.json) PrintJson(json_);
  }

 private:
  // A quick look takes the first run after the warm-up where runs are long.
  Budget For(double seconds) const {
    return o_.full ? Budget{seconds, 2} : Budget{0.2 * seconds, 1};
  }

  void Row(const std::string& what, const std::string& figure, const std::string& limit) const {
    if (!o_.common.json) Print(fmt::format("{:<42}{:>18}   {}\n", what, figure, limit));
  }

  void Machine() {
    const double peak = MultiplyAddSpeed(For(1.0));
    sgemm_ = SgemmSpeed(For(2.0));
    const std::int64_t parameters = model_.config.ParameterCount();
    memory_ = ReadSpeed(
        {model_.weights(Role::kTokenEmbedding).f32(), static_cast<std::size_t>(parameters)},
        For(2.0));
    json_["multiply_add_gflops"] = peak / 1e9;
    json_["sgemm_gflops"] = sgemm_ / 1e9;
    json_["sgemm_share_of_peak"] = sgemm_ / peak;
    json_["memory_read_gb_per_second"] = memory_ / 1e9;
    Row("multiply-adds in registers", fmt::format("{:.1f} GFLOP/s", peak / 1e9), "a limit");
    Row("fp32 product 4096 x 768 x 3072 (sgemm)", fmt::format("{:.1f} GFLOP/s", sgemm_ / 1e9),
        fmt::format("{:.0f} % of the multiply-adds", 100.0 * sgemm_ / peak));
    Row("memory read", fmt::format("{:.1f} GB/s", memory_ / 1e9), "a limit");
    json_["bf16_gemm_gflops"] = nullptr;
    if (!Bf16GemmAvailable()) {
      json_["bf16_reason"] = Bf16GemmReason();
      return Row("bf16 product", "none", std::string(Bf16GemmReason()));
    }
    const double bf16 = Bf16Speed(For(2.0));
    json_["bf16_gemm_gflops"] = bf16 / 1e9;
    Row("bf16 product, the same shape", fmt::format("{:.1f} GFLOP/s", bf16 / 1e9),
        fmt::format("{:.1f} x sgemm", bf16 / sgemm_));
  }

  void Decoding() {
    const DecodingSpeed d = TimeDecoding(model_, o_.full ? 64 : 16);
    const double share = d.tokens_per_second * d.bytes_per_token / memory_;
    json_["decode_tokens_per_second"] = d.tokens_per_second;
    json_["decode_share_of_memory_speed"] = share;
    Row("decoding, 124M, fp32", fmt::format("{:.1f} tokens/s", d.tokens_per_second),
        fmt::format("{:.0f} % of memory speed", 100.0 * share));
    const double writing = WritingTokensPerSecond(model_, 64, o_.full ? 32 : 4);
    json_["write_tokens_per_second"] = writing;
    Row("writing, 64 documents at once", fmt::format("{:.1f} tokens/s", writing),
        fmt::format("{:.1f} x decoding", writing / d.tokens_per_second));
  }

  void Forward(std::int64_t length) {
    const ForwardTimes t = TimeForward(model_, length, For(length == 64 ? 2.0 : 5.0));
    json_[fmt::format("forward_{}", length)] = {{"seconds", t.seconds},
                                                {"products_seconds", t.products_seconds},
                                                {"ratio", t.seconds / t.products_seconds}};
    Row(fmt::format("forward, {} tokens, all patterns", length),
        fmt::format("{:.1f} ms", 1e3 * t.seconds),
        fmt::format("{:.2f} x its products by sgemm", t.seconds / t.products_seconds));
  }

  void Attention() {
    const AttentionTimes t = TimeAttention(For(2.0));
    json_["attention_4x12x1024x64"] = {
        {"dense_forward_seconds", t.dense_forward},
        {"dense_seconds", t.dense_both},
        {"dense_share_of_sgemm", t.flops_both / t.dense_both / sgemm_},
        {"gated_forward_seconds", t.gated_forward},
        {"gated_seconds", t.gated_both},
        {"gated_dense_ratio", t.gated_both / t.dense_both},
        {"hard_forward_seconds", t.hard_forward},
        {"hard_dense_ratio", t.hard_forward / t.dense_forward},
        {"hard_open_share", t.hard_open_share}};
    const auto ms = [](double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); };
    Row("attention (4,12,1024,64) with backward", ms(t.dense_both),
        fmt::format("{:.2f} x sgemm", t.flops_both / t.dense_both / sgemm_));
    Row("  gated, as in post-training", ms(t.gated_both),
        fmt::format("{:.2f} x the time of the dense one", t.gated_both / t.dense_both));
    Row(fmt::format("  gated evaluation, {:.1f} % open, forward", 100.0 * t.hard_open_share),
        ms(t.hard_forward),
        fmt::format("{:.2f} x the time of the dense one", t.hard_forward / t.dense_forward));
  }

  void Training() {
    const ModelConfig& config = model_.config;
    if (o_.full) {
      const double rate = TrainTokensPerSecond(model_, {.batch = 4, .context = 256}, For(8.0));
      const double share = rate * FlopsPerToken(config, 256) / sgemm_;
      json_["training_4x256_fp32"] = {{"tokens_per_second", rate}, {"share_of_sgemm", share}};
      Row("training, 124M, 4 x 256, fp32", fmt::format("{:.1f} tokens/s", rate),
          fmt::format("{:.2f} x sgemm", share));
    }
    Steps(256);
    if (o_.full) Steps(512);
  }

  // In the precision that `sparsify` takes here.
  void Steps(std::int64_t context) {
    const bool bf16 = Bf16GemmAvailable();
    const StepRates r = TimeSteps(model_, {.batch = 4, .context = context, .bf16 = bf16},
                                  For(0.03 * static_cast<double>(context)), o_.full);
    const double share = r.dense * FlopsPerToken(model_.config, context) / sgemm_;
    Json& json = json_[fmt::format("steps_4x{}", context)];
    json = {{"precision", bf16 ? "bf16" : "fp32"},
            {"dense_tokens_per_second", r.dense},
            {"dense_share_of_sgemm", share},
            {"with_teacher_tokens_per_second", r.with_teacher},
            {"with_teacher_dense_ratio", r.with_teacher / r.dense}};
    const auto rate = [](double tokens) { return fmt::format("{:.1f} tokens/s", tokens); };
    Row(fmt::format("dense step, 124M, 4 x {}, {}", context, bf16 ? "bf16" : "fp32"), rate(r.dense),
        fmt::format("{:.2f} x sgemm", share));
    Row("  sparsify: gates and a dense teacher", rate(r.with_teacher),
        fmt::format("{:.2f} x the dense step", r.with_teacher / r.dense));
    if (!r.gated) return;
    json["gated_tokens_per_second"] = *r.gated;
    json["gated_dense_ratio"] = *r.gated / r.dense;
    Row("  gates without a teacher", rate(*r.gated),
        fmt::format("{:.2f} x the dense step", *r.gated / r.dense));
  }

  // The shape of the language model that ships.
  void Patching() {
    const ModelConfig config{
        .layers = 6, .heads = 8, .width = 256, .vocabulary = 4096, .positions = 256, .inner = 1024};
    Model model = RandomModel(config, o_.common.seed);
    PackForUse(&model);
    const PatchingTimes t = TimePatching(model, RandomTwins(config, o_.full ? 100 : 20, 16), 8);
    json_["patching"] = {{"heads", t.heads},
                         {"prompts", t.prompts},
                         {"seconds", t.seconds},
                         {"processor_seconds", t.processor_seconds},
                         {"whole_runs_seconds", t.rerun_seconds},
                         {"times_faster", t.TimesFaster()}};
    Row(fmt::format("exact patching, {} heads, {} prompts", t.heads, t.prompts),
        fmt::format("{:.2f} s", t.seconds),
        fmt::format("{:.1f} x faster than whole runs (processor time)", t.TimesFaster()));
  }

  void Features() {
    const TranscoderTimes t = TimeTranscoderStep(For(5.0));
    const double ratio = t.seconds * sgemm_ / t.flops;
    json_["transcoder_step"] = {{"seconds", t.seconds},
                                {"tokens_per_second", t.tokens / t.seconds},
                                {"arithmetic_ratio", ratio}};
    Row("features, 6 x 4096, a step of 4096 tokens", fmt::format("{:.1f} ms", 1e3 * t.seconds),
        fmt::format("{:.2f} x its arithmetic by sgemm", ratio));
  }

  const Options& o_;
  Model model_;
  double sgemm_ = 0.0, memory_ = 0.0;  // FLOP/s, bytes per second
  Json json_;
};

void RunSingleTask(const Options& options) {
  if (options.full) FailUsage("--task makes one measurement; leave --full away");
  const SingleTask& task = FindSingleTask(options.task);
  std::vector<double> seconds = TimeSingleTask(task, Shape124M(), options.runs);
  if (options.common.json) {
    return PrintJson({{"task", task.name},
                      {"what", task.what},
                      {"tokens", task.tokens},
                      {"threads", Threads()},
                      {"seconds", seconds}});
  }
  std::sort(seconds.begin(), seconds.end());
  Print(fmt::format("{}: {:.4g} to {:.4g} s, {} runs\n", task.what, seconds.front(), seconds.back(),
                    seconds.size()));
}

void Run(const Options& options) {
  if (!options.task.empty()) return RunSingleTask(options);
  if (options.runs_option->count() > 0) FailUsage("--runs goes with --task");
  Bench(options).Run();
}

}  // namespace

void AddBench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "bench",
      "Measure this machine in under a minute: products, memory, decoding, forward, attention,\n"
      "training, patching, each beside a limit measured in the same run.",
      "clearhead bench --full", options, Run);
  command->add_flag("--full", options->full,
                    "More runs of each, longer contexts and ordinary training too (some minutes)");
  std::string names;
  for (const SingleTask& task : SingleTasks()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", task.name);
  }
  command->add_option("--task", options->task,
                      "One measurement alone, in fp32, every run timed: " + names);
  options->runs_option =
      command->add_option("--runs", options->runs, "Of --task, after a warm-up (default: 3)")
          ->check(Range(1, 1000));
}

}  // namespace clearhead::cli
