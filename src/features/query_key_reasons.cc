// SPDX-License-Identifier: MIT
#include "features/query_key_reasons.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "features/frozen_linear.h"
#include "features/head_split.h"
#include "kernels/gemm.h"
#include "kernels/rotary.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

void Add(std::int64_t n, const float* from, float* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// A new term of zeros; its vector.
float* NewTerm(StreamSum& sum, std::int64_t width, StreamTerm term) {
  sum.terms.push_back(term);
  sum.vectors.resize(sum.vectors.size() + static_cast<std::size_t>(width), 0.0f);
  return sum.vectors.data() + sum.vectors.size() - width;
}

// What attention reads, [T,C]: the norm of the stream with its bias, or the stream.
std::vector<float> AttentionInput(const FrozenPrompt& prompt, const BlockLayers& layers,
                                  std::int64_t layer, std::int64_t first, std::int64_t count) {
  const std::int64_t C = prompt.config().width;
  const float* stream = prompt.layers[layer].resid_pre.data() + first * C;
  std::vector<float> in(stream, stream + count * C);
  if (prompt.config().norm_place == NormPlace::kBefore) {
    std::vector<float> mean(static_cast<std::size_t>(count)), scale(mean);
    NormForward(layers.attention_norm, count, stream, in.data(), mean.data(), scale.data());
  }
  return in;
}

// The heads of one layer as terms: each with its values' biases, without the output's.
void AddHeadTerms(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t position,
                  StreamSum& sum) {
  const ModelConfig& config = prompt.config();
  const std::int64_t T = prompt.length(), C = config.width, H = config.heads;
  const std::int64_t K = config.kv_heads(), D = config.head_size(), n = position + 1;
  const BlockLayers layers = LayersOf(*prompt.model, layer);
  const FrozenLayer& frozen = prompt.layers[layer];
  const std::vector<float> in = AttentionInput(prompt, layers, layer, 0, n);
  std::vector<float> values(static_cast<std::size_t>(n * K * D)), z(static_cast<std::size_t>(D));
  LinearForward(PartOf(layers, config, 2), n, in.data(), values.data());
  for (std::int64_t h = 0; h < H; ++h) {
    std::fill(z.begin(), z.end(), 0.0f);
    for (std::int64_t k = 0; k < n; ++k) {
      const float weight = frozen.weights[(h * T + position) * T + k];
      const float* value = values.data() + (k * K + h / (H / K)) * D;
      for (std::int64_t i = 0; i < D; ++i) z[i] += weight * value[i];
    }
    float* out = NewTerm(sum, C, {StreamTermKind::kHead, layer, h});
    LinearForward(InputsOf(layers.output.linear, h * D, D), 1, z.data(), out);
    if (config.norm_place == NormPlace::kAfter) {
      FrozenNormForward(layers.attention_norm, frozen.ln1_scale[position], out, out);
    }
  }
}

void AddBiases(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t position, float* to) {
  const std::int64_t C = prompt.config().width;
  for (std::int64_t l = 0; l < layer; ++l) {
    const BlockLayers layers = LayersOf(*prompt.model, l);
    if (prompt.transcoder != nullptr) Add(C, prompt.transcoder->layers[l].decoder_bias, to);
    std::vector<float> out(static_cast<std::size_t>(C), 0.0f);
    if (layers.output.linear.bias != nullptr) Add(C, layers.output.linear.bias, out.data());
    if (prompt.config().norm_place == NormPlace::kAfter) {
      FrozenNormForward(layers.attention_norm, prompt.layers[l].ln1_scale[position], out.data(),
                        out.data());
      if (layers.attention_norm.bias != nullptr) Add(C, layers.attention_norm.bias, out.data());
    }
    Add(C, out.data(), to);
  }
}

// Queries (part 0) or keys (part 1) of one head at one position.
class Projection {
 public:
  Projection(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t head,
             std::int64_t position, int part)
      : config_(prompt.config()), layers_(LayersOf(*prompt.model, layer)), part_(part) {
    const HeadWeights weights = HeadWeightsOf(*prompt.model, layer, head);
    linear_ = part == 0 ? weights.query : weights.key;
    ln1_scale_ = prompt.layers[layer].ln1_scale[position];
    const std::int64_t D = config_.head_size();
    const std::vector<float> in = AttentionInput(prompt, layers_, layer, position, 1);
    whole_.resize(static_cast<std::size_t>(D));
    LinearForward(linear_, 1, in.data(), whole_.data());
    RefuseClamped(layer, head);
    if (config_.query_key_norm != QueryKeyNorm::kNone) FreezeNorm(head, in);
    if (config_.position == PositionKind::kRotary) {
      cos_.resize(static_cast<std::size_t>(D / 2));
      sin_.resize(cos_.size());
      RotaryTable(config_.RotaryFrequencies(), position, 1, cos_.data(), sin_.data());
    }
    NormAndTurn(1, whole_.data());
  }

  // Of the stream as a whole, [D].
  const std::vector<float>& whole() const { return whole_; }

  // Of each term, [terms,D]; the last one gets the biases.
  std::vector<float> OfTerms(const StreamSum& sum) const {
    const std::int64_t C = config_.width, D = config_.head_size();
    const auto n = static_cast<std::int64_t>(sum.terms.size());
    std::vector<float> in = sum.vectors, out(static_cast<std::size_t>(n * D));
    if (config_.norm_place == NormPlace::kBefore) {
      const Norm& norm = layers_.attention_norm;
      for (std::int64_t t = 0; t < n; ++t) {
        FrozenNormForward(norm, ln1_scale_, in.data() + t * C, in.data() + t * C);
      }
      if (norm.bias != nullptr) Add(C, norm.bias, in.data() + (n - 1) * C);
    }
    Linear linear = linear_;
    linear.bias = nullptr;
    LinearForward(linear, n, in.data(), out.data());
    if (linear_.bias != nullptr) Add(D, linear_.bias, out.data() + (n - 1) * D);
    NormAndTurn(n, out.data());
    return out;
  }

 private:
  void RefuseClamped(std::int64_t layer, std::int64_t head) const {
    if (!config_.clip_qkv) return;
    for (const float value : whole_) {
      if (std::abs(value) <= *config_.clip_qkv) continue;
      Fail("L{}H{} clamps a {} of {} to clip_qkv = {}: its score is not the sum of its terms",
           layer, head, part_ == 0 ? "query" : "key", value, *config_.clip_qkv);
    }
  }

  // The divisor that the norm of queries or keys has in the run.
  void FreezeNorm(std::int64_t head, const std::vector<float>& in) {
    const Norm& norm = part_ == 0 ? layers_.query_norm : layers_.key_norm;
    const std::int64_t D = config_.head_size();
    std::vector<float> all = whole_;
    gain_ = norm.weight;
    if (config_.query_key_norm == QueryKeyNorm::kWhole) {
      all.resize(static_cast<std::size_t>(norm.width));
      LinearForward(PartOf(layers_, config_, part_), 1, in.data(), all.data());
      const std::int64_t of = part_ == 0 ? head : head / (config_.heads / config_.kv_heads());
      if (gain_ != nullptr) gain_ += of * D;
    }
    float mean = 0.0f;
    std::vector<float> out(all.size());
    NormForward(norm, 1, all.data(), out.data(), &mean, &divisor_);
  }

  void NormAndTurn(std::int64_t n, float* rows) const {
    const std::int64_t D = config_.head_size();
    for (std::int64_t i = 0; i < n * D; ++i) {
      rows[i] = rows[i] / divisor_ * (gain_ == nullptr ? 1.0f : gain_[i % D]);
    }
    if (cos_.empty()) return;
    Rotate({.rows = n, .length = 1, .heads = 1, .head_size = D, .stride = D}, cos_.data(),
           sin_.data(), /*inverse=*/false, rows);
  }

  const ModelConfig& config_;
  BlockLayers layers_;
  int part_;
  Linear linear_;
  float ln1_scale_ = 1.0f, divisor_ = 1.0f;
  const float* gain_ = nullptr;  // [D]
  std::vector<float> cos_, sin_, whole_;
};

}  // namespace

std::string_view NameOf(StreamTermKind kind) {
  switch (kind) {
    case StreamTermKind::kToken:
      return "token";
    case StreamTermKind::kPosition:
      return "position";
    case StreamTermKind::kFeature:
      return "feature";
    case StreamTermKind::kError:
      return "error";
    case StreamTermKind::kHead:
      return "head";
    case StreamTermKind::kSkip:
      return "skip";
    case StreamTermKind::kBias:
      break;
  }
  return "bias";
}

StreamSum StreamTermsAt(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t position) {
  const std::int64_t C = prompt.config().width;
  StreamSum sum;
  const auto row = [&](const Buffer<float>& rows) { return rows.data() + position * C; };
  Add(C, row(prompt.tokens), NewTerm(sum, C, {StreamTermKind::kToken, -1, prompt.ids[position]}));
  if (prompt.positions.size() > 0) {
    Add(C, row(prompt.positions), NewTerm(sum, C, {StreamTermKind::kPosition, -1, position}));
  }
  std::vector<float> written(static_cast<std::size_t>(C));
  for (std::int64_t l = 0; l < layer; ++l) {
    const SparseRows& active = prompt.layers[l].active;
    for (std::int64_t e = active.begin[position]; e < active.begin[position + 1]; ++e) {
      float* to = NewTerm(sum, C, {StreamTermKind::kFeature, l, active.column[e]});
      const std::int64_t last = std::min(layer, LastTarget(prompt.transcoder->config, l));
      for (std::int64_t t = l; t < last; ++t) {
        DecoderRow(*prompt.transcoder, l, active.column[e], t, written.data());
        for (std::int64_t i = 0; i < C; ++i) to[i] += active.value[e] * written[i];
      }
    }
  }
  for (std::int64_t l = 0; l < layer; ++l) {
    Add(C, row(prompt.layers[l].error), NewTerm(sum, C, {StreamTermKind::kError, l, position}));
  }
  for (std::int64_t l = 0; l < layer; ++l) AddHeadTerms(prompt, l, position, sum);
  for (std::int64_t l = 0; l < layer && prompt.transcoder != nullptr; ++l) {
    const std::optional<Linear>& skip = prompt.transcoder->layers[l].skip;
    if (!skip) continue;
    LinearForward(*skip, 1, row(prompt.layers[l].input),
                  NewTerm(sum, C, {StreamTermKind::kSkip, l, position}));
  }
  AddBiases(prompt, layer, position, NewTerm(sum, C, {}));
  return sum;
}

QueryKeyReasons ExplainScore(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t head,
                             std::int64_t query, std::int64_t key) {
  const ModelConfig& config = prompt.config();
  if (layer < 0 || layer >= config.layers || head < 0 || head >= config.heads) {
    Fail("L{}H{} is not a head of this model: {} layers of {} heads", layer, head, config.layers,
         config.heads);
  }
  if (query < 0 || query >= prompt.length() || key < 0 || key > query) {
    Fail("query {} and key {} are no pair of a prompt of {} tokens: 0 <= key <= query <= {}", query,
         key, prompt.length(), prompt.length() - 1);
  }
  const std::int64_t D = config.head_size();
  const float scale = config.AttentionScale(layer);
  const Projection queries(prompt, layer, head, query, 0), keys(prompt, layer, head, key, 1);
  const StreamSum at_query = StreamTermsAt(prompt, layer, query),
                  at_key = StreamTermsAt(prompt, layer, key);
  const std::vector<float> q = queries.OfTerms(at_query), k = keys.OfTerms(at_key);
  QueryKeyReasons reasons{
      .layer = layer,
      .head = head,
      .query = query,
      .key = key,
      .score = scale * std::inner_product(queries.whole().begin(), queries.whole().end(),
                                          keys.whole().begin(), 0.0),
      .query_terms = at_query.terms,
      .key_terms = at_key.terms,
      .matrix = {}};
  const auto n = static_cast<std::int64_t>(at_query.terms.size());
  const auto m = static_cast<std::int64_t>(at_key.terms.size());
  reasons.matrix = Buffer<float>(n * m);
  Gemm({n, m, D}, {q.data(), D}, {k.data(), D, Op::kTranspose}, reasons.matrix.data(), m,
       /*accumulate=*/false);
  for (float& value : reasons.matrix) value *= scale;
  return reasons;
}

std::vector<double> QueryKeyReasons::QuerySums() const {
  std::vector<double> sums(query_terms.size(), 0.0);
  for (std::size_t a = 0; a < query_terms.size(); ++a) {
    for (std::size_t b = 0; b < key_terms.size(); ++b) sums[a] += At(a, b);
  }
  return sums;
}

std::vector<double> QueryKeyReasons::KeySums() const {
  std::vector<double> sums(key_terms.size(), 0.0);
  for (std::size_t a = 0; a < query_terms.size(); ++a) {
    for (std::size_t b = 0; b < key_terms.size(); ++b) sums[b] += At(a, b);
  }
  return sums;
}

std::vector<TermPair> StrongestPairs(const QueryKeyReasons& reasons, std::int64_t count) {
  const auto m = static_cast<std::int64_t>(reasons.key_terms.size());
  const std::vector<double> values(reasons.matrix.begin(), reasons.matrix.end());
  std::vector<TermPair> pairs;
  for (const std::int64_t i : RankByMagnitude(values)) {
    if (static_cast<std::int64_t>(pairs.size()) == count) break;
    pairs.push_back({i / m, i % m, values[i]});
  }
  return pairs;
}

GateMargin MarginOfGate(const QueryKeyReasons& reasons, double gate_bias) {
  GateMargin gate{.margin = reasons.score + gate_bias, .turning = {}};
  for (const TermPair& pair : StrongestPairs(reasons, reasons.matrix.size())) {
    const double without = gate.margin - pair.value;
    if ((gate.margin > 0.0) != (without > 0.0)) gate.turning.push_back(pair);
  }
  return gate;
}

}  // namespace clearhead
