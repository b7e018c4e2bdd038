// SPDX-License-Identifier: MIT
#include "features/feature_tokens.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

constexpr std::int64_t kFeatureBlock = 512, kTokenBlock = 4096;  // 8 MB of scores

bool Better(const TokenScore& a, const TokenScore& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// The best so far, of at most kListedTokens.
struct BestTokens {
  std::int64_t count = 0;
  TokenList list;

  void Add(const TokenScore& score) {
    if (count == kListedTokens && !Better(score, list.back())) return;
    std::int64_t at = std::min<std::int64_t>(count, kListedTokens - 1);
    for (; at > 0 && Better(score, list[static_cast<std::size_t>(at - 1)]); --at) {
      list[static_cast<std::size_t>(at)] = list[static_cast<std::size_t>(at - 1)];
    }
    list[static_cast<std::size_t>(at)] = score;
    count = std::min<std::int64_t>(count + 1, kListedTokens);
  }
};

// The directions in which features of a layer move the final stream, seen through the final norm's
// centring and gain, [count, C].
Buffer<float> WrittenThroughNorm(const Model& model, const Transcoder& transcoder,
                                 std::int64_t layer, std::int64_t first, std::int64_t count) {
  const std::int64_t C = model.config.width;
  const Norm norm = FinalNormOf(model);
  Buffer<float> written(count * C);
  ParallelFor(count, [&](std::int64_t i) {
    float* sum = written.data() + i * C;
    std::vector<float> row(static_cast<std::size_t>(C));
    std::fill(sum, sum + C, 0.0f);
    for (std::int64_t target = layer; target < LastTarget(transcoder.config, layer); ++target) {
      DecoderRow(transcoder, layer, first + i, target, row.data());
      for (std::int64_t c = 0; c < C; ++c) sum[c] += row[static_cast<std::size_t>(c)];
    }
    double mean = 0.0;
    for (std::int64_t c = 0; norm.kind == NormKind::kLayer && c < C; ++c) mean += sum[c];
    mean /= static_cast<double>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      sum[c] =
          (sum[c] - static_cast<float>(mean)) * (norm.weight == nullptr ? 1.0f : norm.weight[c]);
    }
  });
  return written;
}

// What the MLP of a layer reads where the stream holds the embedding of each token alone,
// [count, C].
Buffer<float> InputsFromEmbeddings(const Model& model, Tap reads, std::int64_t layer,
                                   std::int64_t first, std::int64_t count) {
  const std::int64_t C = model.config.width;
  Buffer<float> x(count * C);
  const Weight embeddings = model.weights(Role::kTokenEmbedding);
  embeddings.CopyTo(first * C, count * C, x.data());
  if (reads == Tap::kLn2Normalized) {
    Buffer<float> mean(count), scale(count);
    NormForward(LayersOf(model, layer).mlp_norm, count, x.data(), x.data(), mean.data(),
                scale.data());
  }
  return x;
}

// Calls see(feature, token, score) for rows[features, C] times the columns that `columns` gives for
// blocks of tokens; a feature's tokens come in order, on one thread.
template <typename Columns, typename See>
void ScoreTokens(const float* rows, std::int64_t features, std::int64_t tokens,
                 const Columns& columns, const See& see) {
  Buffer<float> scores(features * std::min(kTokenBlock, tokens));
  for (std::int64_t first = 0; first < tokens; first += kTokenBlock) {
    const std::int64_t count = std::min(kTokenBlock, tokens - first);
    columns(first, count,
            [&](const Linear& block) { LinearForward(block, features, rows, scores.data()); });
    ParallelFor(features, [&](std::int64_t f) {
      for (std::int64_t t = 0; t < count; ++t) see(f, first + t, scores[f * count + t]);
    });
  }
}

}  // namespace

std::vector<FeatureTokens> TokensOfFeatures(const Model& model, const Transcoder& transcoder,
                                            std::int64_t layer, std::int64_t first,
                                            std::int64_t count, std::int64_t tokens) {
  const std::int64_t C = model.config.width;
  const std::int64_t V =
      tokens > 0 ? std::min(tokens, model.config.vocabulary) : model.config.vocabulary;
  if (V < kListedTokens) {
    Fail("a vocabulary of {} tokens; features are described by lists of {}", V, kListedTokens);
  }
  const Linear output = OutputLayer(model);
  const float* bias = transcoder.layers[static_cast<std::size_t>(layer)].encoder.bias;
  std::vector<FeatureTokens> result(static_cast<std::size_t>(count));
  for (std::int64_t begin = 0; begin < count; begin += kFeatureBlock) {
    const std::int64_t size = std::min(kFeatureBlock, count - begin);
    std::vector<BestTokens> promoted(static_cast<std::size_t>(size)), suppressed = promoted,
                                                                      exciting = promoted;
    std::vector<double> sums(static_cast<std::size_t>(size)), excitement = sums;
    const Buffer<float> written = WrittenThroughNorm(model, transcoder, layer, first + begin, size);
    ScoreTokens(
        written.data(), size, V,
        [&](std::int64_t from, std::int64_t number, const auto& multiply) {
          multiply(OutputsOf(output, from, number));
        },
        [&](std::int64_t f, std::int64_t token, float score) {
          const auto at = static_cast<std::size_t>(f);
          sums[at] += score;
          promoted[at].Add({static_cast<std::int32_t>(token), score});
          suppressed[at].Add({static_cast<std::int32_t>(token), -score});
        });
    Buffer<float> encoder(size * C);
    ParallelFor(size, [&](std::int64_t f) {
      EncoderRow(transcoder, layer, first + begin + f, encoder.data() + f * C);
    });
    ScoreTokens(
        encoder.data(), size, V,
        [&](std::int64_t from, std::int64_t number, const auto& multiply) {
          const Buffer<float> x =
              InputsFromEmbeddings(model, transcoder.config.reads, layer, from, number);
          multiply(MakeLinear(Weight(x.data()), nullptr, C, number, Order::kOutIn));
        },
        [&](std::int64_t f, std::int64_t token, float score) {
          const auto at = static_cast<std::size_t>(f);
          excitement[at] += score;
          exciting[at].Add({static_cast<std::int32_t>(token), score});
        });
    for (std::int64_t f = 0; f < size; ++f) {
      const auto at = static_cast<std::size_t>(f);
      if (!std::isfinite(sums[at]) || !std::isfinite(excitement[at])) {
        Fail("L{}F{} {} values that are not finite numbers: its weights are damaged", layer,
             first + begin + f, std::isfinite(sums[at]) ? "reads" : "writes");
      }
      const auto mean = static_cast<float>(sums[at] / static_cast<double>(V));
      FeatureTokens& out = result[static_cast<std::size_t>(begin + f)];
      out = {promoted[at].list, suppressed[at].list, exciting[at].list};
      for (TokenScore& score : out.promoted) score.score -= mean;
      for (TokenScore& score : out.suppressed) score.score = -score.score - mean;
      for (TokenScore& score : out.exciting) {
        if (bias != nullptr) score.score += bias[first + begin + f];
      }
    }
  }
  return result;
}

}  // namespace clearhead
