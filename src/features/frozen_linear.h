// SPDX-License-Identifier: MIT
// The linear model of one prompt (frozen_prompt.h), layer by layer, forward beside backward.
//
//   mid  = pre + behind1( sum_h A_h (before1(pre) W_V + b_V) W_O + b_O )
//   post = mid + skip( read(mid) ) + b_dec + what features and errors write
//
// with before1, behind1 and read the norms at their frozen divisors, where the model has them:
// norm(x) = (x - mean(x)) / scale * gain + bias. Forward carries what a source changes in the
// stream, so it leaves every bias out. Backward carries the gradients of many targets and adds to
// each target what the biases on its way give it: its own sum, not what is left over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/frozen_prompt.h"
#include "kernels/norm.h"

namespace clearhead {

// Rows of values that belong to targets and positions. A target at position t is reached from
// positions 0 .. t only: with the targets sorted by position, block p has one row for each of the
// targets first(p) .. n-1, and all blocks together are one matrix of contiguous rows.
class TargetRows {
 public:
  // Of each target, ascending. Values are zero.
  TargetRows(std::span<const std::int64_t> positions, std::int64_t width);

  std::int64_t targets() const { return targets_; }
  std::int64_t width() const { return width_; }
  std::int64_t reach() const { return static_cast<std::int64_t>(first_.size()); }  // positions
  std::int64_t rows() const { return begin_.back(); }
  std::int64_t first(std::int64_t p) const { return first_[static_cast<std::size_t>(p)]; }
  std::int64_t count(std::int64_t p) const { return targets_ - first(p); }
  std::int64_t begin(std::int64_t p) const { return begin_[static_cast<std::size_t>(p)]; }
  std::int64_t RowOf(std::int64_t target, std::int64_t p) const {
    return begin(p) + target - first(p);
  }
  float* Row(std::int64_t target, std::int64_t p) {
    return values_.data() + RowOf(target, p) * width_;
  }
  const float* Block(std::int64_t p) const { return values_.data() + begin(p) * width_; }
  float* data() { return values_.data(); }
  const float* data() const { return values_.data(); }

 private:
  std::int64_t targets_, width_;
  std::vector<std::int64_t> first_, begin_;  // [reach], [reach + 1]
  Buffer<float> values_;
};

// Buffers of a sweep, kept from layer to layer and from batch to batch.
struct SweepScratch {
  Buffer<float> branch, heads, values, dots;
};

// The gradient of the stream of `layer`: of post becomes of mid, of mid becomes of pre. `bias`
// [targets] grows by what b_dec and the norms' biases, and b_O, b_V and the norms' biases, give.
void FrozenMlpBackward(const FrozenPrompt& run, std::int64_t layer, TargetRows& gradient,
                       std::span<double> bias, SweepScratch& scratch);
void FrozenAttentionBackward(const FrozenPrompt& run, std::int64_t layer, TargetRows& gradient,
                             std::span<double> bias, SweepScratch& scratch);

// u [T,C], what a source changes in the stream: of pre becomes of mid, of mid becomes of post
// (without what the source itself writes there).
void FrozenAttentionForward(const FrozenPrompt& run, std::int64_t layer, float* u);
void FrozenMlpForward(const FrozenPrompt& run, std::int64_t layer, float* u);

// Gradients that targets begin with, [C]; adds to `bias` what the target has of its own.
//   a feature's pre-activation by mid of its layer:     b_enc, and the bias of the norm it reads
//   direction . normalized[position] by the last post:  the bias of the final norm
void EncoderGradient(const FrozenPrompt& run, std::int64_t layer, std::int64_t position,
                     std::int64_t feature, float* gradient, double& bias);
void FinalGradient(const FrozenPrompt& run, std::int64_t position, std::span<const float> direction,
                   float* gradient, double& bias);

// Where n rows are: all at one position (step 0), or at positions one after another (step 1).
struct RowPlaces {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t operator[](std::int64_t row) const { return first + step * row; }
};

// Parts of the maps above, without biases, for splits into heads:
//   values [n,KD] = before1(rows) W_V
//   heads  [n,HD] = the gradient of the heads' outputs from rows of the gradient of mid
//   skips          rows += skip(read(rows)), and backward rows += read^T(skip^T(rows))
void ValuesOfRows(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
                  const float* rows, float* values);
void HeadGradientsOfRows(const FrozenPrompt& run, std::int64_t layer, RowPlaces places,
                         std::int64_t n, const float* rows, float* heads);
void AddSkips(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
              float* rows);
void AddSkipsBackward(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
                      float* rows);

// A norm at a frozen divisor, without its bias: y = (x - mean(x)) / scale * gain, and its backward,
// which overwrites or adds. Results may take the place of what they are made from.
void FrozenNormForward(const Norm& norm, float scale, const float* x, float* y);
void FrozenNormBackward(const Norm& norm, float scale, const float* dy, float* dx, bool accumulate);

}  // namespace clearhead
