// SPDX-License-Identifier: MIT
// The activation between the two halves of the MLP, elementwise.
//   gelu_new  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      GPT-2's own
//   gelu      x/2 (1 + erf(x/sqrt 2))
//   relu, silu = x sigmoid(x), tanh
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace clearhead {

enum class Activation { kGeluNew, kGelu, kRelu, kSilu, kTanh };

std::string_view ToText(Activation activation);
std::optional<Activation> ParseActivation(std::string_view name);

// y = f(x); y may alias x.
void ActivationForward(Activation activation, std::int64_t count, const float* x, float* y);

// dx = dy f'(x); dx may alias dy.
void ActivationBackward(Activation activation, std::int64_t count, const float* x, const float* dy,
                        float* dx);

// The gated form (SwiGLU and its kin): y = f(x) * linear; y may alias x.
void GatedActivationForward(Activation activation, std::int64_t count, const float* x,
                            const float* linear, float* y);

// dx = dy * linear * f'(x), dlinear = dy * f(x); dx may alias dy.
void GatedActivationBackward(Activation activation, std::int64_t count, const float* x,
                             const float* linear, const float* dy, float* dx, float* dlinear);

}  // namespace clearhead
