// SPDX-License-Identifier: MIT
// clearhead bench: what this machine reaches, each figure beside the limit it is held to.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "core/random.h"
#include "core/threads.h"
#include "kernels/attention.h"
#include "kernels/bf16_gemm.h"
#include "kernels/gated_attention.h"
#include "kernels/gemm.h"
#include "measure/best_seconds.h"
#include "measure/patching_times.h"
#include "measure/step_times.h"
#include "model/run.h"
#include "use/generate.h"
#include "use/recorder.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
};

ModelConfig SmallGpt2() {
  ModelConfig config{.layers = 12,
                     .heads = 12,
                     .width = 768,
                     .vocabulary = 50257,
                     .positions = 1024,
                     .inner = 3072};
  return config;
}

Buffer<float> RandomBuffer(std::int64_t count) {
  Buffer<float> values(count);
  ParallelRanges(count, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      values[i] = static_cast<float>(ToUniform(Mix64(static_cast<std::uint64_t>(i)))) - 0.5f;
    }
  });
  return values;
}

// GFLOP/s of OpenBLAS on one of GPT-2's own shapes.
struct GemmProblem {
  std::int64_t m = 4096, k = 768, n = 3072;
  Buffer<float> a = RandomBuffer(m * k), b = RandomBuffer(k * n), c{m * n};
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }

  double SgemmSeconds(double budget) {
    return BestSeconds(budget, [&] {
      Gemm({m, n, k}, {a.data(), k}, {b.data(), n}, c.data(), n, false);
    });
  }
  double Bf16Seconds(double budget) {
    PackedBf16 packed;
    packed.Pack(b.data(), k, n, n, false);
    return BestSeconds(budget, [&] {
      Bf16Gemm({.m = m, .a = a.data(), .lda = k, .b = &packed, .c = c.data(), .ldc = n});
    });
  }
};

// Seconds that sgemm alone takes for the matrix products of a forward pass over T tokens: the
// linear layers, the logits, and scores and values of every head as full T x T products.
double ForwardProductsSeconds(const Model& model, std::int64_t T, double budget) {
  const ModelConfig& c = model.config;
  Buffer<float> x = RandomBuffer(T * c.inner), y(T * std::max(c.vocabulary, c.inner)), s(T * T);
  const BlockTensors<const float>& w = model.weights.blocks[0];
  const std::int64_t C = c.width, F = c.inner, D = c.head_size();
  const auto product = [&](std::int64_t n, std::int64_t k, const float* weight) {
    Gemm({T, n, k}, {x.data(), k}, {weight, n}, y.data(), n, false);
  };
  return BestSeconds(budget, [&] {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      product(3 * C, C, w.c_attn_weight);
      product(C, C, w.attn_c_proj_weight);
      product(F, C, w.c_fc_weight);
      product(C, F, w.mlp_c_proj_weight);
      ParallelFor(c.heads, [&](std::int64_t h) {
        static thread_local Buffer<float> scores;
        if (scores.size() < T * T) scores = Buffer<float>(T * T);
        Gemm({T, T, D}, {x.data() + h * D, F}, {x.data() + h * D, F, Op::kTranspose}, scores.data(),
             T, false);
        Gemm({T, D, T}, {scores.data(), T}, {x.data() + h * D, F}, y.data() + h * D, C, false);
      });
    }
    Gemm({T, c.vocabulary, C}, {x.data(), C}, {model.weights.lm_head, C, Op::kTranspose}, y.data(),
         c.vocabulary, false);
  });
}

// A forward pass with the pattern of every head kept, logits included.
double ForwardSeconds(const Model& model, std::int64_t T, double budget) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(T));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>((i * 7919) % 50257);
  std::vector<TapId> patterns;
  for (std::int64_t layer = 0; layer < model.config.layers; ++layer)
    patterns.push_back({Tap::kPattern, layer});
  Recorder recorder(patterns, {}, {});
  const Pass pass{.model = model, .batch = 1, .length = T, .hooks = &recorder};
  Activations activations(model.config, 1, T, Keep::kNothing, 0);
  Buffer<float> logits(T * model.config.vocabulary);
  return BestSeconds(budget, [&] { Forward(pass, ids.data(), activations, logits.data()); });
}

// Bytes per second of a plain sum over `bytes` of memory on all threads.
double ReadBandwidth(const float* data, std::int64_t count) {
  Buffer<float> sums(64 * 4096);
  const double seconds = BestSeconds(2.0, [&] {
    ParallelRanges(count / 4096, [&](int thread, std::int64_t first, std::int64_t last) {
      MatVecT(last - first, 4096, data + first * 4096, data, sums.data() + thread % 64 * 4096);
    });
  });
  return static_cast<double>(count) * 4.0 / seconds;
}

struct AttentionTimes {
  double dense_forward, dense_both, gated_forward, gated_both, hard_forward;
  double hard_open_share;
};

AttentionTimes TimeAttention(std::int64_t batch, std::int64_t heads, std::int64_t T,
                             std::int64_t D) {
  const std::int64_t C = heads * D, rows = batch * T;
  const AttentionShape shape{batch, heads, T, T, D, 0.125f};
  Buffer<float> qkv = RandomBuffer(rows * 3 * C), dz = RandomBuffer(rows * C);
  for (float& value : qkv) value *= 4.0f;
  Buffer<float> z(rows * C), dqkv(rows * 3 * C), lse(batch * heads * T);
  const auto part = [&](auto* base, int i) {
    return HeadRows<std::remove_reference_t<decltype(*base)>>{base + i * C, 3 * C, T * 3 * C};
  };
  const float* values = qkv.data();
  const AttentionInput input{part(values, 0), part(values, 1), part(values, 2)};
  const HeadRows<float> out{z.data(), C, T * C};
  const AttentionOutput kept{{z.data(), C, T * C}, lse.data()};
  const HeadRows<const float> gradient{dz.data(), C, T * C};
  const AttentionGradients gradients{part(dqkv.data(), 0), part(dqkv.data(), 1),
                                     part(dqkv.data(), 2)};
  Buffer<std::int64_t> edges(batch * heads);
  Buffer<double> probability(batch * heads);
  const GateStatistics statistics{edges.data(), probability.data()};
  GateOptions sampled{.mode = GateMode::kSampled, .bias = 0.0f};
  // A closed model, as post-training leaves it: about 1 % of the gates open. Scores have deviation
  // 1.33 here.
  GateOptions hard{.mode = GateMode::kHard, .bias = -3.1f};
  AttentionTimes times{};
  // Evaluation counts edges and asks for nothing else.
  const Turns forward = BestSecondsInTurns(
      2.0, [&] { AttentionForward(shape, input, out, lse.data()); },
      [&] {
        GatedAttentionForward(shape, input, hard, out, lse.data(), {edges.data(), nullptr});
      });
  times.dense_forward = forward.first;
  times.hard_forward = forward.second;
  for (const std::int64_t open : edges) times.hard_open_share += static_cast<double>(open);
  times.hard_open_share /= 0.5 * static_cast<double>(batch * heads * T * (T + 1));
  times.dense_both = BestSeconds(2.0, [&] {
    AttentionForward(shape, input, out, lse.data());
    AttentionBackward(shape, input, kept, gradient, gradients);
  });
  times.gated_forward = BestSeconds(
      1.0, [&] { GatedAttentionForward(shape, input, sampled, out, lse.data(), statistics); });
  times.gated_both = BestSeconds(2.0, [&] {
    GatedAttentionForward(shape, input, sampled, out, lse.data(), statistics);
    GatedAttentionBackward(shape, input, sampled, 1e-6f, kept, gradient, gradients);
  });
  return times;
}

void Say(const Options& options, const std::string& line) {
  if (!options.common.json) Print(line + "\n");
}

// What tuned PyTorch 2.14 reaches where its sgemm runs at kPeerSgemm (2 cores, AVX-512 and AMX; see
// docs/sparsify.md). On this machine its times are scaled by sgemm measured in this run.
constexpr double kPeerSgemm = 390.0;        // GFLOP/s
constexpr double kPeerReferenceMs = 954.0;  // gated attention, forward and backward
constexpr double kPeerSdpaMs = 141.0;       // dense attention, forward and backward
constexpr std::int64_t kContexts[] = {256, 512};
// Post-training steps, tokens/s, of kContexts: its best (bf16 products on AMX), and in fp32.
constexpr double kPeerStepRates[] = {640.0, 280.0};
constexpr double kPeerFp32StepRates[] = {183.0, 142.0};

void ReportAgainstReference(const Options& options, const AttentionTimes& a, double sgemm,
                            Json* json) {
  const double scale = kPeerSgemm / sgemm;
  const double reference = kPeerReferenceMs * scale / (1e3 * a.gated_both);
  const double sdpa = kPeerSdpaMs * scale / (1e3 * a.gated_both);
  (*json)["gated_attention_speedup_over_reference"] = reference;
  (*json)["gated_attention_speedup_over_sdpa"] = sdpa;
  Say(options, fmt::format("gated attention with backward   {:>9.1f} ms       {:.1f} x faster than "
                           "its PyTorch reference, {:.2f} x than dense SDPA (both sgemm-scaled)",
                           1e3 * a.gated_both, reference, sdpa));
}

void ReportSteps(const Options& options, const std::vector<StepRates>& steps, double sgemm,
                 bool bf16, Json* json) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepRates& r = steps[i];
    const double peer = kPeerStepRates[i] * sgemm / kPeerSgemm;
    const double peer_fp32 = kPeerFp32StepRates[i] * sgemm / kPeerSgemm;
    (*json)[fmt::format("post_training_4x{}", kContexts[i])] = {
        {"precision", bf16 ? "bf16" : "fp32"},
        {"dense_tokens_per_second", r.dense},
        {"gated_tokens_per_second", r.gated},
        {"sparsify_tokens_per_second", r.sparsify},
        {"gated_dense_ratio", r.gated / r.dense},
        {"sparsify_dense_ratio", r.sparsify / r.dense},
        {"pytorch_tokens_per_second_scaled", peer},
        {"gated_pytorch_ratio", r.gated / peer},
        {"gated_pytorch_fp32_ratio", r.gated / peer_fp32},
        {"sparsify_pytorch_ratio", r.sparsify / peer}};
    Say(options,
        fmt::format("post-training, 124M, 4 x {}, {} {:>8.1f} tokens/s   {:.2f} x the dense "
                    "step, {:.1f} x PyTorch in fp32, {:.1f} x its best in bf16 (sgemm-scaled)",
                    kContexts[i], bf16 ? "bf16" : "fp32", r.gated, r.gated / r.dense,
                    r.gated / peer_fp32, r.gated / peer));
    Say(options,
        fmt::format("  with a dense teacher beside   {:>9.1f} tokens/s   {:.2f} x the dense "
                    "step, {:.1f} x PyTorch's best without one",
                    r.sparsify, r.sparsify / r.dense, r.sparsify / peer));
  }
}

// The shape of the language model that ships.
void ReportPatching(const Options& options, Json* json) {
  const ModelConfig config{
      .layers = 6, .heads = 8, .width = 256, .vocabulary = 4096, .positions = 256, .inner = 1024};
  const Model model = RandomModel(config, options.common.seed);
  const PatchingTimes t = TimePatching(model, RandomTwins(config, 100, 16), 8);
  (*json)["patching_48_heads_100_prompts"] = {{"seconds", t.seconds},
                                              {"processor_seconds", t.processor_seconds},
                                              {"whole_runs_seconds", t.rerun_seconds},
                                              {"times_faster", t.TimesFaster()}};
  Say(options,
      fmt::format("exact patching, 48 heads x 100 prompts {:>4.1f} s        {:.1f} x faster "
                  "than whole runs (processor time)",
                  t.seconds, t.TimesFaster()));
}

void Run(const Options& options) {
  GemmProblem gemm;
  const ModelConfig config = SmallGpt2();
  double sgemm = gemm.flops() / gemm.SgemmSeconds(1.5) / 1e9;
  Json json = {{"threads", Threads()}};
  const bool tiles = Bf16GemmAvailable();
  const double bf16 = tiles ? gemm.flops() / gemm.Bf16Seconds(1.5) / 1e9 : 0.0;

  const Model model = RandomModel(config, options.common.seed);
  const std::int64_t parameters = config.ParameterCount();
  const double T = 256.0;
  const double flops_per_token =
      6.0 * static_cast<double>(parameters) +
      12.0 * static_cast<double>(config.layers) * static_cast<double>(config.width) * T;

  const double bandwidth = ReadBandwidth(model.weights.wte, parameters / 4096 * 4096);
  json["memory_read_gb_per_second"] = bandwidth / 1e9;
  Say(options, fmt::format("memory read                     {:>9.1f} GB/s", bandwidth / 1e9));

  // Decoding reads every weight but the unused positions once per token.
  const double weight_bytes =
      4.0 * static_cast<double>(parameters - (config.positions - 1) * config.width);
  const Generation decoded = Generate(model, {1, 2, 3, 4}, {.max_new = 33});
  const double decode = static_cast<double>(decoded.new_tokens - 1) / decoded.decode_seconds;
  json["decode_tokens_per_second"] = decode;
  json["decode_share_of_bandwidth"] = decode * weight_bytes / bandwidth;
  Say(options,
      fmt::format("decoding, 124M fp32             {:>9.1f} tokens/s   {:.0f} % of memory speed",
                  decode, 100.0 * decode * weight_bytes / bandwidth));

  for (const std::int64_t length : {std::int64_t{64}, std::int64_t{1024}}) {
    const double budget = length == 64 ? 2.0 : 5.0;
    const double products = ForwardProductsSeconds(model, length, budget);
    const double forward = ForwardSeconds(model, length, budget);
    json[fmt::format("forward_{}_seconds", length)] = forward;
    json[fmt::format("forward_{}_products_seconds", length)] = products;
    json[fmt::format("forward_{}_ratio", length)] = forward / products;
    Say(options,
        fmt::format(
            "forward, {:>4} tokens, all patterns {:>7.1f} ms       {:.2f} x its products by sgemm",
            length, 1e3 * forward, forward / products));
  }

  const AttentionTimes a = TimeAttention(4, 12, 1024, 64);
  json["attention_4x12x1024x64_ms"] = {{"dense_forward", 1e3 * a.dense_forward},
                                       {"dense_forward_backward", 1e3 * a.dense_both},
                                       {"gated_sampled_forward", 1e3 * a.gated_forward},
                                       {"gated_sampled_forward_backward", 1e3 * a.gated_both},
                                       {"gated_hard_forward", 1e3 * a.hard_forward}};
  json["gated_hard_open_share"] = a.hard_open_share;
  json["gated_hard_forward_dense_ratio"] = a.hard_forward / a.dense_forward;
  Say(options,
      fmt::format(
          "attention (4,12,1024,64)         dense {:.1f} / {:.1f} ms, gated {:.1f} / {:.1f} ms "
          "(forward / with backward)",
          1e3 * a.dense_forward, 1e3 * a.dense_both, 1e3 * a.gated_forward, 1e3 * a.gated_both));
  Say(options,
      fmt::format("gated evaluation, {:.1f} % open    {:>8.1f} ms       {:.2f} x the dense forward",
                  100.0 * a.hard_open_share, 1e3 * a.hard_forward,
                  a.hard_forward / a.dense_forward));

  const double fp32_rate = TrainTokensPerSecond(model, {.batch = 4, .context = 256}, 8.0);
  std::vector<StepRates> steps;
  for (const std::int64_t context : kContexts) {
    steps.push_back(TimeSteps(model, {.batch = 4, .context = context, .bf16 = tiles},
                              0.05 * static_cast<double>(context)));
  }
  // Once more, before dividing by it: the clocks of a shared machine wander.
  sgemm = std::max(sgemm, gemm.flops() / gemm.SgemmSeconds(1.5) / 1e9);
  const double fp32_share = fp32_rate * flops_per_token / (sgemm * 1e9);
  json["sgemm_gflops"] = sgemm;
  json["flops_per_token"] = flops_per_token;
  json["train_fp32_tokens_per_second"] = fp32_rate;
  json["train_fp32_sgemm_ratio"] = fp32_share;
  Say(options, fmt::format("sgemm 4096x768x3072             {:>9.1f} GFLOP/s", sgemm));
  Say(options, fmt::format("training, 124M, 4 x 256, fp32   {:>9.1f} tokens/s   {:.2f} x sgemm",
                           fp32_rate, fp32_share));
  ReportAgainstReference(options, a, sgemm, &json);
  if (tiles) {
    const double bf16_rate = steps[0].dense;
    json["bf16_gemm_gflops"] = bf16;
    json["train_bf16_tokens_per_second"] = bf16_rate;
    json["train_bf16_sgemm_ratio"] = bf16_rate * flops_per_token / (sgemm * 1e9);
    Say(options, fmt::format("bf16 product 4096x768x3072      {:>9.1f} GFLOP/s     {:.1f} x sgemm",
                             bf16, bf16 / sgemm));
    Say(options, fmt::format("training, 124M, 4 x 256, bf16   {:>9.1f} tokens/s   {:.2f} x sgemm",
                             bf16_rate, bf16_rate * flops_per_token / (sgemm * 1e9)));
  } else {
    json["bf16_gemm_gflops"] = nullptr;
    json["train_bf16_tokens_per_second"] = nullptr;
    json["bf16_reason"] = Bf16GemmReason();
    Say(options,
        fmt::format("bf16                             does not run here: {}", Bf16GemmReason()));
  }
  ReportSteps(options, steps, sgemm, tiles, &json);
  ReportPatching(options, &json);
  if (options.common.json) PrintJson(json);
}

}  // namespace

void AddBench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddCommand(app, "bench",
             "Measure this machine: products, attention, forward, training, post-training, "
             "decoding (two minutes)",
             "clearhead bench --json", options, Run);
}

}  // namespace clearhead::cli
