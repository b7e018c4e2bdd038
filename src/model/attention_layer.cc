// SPDX-License-Identifier: MIT
#include "model/attention_layer.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "kernels/attention.h"
#include "kernels/attention_stages.h"
#include "kernels/gated_attention.h"
#include "kernels/gated_attention_stages.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

constexpr Tap kMatrixTaps[] = {Tap::kScores, Tap::kGateProb, Tap::kSparseMask, Tap::kPattern};

// One layer's view of the problem.
struct Layer {
  const Pass& pass;
  std::int64_t layer;
  Activations& activations;

  BlockActivations& a() const { return activations.blocks[static_cast<std::size_t>(layer)]; }
  BlockExtras& extras() const { return activations.extras[static_cast<std::size_t>(layer)]; }
  bool keep() const { return activations.keep != Keep::kNothing; }

  AttentionShape shape() const {
    return {.batch = pass.batch,
            .heads = pass.config().heads,
            .queries = pass.length,
            .keys = pass.past() + pass.length,
            .head_size = pass.config().head_size(),
            .scale = pass.config().AttentionScale(layer)};
  }
  Shape matrix_shape() const {
    return {pass.batch, pass.config().heads, pass.length, pass.past() + pass.length};
  }
  // How many heads read one key and value.
  std::int64_t share() const { return pass.config().heads / pass.config().kv_heads(); }
  // Part 0, 1, 2 = query, key, value columns of a [R,P] buffer.
  template <typename T>
  HeadRows<T> Part(T* qkv, int part) const {
    const std::int64_t P = pass.config().qkv_width();
    return {qkv + ColumnOf(pass.config(), part), P, pass.length * P, part == 0 ? 1 : share()};
  }
  template <typename T>
  HeadRows<T> Rows(T* data) const {
    const std::int64_t Z = pass.config().heads_width();
    return {data, Z, pass.length * Z};
  }
  AttentionInput input() const {
    const float* qkv = a().qkv;
    AttentionInput input{Part(qkv, 0), Part(qkv, 1), Part(qkv, 2)};
    if (pass.cache != nullptr) {
      const std::int64_t KV = pass.config().kv_width(), step = pass.cache->capacity * KV;
      input.k = {pass.cache->keys[static_cast<std::size_t>(layer)].data(), KV, step, share()};
      input.v = {pass.cache->values[static_cast<std::size_t>(layer)].data(), KV, step, share()};
    }
    return input;
  }
  // Where backward puts the gradients: keys and values by head, which SumShared adds up.
  AttentionGradients gradients() const {
    float* d_qkv = activations.d_qkv;
    if (share() == 1) return {Part(d_qkv, 0), Part(d_qkv, 1), Part(d_qkv, 2)};
    const std::int64_t Z = pass.config().heads_width(), row = 2 * Z;
    float* shared = activations.d_shared;
    return {Part(d_qkv, 0), {shared, row, pass.length * row}, {shared + Z, row, pass.length * row}};
  }
  // d_qkv's keys and values: sums over the heads that share them.
  void SumShared() const {
    if (share() == 1) return;
    const ModelConfig& config = pass.config();
    const std::int64_t Z = config.heads_width(), D = config.head_size(), P = config.qkv_width();
    ParallelRanges(pass.rows(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        for (int part = 1; part < 3; ++part) {
          const float* from = activations.d_shared + r * 2 * Z + (part - 1) * Z;
          float* to = activations.d_qkv + r * P + ColumnOf(config, part);
          std::fill(to, to + config.kv_width(), 0.0f);
          for (std::int64_t h = 0; h < config.heads; ++h) {
            for (std::int64_t i = 0; i < D; ++i) to[h / share() * D + i] += from[h * D + i];
          }
        }
      }
    });
  }
  GateOptions gate() const {
    GateOptions options{
        .mode = pass.gates.mode, .bias = GateBiasOf(pass.model, layer), .noise = pass.gates.noise};
    options.bias.all += pass.gates.bias_shift;
    options.noise.layer = static_cast<std::uint64_t>(layer);
    if (pass.gates.uniform != nullptr) {
      options.uniform = pass.gates.uniform + layer * matrix_shape().size();
    }
    return options;
  }
  GateStatistics statistics() const {
    const std::int64_t at = layer * pass.batch * pass.config().heads;
    return {activations.open_edges.data() + at,
            pass.gates.sum_probabilities ? activations.gate_probability_sum.data() + at : nullptr};
  }
  // d loss / d sigmoid(g) of every pair of a head: the penalty is a mean over layers and heads of
  // what each makes of its mean over sequences and pairs.
  HeadNumbers penalty_gradient() const {
    const std::int64_t H = pass.config().heads;
    const double pairs =
        0.5 * static_cast<double>(pass.length) * static_cast<double>(pass.length + 1);
    const double count = static_cast<double>(pass.config().layers * pass.batch * H) * pairs;
    const double weight = pass.gates.penalty_weight / count;
    if (pass.gates.concentrate == 0.0f) return static_cast<float>(weight);
    const double* sums = activations.gate_probability_sum.data() + layer * pass.batch * H;
    for (std::int64_t h = 0; h < H; ++h) {
      double sum = 0.0;
      for (std::int64_t b = 0; b < pass.batch; ++b) sum += sums[b * H + h];
      const double mean = pass.gates.head_means != nullptr
                              ? pass.gates.head_means[layer * H + h]
                              : sum / (static_cast<double>(pass.batch) * pairs);
      activations.gate_penalty[h] = static_cast<float>(weight * pass.gates.concentrate * 0.5 /
                                                       std::sqrt(mean + kConcentrateFloor));
    }
    return {0.0f, activations.gate_penalty.data()};
  }
  // Where backward puts the bias's gradient of each sequence and head; null if nobody wants it.
  double* bias_gradients(const float* d_gate_bias) const {
    return d_gate_bias == nullptr ? nullptr : activations.d_gate_bias.data();
  }
  void AddBiasGradients(float* d_gate_bias) const {
    if (d_gate_bias == nullptr) return;
    const std::int64_t H = pass.config().heads;
    for (std::int64_t h = 0; h < H; ++h) {
      double sum = 0.0;
      for (std::int64_t b = 0; b < pass.batch; ++b) sum += activations.d_gate_bias[b * H + h];
      d_gate_bias[h] += static_cast<float>(sum);
    }
  }

  bool staged() const {
    if (pass.hooks == nullptr) return false;
    return std::any_of(std::begin(kMatrixTaps), std::end(kMatrixTaps), [&](Tap tap) {
      return pass.Wants({tap, layer}) || (keep() && pass.WantsGradient({tap, layer}));
    });
  }
  // The hook's own place for a matrix, or `own`, made large enough.
  float* Place(Tap tap, Buffer<float>& own) const {
    const Shape extents = matrix_shape();
    if (pass.hooks != nullptr) {
      if (float* place = pass.hooks->Storage({tap, layer}, extents); place != nullptr) return place;
    }
    if (own.size() < extents.size()) own = Buffer<float>(extents.size());
    return own.data();
  }
  void Visit(Tap tap, float* matrix) const { pass.Visit({tap, layer}, {matrix, matrix_shape()}); }
};

void StagedForward(const Layer& l) {
  const AttentionShape shape = l.shape();
  const AttentionInput input = l.input();
  const Pass& pass = l.pass;
  BlockExtras& e = l.extras();
  const bool gated = pass.gated();

  float* scores = nullptr;
  if (gated || pass.Wants({Tap::kScores, l.layer})) {
    scores = l.Place(Tap::kScores, e.scores);
    AttentionScores(shape, input.q, input.k, scores);
    l.Visit(Tap::kScores, scores);
  }

  float* weights = l.Place(Tap::kPattern, e.weights);
  const float* softmax = weights;
  if (gated) {
    Buffer<float> probability;
    float* mask = l.Place(Tap::kSparseMask, e.mask);
    const bool wants_probability = pass.Wants({Tap::kGateProb, l.layer});
    float* prob = wants_probability ? l.Place(Tap::kGateProb, probability) : nullptr;
    GateMask(shape, l.gate(), scores, mask, prob, l.statistics());
    if (wants_probability) l.Visit(Tap::kGateProb, prob);
    l.Visit(Tap::kSparseMask, mask);
    if (e.softmax.size() < l.matrix_shape().size())
      e.softmax = Buffer<float>(l.matrix_shape().size());
    CausalSoftmax(shape, scores, e.softmax.data());
    ApplyGate(shape, e.softmax.data(), mask, weights);
    softmax = e.softmax.data();
    e.mask_used = mask;
  } else {
    if (scores != nullptr) {
      CausalSoftmax(shape, scores, weights);
    } else {
      AttentionPattern(shape, input.q, input.k, weights);
    }
    if (l.keep() && pass.Changes({Tap::kPattern, l.layer})) {  // backward needs it unchanged
      e.softmax = Buffer<float>(l.matrix_shape().size());
      std::copy(weights, weights + l.matrix_shape().size(), e.softmax.data());
      softmax = e.softmax.data();
    }
  }
  l.Visit(Tap::kPattern, weights);
  AttentionApply(shape, weights, input.v, l.Rows(l.a().z));

  e.scores_used = scores;
  e.softmax_used = softmax;
  e.weights_used = weights;
  if (!l.keep()) e = BlockExtras{};
}

void StagedBackward(const Layer& l, float* d_gate_bias) {
  const AttentionShape shape = l.shape();
  const AttentionInput input = l.input();
  const Pass& pass = l.pass;
  const BlockExtras& e = l.extras();
  const AttentionGradients gradients = l.gradients();
  Buffer<float> d_matrix(l.matrix_shape().size());
  const TensorView<float> view(d_matrix.data(), l.matrix_shape());

  const float* d_z = l.activations.d_z;
  AttentionApplyBackward(shape, e.weights_used, input.v, l.Rows(d_z), d_matrix.data(),
                         gradients.dv);
  pass.VisitGradient({Tap::kPattern, l.layer}, view);
  if (pass.gated()) {
    if (pass.Changes({Tap::kSparseMask, l.layer})) {
      Fail("gradients through a changed {} are not defined: the step it replaces has no derivative",
           TapName({Tap::kSparseMask, l.layer}));
    }
    if (pass.WantsGradient({Tap::kSparseMask, l.layer})) {  // d mask = softmax * d weights
      Buffer<float> d_mask(l.matrix_shape().size());
      for (std::int64_t i = 0; i < d_mask.size(); ++i) d_mask[i] = e.softmax_used[i] * d_matrix[i];
      pass.VisitGradient({Tap::kSparseMask, l.layer}, {d_mask.data(), l.matrix_shape()});
    }
    GateBackward(shape, l.gate(), {e.scores_used, e.softmax_used, e.mask_used}, d_matrix.data(),
                 l.penalty_gradient(), d_matrix.data(), l.bias_gradients(d_gate_bias));
    l.AddBiasGradients(d_gate_bias);
  } else {
    CausalSoftmaxBackward(shape, e.softmax_used, d_matrix.data(), d_matrix.data());
  }
  pass.VisitGradient({Tap::kScores, l.layer}, view);
  AttentionScoresBackward(shape, input.q, input.k, d_matrix.data(), gradients.dq, gradients.dk);
  l.SumShared();
}

}  // namespace

void AppendToCache(const Pass& pass, std::int64_t layer, Activations& activations) {
  if (pass.cache == nullptr) return;
  const std::int64_t KV = pass.config().kv_width(), P = pass.config().qkv_width();
  const std::int64_t key = ColumnOf(pass.config(), 1);
  KeyValueCache& cache = *pass.cache;
  const auto at = static_cast<std::size_t>(layer);
  const float* qkv = activations.blocks[at].qkv;
  for (std::int64_t b = 0; b < pass.batch; ++b) {
    for (std::int64_t t = 0; t < pass.length; ++t) {
      const float* row = qkv + (b * pass.length + t) * P + key;
      const std::int64_t to = (b * cache.capacity + cache.length + t) * KV;
      std::copy(row, row + KV, cache.keys[at].data() + to);
      std::copy(row + KV, row + 2 * KV, cache.values[at].data() + to);
    }
  }
}

void AttentionLayerForward(const Pass& pass, std::int64_t layer, Activations& activations) {
  const Layer l{pass, layer, activations};
  AppendToCache(pass, layer, activations);
  if (l.staged()) return StagedForward(l);
  if (pass.gated()) {
    GatedAttentionForward(l.shape(), l.input(), l.gate(), l.Rows(l.a().z), l.a().log_sum_exp,
                          l.statistics());
  } else {
    AttentionForward(l.shape(), l.input(), l.Rows(l.a().z), l.a().log_sum_exp);
  }
}

void AttentionLayerBackward(const Pass& pass, std::int64_t layer, Activations& activations,
                            float* d_gate_bias) {
  const Layer l{pass, layer, activations};
  if (l.staged()) return StagedBackward(l, d_gate_bias);
  const float* z = l.extras().z.size() > 0 ? l.extras().z.data() : l.a().z;
  const float* d_z_rows = activations.d_z;
  const HeadRows<const float> d_z = l.Rows(d_z_rows);
  const AttentionOutput output{l.Rows(z), l.a().log_sum_exp};
  const AttentionGradients gradients = l.gradients();
  if (pass.gated()) {
    GatedAttentionBackward(l.shape(), l.input(), l.gate(), l.penalty_gradient(), output, d_z,
                           gradients, l.bias_gradients(d_gate_bias));
    l.AddBiasGradients(d_gate_bias);
  } else {
    AttentionBackward(l.shape(), l.input(), output, d_z, gradients);
  }
  l.SumShared();
}

}  // namespace clearhead
