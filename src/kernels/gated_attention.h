// SPDX-License-Identifier: MIT
// Gated causal attention of one layer, fused. In the notation of attention.h, with gate logit
// g_ij = s_ij + bias of the head:
//
//     hard      a_ij = 1[g_ij > 0]
//     sampled   a_ij = 1[g_ij + n_ij > 0],  n_ij = logit(u_ij), u_ij uniform in (0, 1)
//
//     z_i = sum_j p_ij a_ij v_j         p is the softmax over all causal keys: not renormalised
//
// The step has no derivative; straight through, it is taken to be that of the sigmoid at the same
// place (n = 0 when hard). With c the gradient of the loss by each single sigmoid(g_ij) (the edge
// penalty):
//
//     dv_j  = sum_i p_ij a_ij dz_i
//     ds_ij = p_ij (a_ij r_ij - D_i) + p_ij r_ij sigmoid'(g_ij + n_ij) + c sigmoid'(g_ij)
//     dbias = sum_ij p_ij r_ij sigmoid'(g_ij + n_ij) + c sigmoid'(g_ij)
//
// No logarithm is needed: with E = exp(min(g, kGateLogitLimit)) the sampled gate is open when
// u E > 1 - u, and sigmoid'(g + n) = u E (1 - u) / (u E + 1 - u)^2. Forward, backward and the
// stages evaluate the same fp32 expression, so they agree on every gate.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/gate_noise.h"

namespace clearhead {

enum class GateMode { kHard, kSampled };

// Far beyond where any gate can change (|logit(u)| < 17), and its exponential squared does not
// overflow.
inline constexpr float kGateLogitLimit = 40.0f;

// A number of each head: one for all, and what is added to it by head.
struct HeadNumbers {
  // A plain number is one for all heads. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr HeadNumbers(float value = 0.0f, const float* added = nullptr)
      : all(value), by_head(added) {}
  float Of(std::int64_t head) const { return by_head == nullptr ? all : all + by_head[head]; }

  float all;
  const float* by_head;  // [heads], or null
};

struct GateOptions {
  GateMode mode = GateMode::kHard;
  HeadNumbers bias;
  NoiseCoordinates noise;  // of sampled gates
  const float* uniform =
      nullptr;  // if set, u itself, [batch, heads, queries, keys], instead of hashing
};

// Per sequence and head, each [batch, heads]; either may be null.
struct GateStatistics {
  std::int64_t* open_edges = nullptr;  // number of causal pairs with a_ij = 1
  double* probability_sum = nullptr;   // sum over causal pairs of sigmoid(g_ij), without noise
};

// A closed gate contributes exactly nothing, and where few are open only those cost time.
void GatedAttentionForward(const AttentionShape& shape, const AttentionInput& input,
                           const GateOptions& gate, HeadRows<float> z, float* log_sum_exp,
                           const GateStatistics& statistics);

// `penalty_gradient` is c: dLoss/dP divided by the number of pairs that P averages.
// `bias_gradient`, overwritten, is [batch, heads], or null.
void GatedAttentionBackward(const AttentionShape& shape, const AttentionInput& input,
                            const GateOptions& gate, HeadNumbers penalty_gradient,
                            const AttentionOutput& output, HeadRows<const float> dz,
                            const AttentionGradients& gradients, double* bias_gradient = nullptr);

}  // namespace clearhead
