// SPDX-License-Identifier: MIT
// Gated causal attention as plain loops: the specification of gated_attention.h. One sequence, one
// head.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/reference/attention.h"

namespace clearhead::reference {

// kSoft, where the gate is sigmoid(g + n) itself, exists only here: it is differentiable, so finite
// differences check every term of the backward formula.
enum class Gate { kHard, kSampled, kSoft };

template <typename T>
struct GateSettings {
  Gate gate = Gate::kHard;
  T bias = 0;
  Matrix<T> u;  // noise of visible pairs; empty: no noise (n = 0)
};

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
T SigmoidSlope(T x) {
  return Sigmoid(x) * Sigmoid(-x);
}

// g_ij + n_ij
template <typename T>
T NoisyLogit(const GateSettings<T>& settings, const Matrix<T>& s, std::size_t i, std::size_t j) {
  const T g = s[i][j] + settings.bias;
  if (settings.gate == Gate::kHard || settings.u.empty()) return g;
  return g + std::log(settings.u[i][j]) - std::log1p(-settings.u[i][j]);
}

template <typename T>
Matrix<T> Gates(const GateSettings<T>& settings, const Matrix<T>& s) {
  Matrix<T> a = s;
  for (std::size_t i = 0; i < s.size(); ++i) {
    for (std::size_t j = 0; j < s[i].size(); ++j) {
      const T logit = NoisyLogit(settings, s, i, j);
      a[i][j] = settings.gate == Gate::kSoft ? Sigmoid(logit) : T(logit > 0 ? 1 : 0);
    }
  }
  return a;
}

template <typename T>
struct GatedOutput {
  Matrix<T> z;
  std::int64_t open_edges = 0;
  T probability_sum = 0;  // of sigmoid(g), without noise
};

template <typename T>
GatedOutput<T> GatedAttention(const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v, T scale,
                              const GateSettings<T>& settings) {
  const Matrix<T> s = Scores(q, k, scale);
  const Matrix<T> a = Gates(settings, s);
  Matrix<T> weights = Softmax(s);
  GatedOutput<T> out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    for (std::size_t j = 0; j < s[i].size(); ++j) {
      weights[i][j] *= a[i][j];
      out.open_edges += a[i][j] > 0;
      out.probability_sum += Sigmoid(s[i][j] + settings.bias);
    }
  }
  out.z = Apply(weights, v);
  return out;
}

// Gradients of a loss with dLoss/dz = dz and dLoss/dsigmoid(g_ij) = c for every visible pair:
// ds_ij = p_ij (a_ij r_ij - D_i) + p_ij r_ij sigmoid'(g_ij + n_ij) + c sigmoid'(g_ij), of which the
// bias has the last two terms.
template <typename T>
struct GatedGradients : Gradients<T> {
  T dbias = 0;
};

template <typename T>
GatedGradients<T> GatedAttentionBackward(const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v,
                                         T scale, const GateSettings<T>& settings, T c,
                                         const Matrix<T>& dz) {
  const Matrix<T> s = Scores(q, k, scale);
  const Matrix<T> a = Gates(settings, s);
  const Matrix<T> p = Softmax(s);
  Matrix<T> weights = p;
  Matrix<T> ds = p;
  GatedGradients<T> out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    T output_dot = 0;  // D_i = sum_j p_ij a_ij r_ij = dz_i . z_i
    for (std::size_t j = 0; j < s[i].size(); ++j) {
      weights[i][j] = p[i][j] * a[i][j];
      output_dot += weights[i][j] * Dot(dz[i], v[j]);
    }
    for (std::size_t j = 0; j < s[i].size(); ++j) {
      const T r = Dot(dz[i], v[j]);
      const T by_gate = p[i][j] * r * SigmoidSlope(NoisyLogit(settings, s, i, j)) +
                        c * SigmoidSlope(s[i][j] + settings.bias);
      ds[i][j] = p[i][j] * (a[i][j] * r - output_dot) + by_gate;
      out.dbias += by_gate;
    }
  }
  ScoresBackward(q, k, scale, ds, out);
  out.dv = ApplyBackwardValues(weights, dz, k.size());
  return out;
}

}  // namespace clearhead::reference
