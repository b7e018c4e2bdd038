// SPDX-License-Identifier: MIT
// What is kept of one feature while a text passes by: counts, a histogram, its strongest places and
// fair samples of all its places. Everything has a fixed size, and nothing but the last digits of
// the mean depends on the order in which windows come. Text that may not be quoted counts, but
// gives no examples.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "features/feature_id.h"
#include "kernels/sparse_rows.h"

namespace clearhead {

inline constexpr int kHistogramBins = 32;
// Tokens of an example before its peak, and after it.
inline constexpr int kContextBefore = 16, kContextAfter = 7;
inline constexpr int kContextTokens = kContextBefore + 1 + kContextAfter;
inline constexpr int kTopFirings = 6;        // strongest windows
inline constexpr int kSampledFirings = 64;   // places drawn from all
inline constexpr int kSampledContexts = 12;  // of these, with activations around them
inline constexpr int kSampledPlaces = 512;   // that labels are made of

// The text in windows of one length (the last may be shorter), as use/evaluate.h cuts it.
struct WindowedText {
  std::span<const std::int32_t> tokens;
  std::int64_t window = 0;

  std::int64_t WindowStart(std::int64_t position) const { return position / window * window; }
};

struct FiringContext {
  std::array<float, kContextTokens> values = {};  // kContextBefore is the peak; 0: does not fire
};

struct TopFiring {
  float value = 0.0f;
  std::uint32_t text = 0;  // of the tokens up to it: the same sentence counts once
  std::int64_t position = 0;
};

struct SampledFiring {
  std::uint32_t key = 0;  // a hash of feature and position: the smallest ones are the sample
  float value = 0.0f;
  std::int64_t position = 0;
};

// As a SampledFiring, of any text. Labels need more places than examples.
struct SampledPlace {
  std::uint32_t key = 0, position = 0;
};

struct FeatureTally {
  std::int64_t fired = 0;
  double sum = 0.0;
  float largest = 0.0f;
  // Bins of equal width over [0, 2^exponent): when a larger value comes, neighbours join, so that
  // the result is that of a second look at all values. Values below 0 (top-k) are in the first.
  std::int32_t exponent = -126;
  std::array<std::uint32_t, kHistogramBins> bins = {};
  std::int32_t tops = 0, samples = 0, places = 0;
  std::array<TopFiring, kTopFirings> top = {};  // strongest first
  std::array<FiringContext, kTopFirings> top_contexts = {};
  std::array<SampledFiring, kSampledFirings> sample = {};  // smallest key first
  std::array<FiringContext, kSampledContexts> sample_contexts = {};
  std::array<SampledPlace, kSampledPlaces> place = {};  // smallest key first

  float bin_width() const;
};

// What one feature did in one window: entries [first, last) of `columns` belong to it and are rows
// of this window in ascending order. Row `first_row` is the window's token at `start` of the text;
// it is left out, as position 0 is everywhere.
struct WindowFirings {
  FeatureId feature;
  const SparseRows* rows;
  const SparseColumns* columns;
  std::int64_t first, last;
  std::int64_t first_row, start;
  bool quotable = true;  // may be an example
};
void AddWindow(const WindowFirings& firings, const WindowedText& text, FeatureTally* tally);

// Of the tokens up to `position` that an example shows.
std::uint32_t TextBefore(const WindowedText& text, std::int64_t position);

}  // namespace clearhead
