// SPDX-License-Identifier: MIT
// Causal attention as plain loops: the specification that the fast kernels are tested against. One
// sequence, one head; q is [queries][D], k and v are [keys][D], all contiguous. Use T = double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace clearhead::reference {

template <typename T>
using Matrix = std::vector<std::vector<T>>;

template <typename T>
Matrix<T> MakeMatrix(std::size_t rows, std::size_t columns) {
  return Matrix<T>(rows, std::vector<T>(columns, T(0)));
}

template <typename T>
T Dot(const std::vector<T>& a, const std::vector<T>& b) {
  T sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

template <typename T>
struct Gradients {
  Matrix<T> dq, dk, dv;
};

// Number of keys that query i sees.
inline std::size_t Visible(std::size_t i, std::size_t queries, std::size_t keys) {
  return i + 1 + (keys - queries);
}

// s_ij = scale * q_i . k_j for visible j; row i has Visible(i) entries.
template <typename T>
Matrix<T> Scores(const Matrix<T>& q, const Matrix<T>& k, T scale) {
  Matrix<T> s(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    for (std::size_t j = 0; j < Visible(i, q.size(), k.size()); ++j) {
      s[i].push_back(scale * Dot(q[i], k[j]));
    }
  }
  return s;
}

template <typename T>
Matrix<T> Softmax(Matrix<T> s) {
  for (std::vector<T>& row : s) {
    const T max = *std::max_element(row.begin(), row.end());
    T sum = 0;
    for (T& x : row) sum += x = std::exp(x - max);
    for (T& x : row) x /= sum;
  }
  return s;
}

// z_i = sum_j w_ij v_j
template <typename T>
Matrix<T> Apply(const Matrix<T>& w, const Matrix<T>& v) {
  Matrix<T> z = MakeMatrix<T>(w.size(), v[0].size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (std::size_t j = 0; j < w[i].size(); ++j) {
      for (std::size_t d = 0; d < z[i].size(); ++d) z[i][d] += w[i][j] * v[j][d];
    }
  }
  return z;
}

// dv_j = sum_i w_ij dz_i
template <typename T>
Matrix<T> ApplyBackwardValues(const Matrix<T>& w, const Matrix<T>& dz, std::size_t keys) {
  Matrix<T> dv = MakeMatrix<T>(keys, dz[0].size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (std::size_t j = 0; j < w[i].size(); ++j) {
      for (std::size_t d = 0; d < dz[i].size(); ++d) dv[j][d] += w[i][j] * dz[i][d];
    }
  }
  return dv;
}

// dq_i = scale * sum_j ds_ij k_j, dk_j = scale * sum_i ds_ij q_i
template <typename T>
void ScoresBackward(const Matrix<T>& q, const Matrix<T>& k, T scale, const Matrix<T>& ds,
                    Gradients<T>& out) {
  out.dq = MakeMatrix<T>(q.size(), q[0].size());
  out.dk = MakeMatrix<T>(k.size(), k[0].size());
  for (std::size_t i = 0; i < ds.size(); ++i) {
    for (std::size_t j = 0; j < ds[i].size(); ++j) {
      for (std::size_t d = 0; d < q[i].size(); ++d) {
        out.dq[i][d] += scale * ds[i][j] * k[j][d];
        out.dk[j][d] += scale * ds[i][j] * q[i][d];
      }
    }
  }
}

template <typename T>
Matrix<T> Attention(const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v, T scale) {
  return Apply(Softmax(Scores(q, k, scale)), v);
}

// ds_ij = p_ij (r_ij - sum_j p_ij r_ij) with r_ij = dz_i . v_j
template <typename T>
Gradients<T> AttentionBackward(const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v, T scale,
                               const Matrix<T>& dz) {
  const Matrix<T> p = Softmax(Scores(q, k, scale));
  Matrix<T> ds = p;
  for (std::size_t i = 0; i < p.size(); ++i) {
    T mean = 0;
    for (std::size_t j = 0; j < p[i].size(); ++j) mean += p[i][j] * Dot(dz[i], v[j]);
    for (std::size_t j = 0; j < p[i].size(); ++j) ds[i][j] = p[i][j] * (Dot(dz[i], v[j]) - mean);
  }
  Gradients<T> out;
  ScoresBackward(q, k, scale, ds, out);
  out.dv = ApplyBackwardValues(p, dz, k.size());
  return out;
}

}  // namespace clearhead::reference
