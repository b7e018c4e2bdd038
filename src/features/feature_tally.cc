// SPDX-License-Identifier: MIT
#include "features/feature_tally.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/random.h"

namespace clearhead {
namespace {

constexpr std::uint64_t kSampleSeed = 16;

void AddToHistogram(float value, FeatureTally* tally) {
  if (value > 0.0f) {
    const int exponent = std::clamp(std::ilogb(value) + 1, -126, 127);  // value < 2^exponent
    if (exponent > tally->exponent) {
      const int shift = std::min(exponent - tally->exponent, 31);
      for (int bin = 0; bin < kHistogramBins; ++bin) {
        const std::uint32_t count = std::exchange(tally->bins[static_cast<std::size_t>(bin)], 0u);
        tally->bins[static_cast<std::size_t>(bin >> shift)] += count;
      }
      tally->exponent = exponent;
    }
  }
  const auto bin = static_cast<int>(std::max(value, 0.0f) / tally->bin_width());
  ++tally->bins[static_cast<std::size_t>(std::min(bin, kHistogramBins - 1))];
}

// The feature's values around entry `at` of its window.
FiringContext ContextAt(const WindowFirings& f, std::int64_t at) {
  FiringContext context;
  const std::int32_t peak = f.columns->row[at];
  const auto put = [&](std::int64_t i) {
    const std::int64_t distance = f.columns->row[i] - std::int64_t{peak};
    if (distance < -kContextBefore || distance > kContextAfter) return false;
    if (f.columns->row[i] == f.first_row) return false;
    context.values[static_cast<std::size_t>(kContextBefore + distance)] =
        f.rows->value[f.columns->entry[i]];
    return true;
  };
  for (std::int64_t i = at; i >= f.first && put(i); --i) {
  }
  for (std::int64_t i = at + 1; i < f.last && put(i); ++i) {
  }
  return context;
}

// Into a list of `count` of at most N elements at place `at`; the last one falls out.
template <typename T, std::size_t N>
void InsertAt(std::array<T, N>* list, std::int32_t count, std::int32_t at, const T& element) {
  const auto size = std::min<std::int32_t>(count, static_cast<std::int32_t>(N) - 1);
  std::move_backward(list->begin() + at, list->begin() + size, list->begin() + size + 1);
  (*list)[static_cast<std::size_t>(at)] = element;
}

bool Stronger(const TopFiring& a, const TopFiring& b) {
  return a.value != b.value ? a.value > b.value : a.position < b.position;
}

template <typename Sampled>
bool Before(const Sampled& a, const Sampled& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}

void AddTop(const TopFiring& firing, const WindowFirings& f, std::int64_t at, FeatureTally* t) {
  const auto end = t->top.begin() + t->tops;
  if (t->tops == kTopFirings && !Stronger(firing, t->top.back())) return;
  if (const auto same = std::find_if(
          t->top.begin(), end, [&](const TopFiring& other) { return other.text == firing.text; });
      same != end) {
    if (!Stronger(firing, *same)) return;
    const auto gone = same - t->top.begin();
    std::move(same + 1, end, same);
    std::move(t->top_contexts.begin() + gone + 1, t->top_contexts.begin() + t->tops,
              t->top_contexts.begin() + gone);
    --t->tops;
  }
  const auto place = static_cast<std::int32_t>(
      std::upper_bound(t->top.begin(), t->top.begin() + t->tops, firing, Stronger) -
      t->top.begin());
  InsertAt(&t->top, t->tops, place, firing);
  InsertAt(&t->top_contexts, t->tops, place, ContextAt(f, at));
  t->tops = std::min(t->tops + 1, kTopFirings);
}

void AddSample(const SampledFiring& firing, const WindowFirings& f, std::int64_t at,
               FeatureTally* t) {
  if (t->samples == kSampledFirings && !Before(firing, t->sample.back())) return;
  const auto place =
      static_cast<std::int32_t>(std::upper_bound(t->sample.begin(), t->sample.begin() + t->samples,
                                                 firing, Before<SampledFiring>) -
                                t->sample.begin());
  InsertAt(&t->sample, t->samples, place, firing);
  if (place < kSampledContexts) {
    InsertAt(&t->sample_contexts, std::min(t->samples, kSampledContexts), place, ContextAt(f, at));
  }
  t->samples = std::min(t->samples + 1, kSampledFirings);
}

void AddPlace(const SampledPlace& place, FeatureTally* t) {
  if (t->places == kSampledPlaces && !Before(place, t->place.back())) return;
  const auto at =
      static_cast<std::int32_t>(std::upper_bound(t->place.begin(), t->place.begin() + t->places,
                                                 place, Before<SampledPlace>) -
                                t->place.begin());
  InsertAt(&t->place, t->places, at, place);
  t->places = std::min(t->places + 1, kSampledPlaces);
}

}  // namespace

float FeatureTally::bin_width() const { return std::ldexp(1.0f, exponent) / kHistogramBins; }

std::uint32_t TextBefore(const WindowedText& text, std::int64_t position) {
  const std::int64_t first = std::max(text.WindowStart(position), position - kContextBefore);
  std::uint64_t hash = 0;
  for (std::int64_t i = first; i <= position; ++i) {
    hash = HashCoordinates(hash,
                           {static_cast<std::uint64_t>(text.tokens[static_cast<std::size_t>(i)])});
  }
  return static_cast<std::uint32_t>(hash >> 32);
}

void AddWindow(const WindowFirings& f, const WindowedText& text, FeatureTally* tally) {
  std::int64_t peak = -1;
  for (std::int64_t i = f.first; i < f.last; ++i) {
    const std::int64_t offset = f.columns->row[i] - f.first_row;
    if (offset == 0) continue;
    const float value = f.rows->value[f.columns->entry[i]];
    tally->largest = tally->fired == 0 ? value : std::max(tally->largest, value);
    ++tally->fired;
    tally->sum += value;
    AddToHistogram(value, tally);
    if (peak < 0 || value > f.rows->value[f.columns->entry[peak]]) peak = i;
    const std::int64_t position = f.start + offset;
    const std::uint64_t hash =
        HashCoordinates(kSampleSeed, {static_cast<std::uint64_t>(f.feature.layer),
                                      static_cast<std::uint64_t>(f.feature.feature),
                                      static_cast<std::uint64_t>(position)});
    const auto key = static_cast<std::uint32_t>(hash >> 32);
    AddPlace({key, static_cast<std::uint32_t>(position)}, tally);
    if (f.quotable) AddSample({key, value, position}, f, i, tally);
  }
  if (peak < 0 || !f.quotable) return;
  const std::int64_t position = f.start + f.columns->row[peak] - f.first_row;
  const float value = f.rows->value[f.columns->entry[peak]];
  // Most windows of a common feature are far below its strongest: no need to read their text.
  if (tally->tops == kTopFirings && value < tally->top.back().value) return;
  AddTop({value, TextBefore(text, position), position}, f, peak, tally);
}

}  // namespace clearhead
