// SPDX-License-Identifier: MIT
#include "features/index_slice.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "core/safetensors.h"
#include "core/threads.h"
#include "features/feature_index.h"

namespace clearhead {
namespace {

constexpr std::int64_t kShare = 64;  // features that a thread takes at a time

// One of the places where a feature fires, as an example.
struct Shown {
  ExampleGroup group;
  std::int64_t position;
  const FiringContext* context;
};

// The strongest places, then two of each third of all places by rank, none twice.
std::vector<Shown> ExamplesOf(const FeatureTally& tally, const WindowedText& text) {
  std::vector<Shown> shown;
  std::vector<std::uint32_t> texts;
  for (std::int32_t t = 0; t < tally.tops; ++t) {
    const auto at = static_cast<std::size_t>(t);
    shown.push_back({ExampleGroup::kTop, tally.top[at].position, &tally.top_contexts[at]});
    texts.push_back(tally.top[at].text);
  }
  std::vector<std::int32_t> order;  // of the sample, strongest first
  for (std::int32_t s = 0; s < tally.samples; ++s) order.push_back(s);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const SampledFiring& x = tally.sample[static_cast<std::size_t>(a)];
    const SampledFiring& y = tally.sample[static_cast<std::size_t>(b)];
    return x.value != y.value ? x.value > y.value : x.position < y.position;
  });
  constexpr std::size_t kOfEach = 2;
  for (std::size_t third = 0; third < 3; ++third) {
    std::size_t taken = 0;
    for (std::size_t rank = third * order.size() / 3; rank < (third + 1) * order.size() / 3;
         ++rank) {
      const std::int32_t s = order[rank];
      if (s >= kSampledContexts || taken == kOfEach) continue;
      const SampledFiring& firing = tally.sample[static_cast<std::size_t>(s)];
      const std::uint32_t before = TextBefore(text, firing.position);
      if (std::find(texts.begin(), texts.end(), before) != texts.end()) continue;
      texts.push_back(before);
      shown.push_back({static_cast<ExampleGroup>(third + 1), firing.position,
                       &tally.sample_contexts[static_cast<std::size_t>(s)]});
      ++taken;
    }
  }
  return shown;
}

void AppendExample(const Shown& example, const WindowedText& text, IndexColumns* columns) {
  const std::int64_t window = text.WindowStart(example.position);
  const std::int64_t window_end =
      std::min(window + text.window, static_cast<std::int64_t>(text.tokens.size()));
  const std::int64_t first = std::max(window, example.position - kContextBefore);
  const std::int64_t last = std::min(window_end, example.position + kContextAfter + 1);
  columns->Append(Column::kExampleGroup, static_cast<std::uint8_t>(example.group));
  columns->Append(Column::kExampleStart, static_cast<std::uint32_t>(first));
  columns->Append(Column::kExampleLength, static_cast<std::uint8_t>(last - first));
  columns->Append(Column::kExamplePeak, static_cast<std::uint8_t>(example.position - first));
  std::uint8_t active = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const float value =
        example.context->values[static_cast<std::size_t>(i - example.position + kContextBefore)];
    if (value == 0.0f) continue;
    columns->Append(Column::kActiveOffset, static_cast<std::uint8_t>(i - first));
    columns->Append(Column::kActiveValue, value);
    ++active;
  }
  columns->Append(Column::kExampleActive, active);
}

void AppendLabel(const FeatureLabel& label, IndexColumns* columns) {
  columns->Append(Column::kLabelKind, static_cast<std::uint8_t>(label.kind));
  for (const LabelPattern& pattern : label.patterns) {
    columns->Append(Column::kLabelLength, static_cast<std::uint8_t>(pattern.pattern.length));
    columns->Append(Column::kLabelSource, static_cast<std::uint8_t>(pattern.from_embedding));
    columns->Append(Column::kLabelFired, pattern.fired);
    columns->Append(Column::kLabelSeen, pattern.seen);
    for (const std::int32_t token : pattern.pattern.tokens) {
      columns->AppendId(Column::kLabelTokens, std::max(token, 0));
    }
  }
}

bool IsWhole(const FeatureTally& tally, std::int64_t tokens) {
  const auto inside = [&](const auto& list, std::int32_t count, int most) {
    return count >= 0 && count <= most &&
           std::all_of(list.begin(), list.begin() + count, [&](const auto& firing) {
             return firing.position >= 0 && firing.position < tokens;
           });
  };
  return tally.fired >= tally.samples && tally.exponent >= -126 && tally.exponent <= 127 &&
         inside(tally.top, tally.tops, kTopFirings) &&
         inside(tally.sample, tally.samples, kSampledFirings) &&
         inside(tally.place, tally.places, kSampledPlaces);
}

bool IsWhole(const LabelCandidates& labels) {
  return labels.count >= 0 && labels.count <= kLabelCandidates &&
         std::all_of(labels.candidates.begin(), labels.candidates.begin() + labels.count,
                     [](const LabelCandidate& candidate) {
                       return candidate.label.pattern.length >= 1 &&
                              candidate.label.pattern.length <= kPatternTokens;
                     });
}

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(values));
}

}  // namespace

std::vector<SliceLayer> LayersOf(std::int64_t first, std::int64_t count, std::int64_t features) {
  std::vector<SliceLayer> layers;
  const std::int64_t end = first + count;
  for (std::int64_t at = first; at < end;) {
    const std::int64_t layer = at / features;
    const std::int64_t last = std::min(end, (layer + 1) * features);
    layers.push_back({layer, at - layer * features, last - at, at - first});
    at = last;
  }
  return layers;
}

void AddGroup(const SliceLayer& part, const SparseRows& active, const WindowGroup& group,
              const WindowedText& text, std::int64_t quotable, IndexSlice* slice) {
  SparseColumns columns;
  ByColumn(active, part.count, columns);
  ParallelFor((part.count + kShare - 1) / kShare, [&](std::int64_t share) {
    const std::int64_t last = std::min(part.count, (share + 1) * kShare);
    for (std::int64_t f = share * kShare; f < last; ++f) {
      const auto at = static_cast<std::size_t>(part.place + f);
      const FeatureId id{part.layer, part.first + f};
      for (std::int64_t i = columns.begin[f]; i < columns.begin[f + 1];) {
        const std::int64_t window = columns.row[i] / group.length;
        WindowFirings firings{.feature = id, .rows = &active, .columns = &columns, .first = i};
        firings.first_row = window * group.length;
        firings.start = group.first + window * group.length;
        firings.quotable = firings.start + group.length <= quotable;
        while (i < columns.begin[f + 1] && columns.row[i] / group.length == window) {
          const std::int64_t offset = columns.row[i++] - firings.first_row;
          if (offset == 0 || slice->labels.empty()) continue;
          CountLabels(text, firings.start + offset, &slice->labels[at]);
        }
        firings.last = i;
        AddWindow(firings, text, &slice->tallies[at]);
      }
    }
  });
}

void Propose(const WindowedText& text, const SuffixCounts& counts, IndexSlice* slice) {
  slice->labels.resize(slice->tallies.size());
  ParallelFor((slice->size() + kShare - 1) / kShare, [&](std::int64_t share) {
    const std::int64_t last = std::min(slice->size(), (share + 1) * kShare);
    for (auto f = static_cast<std::size_t>(share * kShare); f < static_cast<std::size_t>(last);
         ++f) {
      std::array<std::int32_t, kListedTokens> exciting = {};
      for (std::size_t k = 0; k < exciting.size(); ++k) {
        exciting[k] = slice->tokens[f].exciting[k].token;
      }
      slice->labels[f] = ProposeLabels(slice->tallies[f], exciting, text, counts);
    }
  });
}

IndexColumns ColumnsOf(const IndexSlice& slice, std::int64_t vocabulary, const WindowedText& text,
                       const SuffixCounts& counts) {
  IndexColumns columns(vocabulary);
  const auto mark = [&] {
    columns.Append(Column::kLabelBegin, columns.Rows(Column::kLabelLength));
    columns.Append(Column::kExampleBegin, columns.Rows(Column::kExampleLength));
    columns.Append(Column::kActiveBegin, columns.Rows(Column::kActiveValue));
  };
  mark();
  std::vector<FeatureLabel> labels(slice.tallies.size());
  ParallelFor(slice.size(), [&](std::int64_t f) {
    const auto at = static_cast<std::size_t>(f);
    labels[at] = ChooseLabel(slice.tallies[at], slice.labels[at], text, counts);
  });
  for (std::size_t f = 0; f < slice.tallies.size(); ++f) {
    const FeatureTally& tally = slice.tallies[f];
    columns.Append(Column::kFired, tally.fired);
    columns.Append(
        Column::kMean,
        tally.fired == 0 ? 0.0f : static_cast<float>(tally.sum / static_cast<double>(tally.fired)));
    columns.Append(Column::kLargest, tally.largest);
    columns.Append(Column::kBinWidth, tally.fired == 0 ? 0.0f : tally.bin_width());
    for (const std::uint32_t count : tally.bins) columns.Append(Column::kHistogram, count);
    const FeatureTokens& tokens = slice.tokens[f];
    for (const TokenList* list : {&tokens.promoted, &tokens.suppressed, &tokens.exciting}) {
      for (const TokenScore& score : *list) {
        columns.AppendId(Column::kListTokens, score.token);
        columns.Append(Column::kListScores, score.score);
      }
    }
    AppendLabel(labels[f], &columns);
    for (const Shown& example : ExamplesOf(tally, text)) AppendExample(example, text, &columns);
    mark();
  }
  return columns;
}

void SaveSlice(const IndexSlice& slice, const std::string& settings, std::int64_t groups,
               const std::filesystem::path& path) {
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* name, std::span<const std::byte> bytes) {
    tensors.push_back({.name = name,
                       .dtype = DType::kU8,
                       .shape = {static_cast<std::int64_t>(bytes.size())},
                       .raw = bytes});
  };
  add("tallies", BytesOf(slice.tallies));
  add("labels", BytesOf(slice.labels));
  WriteSafetensors(path, tensors,
                   {{"settings", settings},
                    {"first", std::to_string(slice.first)},
                    {"groups", std::to_string(groups)}});
}

std::int64_t LoadSlice(const std::filesystem::path& path, const std::string& settings,
                       std::int64_t tokens, IndexSlice* slice) {
  const SafetensorsFile file(path);
  const auto text = [&](const char* name) {
    const auto found = file.metadata().find(name);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("settings") != settings) {
    Fail(
        "{}: a run with other features, text or options stopped here; use another folder, or "
        "remove the file to begin anew",
        path.string());
  }
  const std::span<const std::byte> tallies = file.Get("tallies").bytes;
  const std::span<const std::byte> labels = file.Get("labels").bytes;
  const std::string groups = text("groups");
  std::int64_t done = -1;
  std::from_chars(groups.data(), groups.data() + groups.size(), done);
  const auto refuse = [&] {
    Fail("{}: not a checkpoint of this run; remove it to begin anew", path.string());
  };
  if (text("first") != std::to_string(slice->first) || done < 0 ||
      tallies.size() != slice->tallies.size() * sizeof(FeatureTally) ||
      (!labels.empty() && labels.size() != slice->tallies.size() * sizeof(LabelCandidates))) {
    refuse();
  }
  std::memcpy(slice->tallies.data(), tallies.data(), tallies.size());
  slice->labels.resize(labels.size() / sizeof(LabelCandidates));
  if (!labels.empty()) std::memcpy(slice->labels.data(), labels.data(), labels.size());
  for (const FeatureTally& tally : slice->tallies) {
    if (!IsWhole(tally, tokens)) refuse();
  }
  for (const LabelCandidates& candidates : slice->labels) {
    if (!IsWhole(candidates)) refuse();
  }
  return done;
}

}  // namespace clearhead
