// SPDX-License-Identifier: MIT
#include "features/head_split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "features/frozen_linear.h"
#include "kernels/gemm.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

double Dot(std::int64_t n, const float* a, const float* b) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Rows [T,C] of the stream at every layer.
using StreamRows = std::vector<Buffer<float>>;

Buffer<float> Copy(const Buffer<float>& from) {
  Buffer<float> to(from.size());
  std::copy(from.begin(), from.end(), to.begin());
  return to;
}

Buffer<float> Zeros(std::int64_t size) {
  Buffer<float> buffer(size);
  std::fill(buffer.begin(), buffer.end(), 0.0f);
  return buffer;
}

struct Forward {
  StreamRows pre, mid;  // [L]; mid has one more: the last stream
};

Forward PushForward(const FrozenPrompt& prompt, const StreamVectors& source, bool attention) {
  const std::int64_t L = prompt.config().layers, T = prompt.length(), C = prompt.config().width;
  Forward forward;
  Buffer<float> u = Zeros(T * C);
  AddVectors(source, -1, C, u.data());
  for (std::int64_t l = 0; l < L; ++l) {
    forward.pre.push_back(Copy(u));
    if (attention) FrozenAttentionForward(prompt, l, u.data());
    forward.mid.push_back(Copy(u));
    FrozenMlpForward(prompt, l, u.data());
    AddVectors(source, l, C, u.data());
  }
  forward.mid.push_back(std::move(u));
  return forward;
}

struct Backward {
  StreamRows mid;   // [L] behind attention l, [T,C]
  StreamRows post;  // [L] at MLP output l
};

Backward PullBack(const FrozenPrompt& prompt, const StreamVectors& target, bool attention) {
  const std::int64_t L = prompt.config().layers, T = prompt.length(), C = prompt.config().width;
  Backward backward;
  backward.mid.resize(static_cast<std::size_t>(L));
  backward.post.resize(static_cast<std::size_t>(L));
  const std::vector<std::int64_t> last = {T - 1};
  TargetRows gradient(last, C);  // one target that may read anywhere: rows are positions
  std::vector<double> bias(1, 0.0);
  SweepScratch scratch;
  const auto copy = [&] {
    Buffer<float> rows(T * C);
    std::copy_n(gradient.data(), T * C, rows.data());
    return rows;
  };
  AddVectors(target, L, C, gradient.data());
  for (std::int64_t l = L - 1; l >= 0; --l) {
    backward.post[l] = copy();
    FrozenMlpBackward(prompt, l, gradient, bias, scratch);
    AddVectors(target, l, C, gradient.data());
    backward.mid[l] = copy();
    if (attention) FrozenAttentionBackward(prompt, l, gradient, bias, scratch);
  }
  return backward;
}

double Sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void CheckPair(const FrozenPrompt& prompt, std::int64_t query, std::int64_t key) {
  if (query < 0 || query >= prompt.length() || key < 0 || key > query) {
    Fail("query {} and key {} are no pair of a prompt of {} tokens: 0 <= key <= query <= {}", query,
         key, prompt.length(), prompt.length() - 1);
  }
}

}  // namespace

double HeadSplit::one_hop_sum() const { return Sum(one_hop); }

HeadSplit SplitEdge(const FrozenPrompt& prompt, const StreamVectors& source,
                    const StreamVectors& target, std::int64_t query, std::int64_t key,
                    bool keep_pairs) {
  CheckPair(prompt, query, key);
  const ModelConfig& config = prompt.config();
  const std::int64_t L = config.layers, T = prompt.length(), C = config.width, H = config.heads;
  const std::int64_t K = config.kv_heads(), D = config.head_size();
  const Forward up = PushForward(prompt, source, /*attention=*/true);
  const Backward down = PullBack(prompt, target, /*attention=*/true);
  const Forward straight_up = PushForward(prompt, source, /*attention=*/false);
  const Backward straight_down = PullBack(prompt, target, /*attention=*/false);

  HeadSplit split;
  split.heads.assign(static_cast<std::size_t>(L * H), 0.0);
  split.one_hop.assign(static_cast<std::size_t>(L * H), 0.0);
  if (keep_pairs) split.pairs = Zeros(L * H * T * T);
  // What every layer's readers have of it, and what is written into every MLP output.
  std::vector<double> read(static_cast<std::size_t>(L + 1), 0.0),
      written(static_cast<std::size_t>(L), 0.0);
  for (const StreamVector& v : target) {
    const std::int64_t at = v.position * C;
    read[v.layer] += Dot(C, v.values.data(), up.mid[v.layer].data() + at);
    split.direct += Dot(C, v.values.data(), straight_up.mid[v.layer].data() + at);
  }
  for (const StreamVector& v : source) {
    if (v.layer < 0) continue;
    written[v.layer] += Dot(C, v.values.data(), down.post[v.layer].data() + v.position * C);
  }
  split.edge = Sum(read);

  Buffer<float> values(T * K * D), gradients(T * H * D);
  for (std::int64_t l = 0; l < L; ++l) {
    split.bypass.push_back(Dot(T * C, up.pre[l].data(), down.mid[l].data()));
    split.later.push_back(Sum(std::span(written).subspan(l)));
    split.earlier.push_back(Sum(std::span(read).first(l)));
    const float* weights = prompt.layers[l].weights.data();
    ValuesOfRows(prompt, l, {}, T, up.pre[l].data(), values.data());
    HeadGradientsOfRows(prompt, l, {}, T, down.mid[l].data(), gradients.data());
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t q = 0; q < T; ++q) {
        for (std::int64_t k = 0; k <= q; ++k) {
          const std::int64_t pair = (h * T + q) * T + k;
          if (weights[pair] == 0.0f) continue;
          const double value = weights[pair] * Dot(D, gradients.data() + (q * H + h) * D,
                                                   values.data() + (k * K + h / (H / K)) * D);
          split.heads[l * H + h] += value;
          if (keep_pairs) split.pairs[l * H * T * T + pair] = static_cast<float>(value);
        }
      }
    }
    ValuesOfRows(prompt, l, {key, 0}, 1, straight_up.pre[l].data() + key * C, values.data());
    HeadGradientsOfRows(prompt, l, {query, 0}, 1, straight_down.mid[l].data() + query * C,
                        gradients.data());
    for (std::int64_t h = 0; h < H; ++h) {
      split.one_hop[l * H + h] = weights[(h * T + query) * T + key] *
                                 Dot(D, gradients.data() + h * D, values.data() + h / (H / K) * D);
    }
  }
  split.multi_hop = split.edge - split.direct - split.one_hop_sum();
  return split;
}

Buffer<float> OneHopOfAll(const FrozenPrompt& prompt, std::span<const StreamVectors> sources,
                          std::span<const StreamVectors> targets, std::int64_t query,
                          std::int64_t key) {
  CheckPair(prompt, query, key);
  const ModelConfig& config = prompt.config();
  const std::int64_t L = config.layers, T = prompt.length(), C = config.width, H = config.heads;
  const std::int64_t K = config.kv_heads(), D = config.head_size();
  const auto S = static_cast<std::int64_t>(sources.size());
  const auto N = static_cast<std::int64_t>(targets.size());
  Buffer<float> result(L * H * N * S);
  const auto add = [&](std::span<const StreamVectors> list, std::int64_t layer,
                       std::int64_t position, Buffer<float>& rows) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (const StreamVector& v : list[i]) {
        Check(v.position == position, "one hop goes from one position to another");
        if (v.layer != layer) continue;
        float* row = rows.data() + static_cast<std::int64_t>(i) * C;
        for (std::int64_t c = 0; c < C; ++c) row[c] += v.values[c];
      }
    }
  };
  // Gradients of the targets at the query behind every attention, straight down.
  std::vector<Buffer<float>> heads(static_cast<std::size_t>(L));
  Buffer<float> rows = Zeros(N * C);
  add(targets, L, query, rows);
  for (std::int64_t l = L - 1; l >= 0; --l) {
    AddSkipsBackward(prompt, l, {query, 0}, N, rows.data());
    add(targets, l, query, rows);
    heads[l] = Buffer<float>(N * H * D);
    HeadGradientsOfRows(prompt, l, {query, 0}, N, rows.data(), heads[l].data());
  }
  rows = Zeros(S * C);
  Buffer<float> values(S * K * D);
  add(sources, -1, key, rows);
  for (std::int64_t l = 0; l < L; ++l) {
    ValuesOfRows(prompt, l, {key, 0}, S, rows.data(), values.data());
    for (std::int64_t h = 0; h < H; ++h) {
      float* out = result.data() + (l * H + h) * N * S;
      const float weight = prompt.layers[l].weights[(h * T + query) * T + key];
      if (weight == 0.0f || N * S == 0) {
        std::fill_n(out, N * S, 0.0f);
        continue;
      }
      Gemm({N, S, D}, {heads[l].data() + h * D, H * D},
           {values.data() + h / (H / K) * D, K * D, Op::kTranspose}, out, S, /*accumulate=*/false);
      for (std::int64_t i = 0; i < N * S; ++i) out[i] *= weight;
    }
    AddSkips(prompt, l, {key, 0}, S, rows.data());
    add(sources, l, key, rows);
  }
  return result;
}

std::vector<double> CellEffects(const FrozenPrompt& prompt, const StreamVectors& target,
                                std::int64_t query, std::int64_t key) {
  CheckPair(prompt, query, key);
  const ModelConfig& config = prompt.config();
  const std::int64_t L = config.layers, T = prompt.length(), C = config.width, H = config.heads;
  const std::int64_t K = config.kv_heads(), D = config.head_size();
  const Backward down = PullBack(prompt, target, /*attention=*/true);
  std::vector<double> effects(static_cast<std::size_t>(L * H));
  Buffer<float> values(K * D), gradients(H * D), in(C);
  for (std::int64_t l = 0; l < L; ++l) {
    const BlockLayers layers = LayersOf(*prompt.model, l);
    const float* stream = prompt.layers[l].resid_pre.data() + key * C;
    std::copy_n(stream, C, in.data());
    if (config.norm_place == NormPlace::kBefore) {
      float mean = 0.0f, scale = 0.0f;
      NormForward(layers.attention_norm, 1, stream, in.data(), &mean, &scale);
    }
    LinearForward(PartOf(layers, config, 2), 1, in.data(), values.data());
    HeadGradientsOfRows(prompt, l, {query, 0}, 1, down.mid[l].data() + query * C, gradients.data());
    for (std::int64_t h = 0; h < H; ++h) {
      effects[l * H + h] = prompt.layers[l].weights[(h * T + query) * T + key] *
                           Dot(D, gradients.data() + h * D, values.data() + h / (H / K) * D);
    }
  }
  return effects;
}

std::vector<std::int64_t> RankByMagnitude(std::span<const double> values) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  return order;
}

std::int64_t CountForShare(std::span<const double> values, double share) {
  double total = 0.0, sum = 0.0;
  for (const double value : values) total += std::abs(value);
  std::int64_t count = 0;
  for (const std::int64_t i : RankByMagnitude(values)) {
    // Summed in another order, the whole may not be reached: what is 0 adds nothing in any.
    if (sum >= share * total || values[i] == 0.0) break;
    sum += std::abs(values[i]);
    ++count;
  }
  return count;
}

std::int64_t CountNonzero(std::span<const double> values) {
  return std::count_if(values.begin(), values.end(), [](double v) { return v != 0.0; });
}

}  // namespace clearhead
