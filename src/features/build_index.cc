// SPDX-License-Identifier: MIT
#include "features/build_index.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "core/rank_sums.h"
#include "features/index_slice.h"
#include "features/mlp_inputs.h"
#include "model/fingerprint.h"
#include "model/run.h"
#include "use/evaluate.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Even groups first: they propose labels, the odd ones judge.
std::vector<WindowGroup> InOrder(const std::vector<WindowGroup>& groups) {
  std::vector<WindowGroup> order;
  for (std::size_t i = 0; i < groups.size(); i += 2) order.push_back(groups[i]);
  for (std::size_t i = 1; i < groups.size(); i += 2) order.push_back(groups[i]);
  return order;
}

// The places of these groups at which features are looked at.
std::vector<std::uint32_t> PlacesOf(std::span<const WindowGroup> groups) {
  std::vector<std::uint32_t> places;
  for (const WindowGroup& group : groups) {
    for (std::int64_t i = 0; i < group.windows * group.length; ++i) {
      if (i % group.length != 0) places.push_back(static_cast<std::uint32_t>(group.first + i));
    }
  }
  return places;
}

// What fired in a group, layer by layer of a slice, as bytes and back.
std::vector<std::byte> Pack(const std::vector<SparseRows>& layers) {
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& values) {
    const auto part = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  for (const SparseRows& rows : layers) {
    put(rows.begin);
    put(rows.column);
    put(rows.value);
  }
  return bytes;
}

std::vector<SparseRows> Unpack(std::span<const std::byte> bytes, std::size_t layers,
                               std::int64_t rows) {
  const auto take = [&](auto& values, std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    const auto to = std::as_writable_bytes(std::span(values));
    std::copy_n(bytes.begin(), to.size(), to.begin());
    bytes = bytes.subspan(to.size());
  };
  std::vector<SparseRows> all(layers);
  for (SparseRows& of : all) {
    take(of.begin, rows + 1);
    take(of.column, of.begin.back());
    take(of.value, of.begin.back());
  }
  return all;
}

class IndexRun {
 public:
  IndexRun(const Model& model, const Transcoder& transcoder, std::span<const std::int32_t> tokens,
           const BuildIndexOptions& options, const fs::path& folder)
      : model_(model),
        transcoder_(transcoder),
        options_(options),
        ranks_(options.ranks == nullptr ? alone_ : *options.ranks),
        folder_(folder) {
    CheckFits(transcoder, model);
    const WindowPlan plan = PlanWindows(model.config, tokens,
                                        {.context = options.context,
                                         .max_tokens = options.max_tokens,
                                         .batch_tokens = options.batch_tokens});
    if (plan.predictions >= std::int64_t{1} << 32) {
      Fail("the text has {} tokens; an index can hold places of 2^32, give fewer with --tokens",
           plan.predictions);
    }
    groups_ = InOrder(plan.groups);
    first_half_ = (groups_.size() + 1) / 2;
    text_ = {tokens.first(static_cast<std::size_t>(plan.predictions)),
             std::min(plan.context, plan.predictions)};
    vocabulary_ = options.vocabulary > 0 ? std::min(options.vocabulary, model.config.vocabulary)
                                         : model.config.vocabulary;
    for (const std::int32_t id : text_.tokens) {
      if (id >= vocabulary_) {
        Fail("token {} of the text is not among the {} of the tokenizer", id, vocabulary_);
      }
    }
    info_ = {.layers = transcoder.config.layers,
             .features = transcoder.config.features,
             .vocabulary = vocabulary_,
             .context = plan.context,
             .model_hash = fmt::format("{:016x}", WeightsFingerprint(model)),
             .features_hash = FeaturesFingerprint(transcoder)};
    for (const WindowGroup& group : groups_) {
      info_.windows += group.windows;
      info_.tokens += group.windows * (group.length - 1);
    }
    const auto size = static_cast<std::int64_t>(text_.tokens.size());
    quotable_ = options.quotable > 0 ? std::min(options.quotable, size) : size;
    const std::int64_t all = info_.layers * info_.features;
    per_slice_ = std::clamp<std::int64_t>(options.memory / TallyBytes(), 1, all);
    slices_ = (all + per_slice_ - 1) / per_slice_;
    total_ = slices_ * plan.predictions + all;
    std::uint64_t hash = 0;
    for (const std::int32_t id : text_.tokens) {
      hash = Mix64(hash ^ static_cast<std::uint64_t>(id)) + 1;
    }
    Json settings = ToJson(info_);
    settings["text_hash"] = fmt::format("{:016x}", hash);
    settings["quotable"] = quotable_;
    settings["batch_tokens"] = options.batch_tokens;
    settings["features_per_slice"] = per_slice_;
    settings_ = ToText(settings, -1);
  }

  BuiltIndex Run() {
    const auto start = Clock::now();
    BuiltIndex result{.tokens = info_.tokens, .slices = slices_};
    if (ranks_.first()) RefuseAnotherRun();
    std::vector<fs::path> pieces;
    for (std::int64_t s = 0; s < slices_; ++s) {
      pieces.push_back(folder_ / fmt::format("index-part-{:05}.safetensors", s));
      const std::int64_t first = s * per_slice_;
      const std::int64_t count = std::min(per_slice_, info_.layers * info_.features - first);
      if (options_.resume && OfFirst([&] { return fs::exists(pieces.back()); })) {
        done_ += static_cast<std::int64_t>(text_.tokens.size()) + count;
        continue;
      }
      if (!RunSlice(first, count, pieces.back())) {
        result.seconds = SecondsSince(start);
        return result;
      }
    }
    result.finished = true;
    if (!ranks_.first()) return result;
    const fs::path file = folder_ / kIndexFileName;
    JoinColumns(pieces, vocabulary_, text_.tokens, {{"clearhead", ToText(ToJson(info_), -1)}},
                file);
    for (const fs::path& piece : pieces) fs::remove(piece);
    fs::remove(SettingsPath());
    result.bytes = static_cast<std::int64_t>(fs::file_size(file));
    result.seconds = SecondsSince(start);
    return result;
  }

 private:
  fs::path SettingsPath() const { return folder_ / "index-run.json"; }
  fs::path CheckpointPath() const { return folder_ / "index-checkpoint.safetensors"; }

  // A folder is one run's from its first moment on.
  void RefuseAnotherRun() {
    if (fs::exists(folder_ / kIndexFileName)) {
      Fail("'{}' holds an index already; choose another folder, or remove {}", folder_.string(),
           kIndexFileName);
    }
    if (!fs::exists(SettingsPath())) {
      if (options_.resume) {
        Fail("'{}' holds no index that was begun; leave out --resume", folder_.string());
      }
      MakeDirectory(folder_);
      WriteFile(SettingsPath(), settings_ + "\n");
      return;
    }
    if (!options_.resume) {
      Fail("'{}' holds an index that was begun; go on with --resume, or remove index-*",
           folder_.string());
    }
    if (ReadFile(SettingsPath(), 1 << 20) != settings_ + "\n") {
      Fail(
          "'{}' was begun with other features, text or options; give the same, or choose another "
          "folder",
          folder_.string());
    }
  }

  bool Stops() const { return options_.should_stop && options_.should_stop(); }

  void Report(std::int64_t more) {
    done_ += more;
    if (options_.progress) options_.progress(done_, total_);
  }

  void LookAtWeights(const std::vector<SliceLayer>& layers, IndexSlice* slice) {
    constexpr std::int64_t kPiece = 512;
    slice->tokens.reserve(slice->tallies.size());
    for (const SliceLayer& part : layers) {
      for (std::int64_t first = 0; first < part.count; first += kPiece) {
        const std::int64_t count = std::min(kPiece, part.count - first);
        const std::vector<FeatureTokens> tokens = TokensOfFeatures(
            model_, transcoder_, part.layer, part.first + first, count, vocabulary_);
        slice->tokens.insert(slice->tokens.end(), tokens.begin(), tokens.end());
        Report(count);
      }
    }
  }

  // What the first rank finds, on all of them.
  template <typename Find>
  std::int64_t OfFirst(const Find& find) {
    return static_cast<std::int64_t>(
        ranks_.OfFirst(ranks_.first() ? static_cast<double>(find()) : 0.0));
  }

  bool RunSlice(std::int64_t first, std::int64_t count, const fs::path& piece) {
    IndexSlice slice{.first = first};
    const std::vector<SliceLayer> layers = LayersOf(first, count, info_.features);
    if (ranks_.first()) slice.tallies.resize(static_cast<std::size_t>(count));
    std::size_t next = 0;
    if (options_.resume) {
      next = static_cast<std::size_t>(OfFirst([&]() -> std::int64_t {
        if (!fs::exists(CheckpointPath())) return 0;
        return LoadSlice(CheckpointPath(), settings_,
                         static_cast<std::int64_t>(text_.tokens.size()), &slice);
      }));
      for (std::size_t g = 0; g < next; ++g) done_ += groups_[g].windows * groups_[g].length;
    }
    if (ranks_.first()) LookAtWeights(layers, &slice);
    std::optional<Activations> activations;
    auto saved = Clock::now();
    while (next < groups_.size()) {
      if (next == first_half_ && slice.labels.empty() && ranks_.first()) {
        const auto proposing = std::span(groups_).first(first_half_);
        Propose(text_, SuffixCounts(text_, PlacesOf(proposing)), &slice);
      }
      const bool stop = ranks_.Any(Stops());
      if (ranks_.first() && (stop || SecondsSince(saved) > options_.checkpoint_seconds)) {
        SaveSlice(slice, settings_, static_cast<std::int64_t>(next), CheckpointPath());
        saved = Clock::now();
      }
      if (stop) return false;
      // A group for each rank, but only of one half.
      const std::size_t end = next < first_half_ ? first_half_ : groups_.size();
      const std::size_t last = std::min(end, next + static_cast<std::size_t>(ranks_.size()));
      RunGroups(next, last, layers, &activations, &slice);
      for (; next < last; ++next) Report(groups_[next].windows * groups_[next].length);
    }
    if (!ranks_.first()) return true;
    if (slice.labels.empty()) {
      slice.labels.resize(slice.tallies.size());  // one group: no half to judge
    }
    const auto judging = std::span(groups_).subspan(first_half_);
    ColumnsOf(slice, vocabulary_, text_, SuffixCounts(text_, PlacesOf(judging))).Write(piece);
    fs::remove(CheckpointPath());
    return true;
  }

  // Groups [begin, end), at most one for each rank.
  void RunGroups(std::size_t begin, std::size_t end, const std::vector<SliceLayer>& layers,
                 std::optional<Activations>* activations, IndexSlice* slice) {
    const auto add = [&](const WindowGroup& group, const std::vector<SparseRows>& active) {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        AddGroup(layers[i], active[i], group, text_, quotable_, slice);
      }
    };
    const std::size_t own = begin + static_cast<std::size_t>(ranks_.rank());
    std::vector<SparseRows> active;
    if (own < end) active = FiredIn(groups_[own], layers, activations);
    if (ranks_.alone()) return add(groups_[own], active);
    const std::vector<std::vector<std::byte>> all = GatherToFirst(ranks_, Pack(active));
    for (std::size_t g = begin; g < end && ranks_.first(); ++g) {
      const WindowGroup& group = groups_[g];
      add(group, Unpack(all[g - begin], layers.size(), group.windows * group.length));
    }
  }

  // By layer of the slice.
  std::vector<SparseRows> FiredIn(const WindowGroup& group, const std::vector<SliceLayer>& layers,
                                  std::optional<Activations>* activations) {
    if (!*activations || (*activations)->batch != group.windows ||
        (*activations)->length != group.length) {
      activations->emplace(model_.config, group.windows, group.length, Keep::kNothing, 0);
    }
    std::vector<SparseRows> active(layers.size());
    MlpInputHooks hooks(transcoder_.config.reads, [&](std::int64_t layer, const float* x) {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].layer != layer) continue;
        active[i] = EncodePart(transcoder_, layer, layers[i].first, layers[i].count,
                               group.windows * group.length, x);
      }
    });
    Pass pass = PassOver(model_, group, {.sum_probabilities = false});
    pass.hooks = &hooks;
    ForwardToFinalNorm(pass, text_.tokens.data() + group.first, **activations);
    return active;
  }

  const Model& model_;
  const Transcoder& transcoder_;
  const BuildIndexOptions& options_;
  Communicator alone_;
  Communicator& ranks_;
  fs::path folder_;
  std::vector<WindowGroup> groups_;
  std::size_t first_half_ = 0;
  WindowedText text_;
  std::int64_t vocabulary_ = 0, quotable_ = 0;
  IndexInfo info_;
  std::int64_t per_slice_ = 0, slices_ = 0, total_ = 0, done_ = 0;
  std::string settings_;
};

}  // namespace

std::int64_t TallyBytes() {
  return static_cast<std::int64_t>(sizeof(FeatureTally) + sizeof(LabelCandidates) +
                                   sizeof(FeatureTokens));
}

BuiltIndex BuildIndex(const Model& model, const Transcoder& transcoder,
                      std::span<const std::int32_t> tokens, const BuildIndexOptions& options,
                      const fs::path& folder) {
  return IndexRun(model, transcoder, tokens, options, folder).Run();
}

}  // namespace clearhead
