// SPDX-License-Identifier: MIT
#include "heads/composition.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "core/random.h"
#include "core/threads.h"
#include "kernels/gemm.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

constexpr int kBaselineSamples = 24;

// A product of two thin matrices, [C,D] times [D,C], is never formed: norms of products need only
// the D x D Gram matrices of the outer factors. With A^T A = R^T R (Cholesky), ||A X|| = ||R X||;
// so W_OV(from) = W_V W_O acts on the left as the D x C matrix R W_O, and M(to) = P Q on the right
// as the C x D matrix P L with Q Q^T = L L^T.
using Matrix = std::vector<double>;  // row-major

// Lower triangle L with L L^T = gram [n,n]. Semi-definite: a pivot without weight leaves a column
// of zeros, which is exact up to rounding.
Matrix Cholesky(Matrix gram, std::int64_t n) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, gram[static_cast<std::size_t>(i * n + i)]);
  }
  Matrix lower(gram.size(), 0.0);
  for (std::int64_t j = 0; j < n; ++j) {
    const auto at = [n](std::int64_t r, std::int64_t c) {
      return static_cast<std::size_t>(r * n + c);
    };
    double pivot = gram[at(j, j)];
    for (std::int64_t k = 0; k < j; ++k) pivot -= lower[at(j, k)] * lower[at(j, k)];
    if (pivot <= 1e-14 * largest) continue;
    const double root = std::sqrt(pivot);
    lower[at(j, j)] = root;
    for (std::int64_t i = j + 1; i < n; ++i) {
      double sum = gram[at(i, j)];
      for (std::int64_t k = 0; k < j; ++k) sum -= lower[at(i, k)] * lower[at(j, k)];
      lower[at(i, j)] = sum / root;
    }
  }
  return lower;
}

// A thin matrix given by element(c, d), c < C, d < D.
template <typename Element>
Matrix Gram(std::int64_t C, std::int64_t D, const Element& element) {
  Matrix gram(static_cast<std::size_t>(D * D), 0.0);
  std::vector<double> row(static_cast<std::size_t>(D));
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t d = 0; d < D; ++d) row[static_cast<std::size_t>(d)] = element(c, d);
    for (std::int64_t d = 0; d < D; ++d) {
      for (std::int64_t e = 0; e <= d; ++e) {
        gram[static_cast<std::size_t>(d * D + e)] +=
            row[static_cast<std::size_t>(d)] * row[static_cast<std::size_t>(e)];
      }
    }
  }
  return gram;  // the lower triangle, all that Cholesky reads
}

// out(c, e) = sum_d P(c, d) L(d, e) for L from the Gram matrix of the outer factor: the action of
// the product on the side of P. Returns its Frobenius norm. `out` has row stride `stride`.
template <typename Inner, typename Outer>
double Act(std::int64_t C, std::int64_t D, const Inner& inner, const Outer& outer, float* out,
           std::int64_t stride) {
  const Matrix lower = Cholesky(Gram(C, D, outer), D);
  double norm = 0;
  std::vector<double> row(static_cast<std::size_t>(D));
  for (std::int64_t c = 0; c < C; ++c) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::int64_t d = 0; d < D; ++d) {
      const double value = inner(c, d);
      for (std::int64_t e = 0; e <= d; ++e) {
        row[static_cast<std::size_t>(e)] += value * lower[static_cast<std::size_t>(d * D + e)];
      }
    }
    for (std::int64_t e = 0; e < D; ++e) {
      out[c * stride + e] = static_cast<float>(row[static_cast<std::size_t>(e)]);
      norm += row[static_cast<std::size_t>(e)] * row[static_cast<std::size_t>(e)];
    }
  }
  return std::sqrt(norm);
}

// The heads of one layer side by side, [C, H*D] each: W_OV as a writer, transposed, and the three
// readers.
struct LayerFactors {
  Buffer<float> writer;
  Buffer<float> readers[kCompositionKinds];
  std::vector<double> writer_norms, reader_norms[kCompositionKinds];  // [H]
};

LayerFactors FactorsOf(const Model& model, std::int64_t layer) {
  const std::int64_t C = model.config.width, H = model.config.heads, D = model.config.head_size();
  const std::int64_t Z = model.config.heads_width();
  LayerFactors factors;
  factors.writer = Buffer<float>(C * Z);
  factors.writer_norms.resize(static_cast<std::size_t>(H));
  for (int kind = 0; kind < kCompositionKinds; ++kind) {
    factors.readers[kind] = Buffer<float>(C * Z);
    factors.reader_norms[kind].resize(static_cast<std::size_t>(H));
  }
  ParallelFor(H, [&](std::int64_t h) {
    const HeadWeights weights = HeadWeightsOf(model, layer, h);
    Buffer<float> values[4];  // W_Q, W_K, W_V [C,D] and W_O [D,C]
    const Linear* matrices[] = {&weights.query, &weights.key, &weights.value, &weights.output};
    for (int i = 0; i < 4; ++i) {
      values[i] = Buffer<float>(C * D);
      CopyMatrix(*matrices[i], values[i].data());
    }
    const auto part = [&](int which) {
      return [matrix = values[which].data(), D](std::int64_t c, std::int64_t d) -> double {
        return matrix[c * D + d];
      };
    };
    const auto w_o = [matrix = values[3].data(), C](std::int64_t c, std::int64_t d) -> double {
      return matrix[d * C + c];  // W_O^T
    };
    const auto at = static_cast<std::size_t>(h);
    const auto place = [&](int kind) { return factors.readers[kind].data() + h * D; };
    factors.writer_norms[at] = Act(C, D, w_o, part(2), factors.writer.data() + h * D, Z);
    factors.reader_norms[0][at] = Act(C, D, part(0), part(1), place(0), Z);
    factors.reader_norms[1][at] = Act(C, D, part(1), part(0), place(1), Z);
    factors.reader_norms[2][at] = Act(C, D, part(2), w_o, place(2), Z);
  });
  return factors;
}

void ScoreLayers(const LayerFactors& from, const LayerFactors& to, std::int64_t from_layer,
                 std::int64_t to_layer, Composition* result, const ModelConfig& config) {
  const std::int64_t C = config.width, H = config.heads, D = config.head_size();
  const std::int64_t Z = config.heads_width();
  Buffer<float> product(Z * Z);
  for (int kind = 0; kind < kCompositionKinds; ++kind) {
    Gemm({Z, Z, C}, {from.writer.data(), Z, Op::kTranspose}, {to.readers[kind].data(), Z},
         product.data(), Z, /*accumulate=*/false);
    for (std::int64_t f = 0; f < H; ++f) {
      for (std::int64_t t = 0; t < H; ++t) {
        double norm = 0;
        for (std::int64_t r = f * D; r < (f + 1) * D; ++r) {
          for (std::int64_t c = t * D; c < (t + 1) * D; ++c) {
            norm += static_cast<double>(product[r * Z + c]) * product[r * Z + c];
          }
        }
        const double norms = from.writer_norms[static_cast<std::size_t>(f)] *
                             to.reader_norms[kind][static_cast<std::size_t>(t)];
        const std::int64_t row = from_layer * H + f, column = to_layer * H + t;
        result->scores[static_cast<std::size_t>(kind)]
                      [static_cast<std::size_t>(row * config.layers * H + column)] =
            norms > 0 ? static_cast<float>(std::sqrt(norm) / norms) : 0.0f;
      }
    }
  }
}

void MeasureBaseline(std::int64_t C, std::int64_t D, std::uint64_t seed, Composition* result) {
  std::vector<double> scores(kBaselineSamples);
  ParallelFor(kBaselineSamples, [&](std::int64_t sample) {
    const auto random = [&](std::uint64_t factor) {
      Matrix values(static_cast<std::size_t>(C * D));
      RandomStream stream(
          HashCoordinates(seed, {0xba5e, static_cast<std::uint64_t>(sample), factor}));
      for (double& value : values) value = stream.Normal();
      return values;
    };
    const Matrix a = random(0), b = random(1), p = random(2), q = random(3);
    const auto of = [D](const Matrix& values) {
      return [&values, D](std::int64_t c, std::int64_t d) {
        return values[static_cast<std::size_t>(c * D + d)];
      };
    };
    std::vector<float> writer(static_cast<std::size_t>(C * D)), reader = writer;
    const double norms =
        Act(C, D, of(b), of(a), writer.data(), D) * Act(C, D, of(p), of(q), reader.data(), D);
    double norm = 0;
    for (std::int64_t d = 0; d < D; ++d) {
      for (std::int64_t e = 0; e < D; ++e) {
        double sum = 0;
        for (std::int64_t c = 0; c < C; ++c) {
          sum += static_cast<double>(writer[static_cast<std::size_t>(c * D + d)]) *
                 reader[static_cast<std::size_t>(c * D + e)];
        }
        norm += sum * sum;
      }
    }
    scores[static_cast<std::size_t>(sample)] = std::sqrt(norm) / norms;
  });
  double sum = 0, squares = 0;
  for (const double score : scores) sum += score;
  result->baseline = sum / kBaselineSamples;
  for (const double score : scores)
    squares += (score - result->baseline) * (score - result->baseline);
  result->baseline_deviation = std::sqrt(squares / (kBaselineSamples - 1));
}

void Count(Composition* result) {
  const std::int64_t H = result->heads, all = result->layers * H;
  std::vector<CompositionPair> pairs;
  for (int kind = 0; kind < kCompositionKinds; ++kind) {
    CompositionCount& count = result->counts[static_cast<std::size_t>(kind)];
    double sum = 0;
    for (std::int64_t from = 0; from < all; ++from) {
      for (std::int64_t to = (from / H + 1) * H; to < all; ++to) {
        const double score =
            result
                ->scores[static_cast<std::size_t>(kind)][static_cast<std::size_t>(from * all + to)];
        ++count.pairs;
        if (score >= 2 * result->baseline) ++count.strong;
        sum += score - result->baseline;
        pairs.push_back(
            {static_cast<CompositionKind>(kind), {from / H, from % H}, {to / H, to % H}, score});
      }
    }
    count.mean_excess = count.pairs > 0 ? sum / static_cast<double>(count.pairs) : 0.0;
  }
  const std::size_t keep = std::min(pairs.size(), Composition::kStrongest);
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(keep), pairs.end(),
                    [](const CompositionPair& a, const CompositionPair& b) {
                      if (a.score != b.score) return a.score > b.score;
                      if (a.kind != b.kind) return a.kind < b.kind;
                      return std::pair(a.from, a.to) < std::pair(b.from, b.to);
                    });
  pairs.resize(keep);
  result->strongest = std::move(pairs);
}

}  // namespace

std::string_view CompositionName(CompositionKind kind) {
  constexpr std::string_view kNames[kCompositionKinds] = {"Q", "K", "V"};
  return kNames[static_cast<int>(kind)];
}

Composition ComposeHeads(const Model& model, std::uint64_t seed) {
  const ModelConfig& config = model.config;
  Composition result{.layers = config.layers, .heads = config.heads};
  const std::int64_t all = config.layers * config.heads;
  for (auto& scores : result.scores) scores.assign(static_cast<std::size_t>(all * all), 0.0f);
  MeasureBaseline(config.width, config.head_size(), seed, &result);
  std::vector<LayerFactors> factors;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    factors.push_back(FactorsOf(model, layer));
    for (std::int64_t from = 0; from < layer; ++from) {
      ScoreLayers(factors[static_cast<std::size_t>(from)], factors.back(), from, layer, &result,
                  config);
    }
  }
  Count(&result);
  return result;
}

}  // namespace clearhead
