// SPDX-License-Identifier: MIT
#include "use/write.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/error.h"
#include "core/kept_memory.h"
#include "core/random.h"
#include "core/threads.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Documents [first, first + count) while they are written.
class Batch {
 public:
  Batch(const Model& model, const WriteOptions& options, std::int64_t first, std::int64_t count)
      : model_(model),
        options_(options),
        start_(static_cast<std::int64_t>(options.start.size())),
        room_(std::min(options.generate.max_new, model.config.positions - start_)),
        cache_(model.config, count, start_ + room_),
        open_(static_cast<std::size_t>(count)) {
    for (std::int64_t i = 0; i < count; ++i) {
      documents_.push_back({.number = first + i, .ids = options.start, .finished = false});
    }
    std::iota(open_.begin(), open_.end(), std::size_t{0});
  }

  // False: stopped.
  bool Write(const std::function<bool(std::int64_t)>& on_tokens) {
    if (room_ <= 0) return true;
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      ids.insert(ids.end(), options_.start.begin(), options_.start.end());
    }
    for (std::int64_t written = 0; !open_.empty(); ++written) {
      const std::int64_t length = written == 0 ? start_ : 1;
      ids = Next(ids, length);
      const auto drawn = static_cast<std::int64_t>(ids.size());
      ids = KeepOpen(ids, written + 1 == room_);
      if (on_tokens && !on_tokens(drawn)) return false;
    }
    return true;
  }

  const std::vector<WrittenDocument>& documents() const { return documents_; }

 private:
  // The next token of each open document, after `length` new ones of each.
  std::vector<std::int32_t> Next(const std::vector<std::int32_t>& ids, std::int64_t length) {
    const ModelConfig& config = model_.config;
    const auto batch = static_cast<std::int64_t>(open_.size());
    const std::int64_t C = config.width, V = config.vocabulary;
    if (!activations_ || batch != activations_batch_ || length != activations_length_) {
      activations_.emplace(config, batch, length, Keep::kNothing, /*logit_rows=*/0);
      activations_batch_ = batch;
      activations_length_ = length;
    }
    const Pass pass{.model = model_,
                    .batch = batch,
                    .length = length,
                    .cache = &cache_,
                    .gates = options_.generate.gates,
                    .packed = options_.packed};
    ForwardToFinalNorm(pass, ids.data(), *activations_);
    if (last_.size() < batch * C) last_ = Buffer<float>(batch * C);
    for (std::int64_t b = 0; b < batch; ++b) {
      const float* row = activations_->ln_f + ((b + 1) * length - 1) * C;
      std::copy(row, row + C, last_.data() + b * C);
    }
    if (logits_.size() < batch * V) logits_ = Buffer<float>(batch * V);
    LogitsForward(pass, batch, last_.data(), logits_.data());
    std::vector<std::int32_t> drawn(open_.size());
    ParallelFor(batch, [&](std::int64_t b) {
      const WrittenDocument& document = documents_[open_[static_cast<std::size_t>(b)]];
      const auto at = static_cast<std::uint64_t>(document.ids.size() - options_.start.size());
      const double uniform = ToUniform(HashCoordinates(
          options_.generate.seed, {static_cast<std::uint64_t>(document.number), at}));
      drawn[static_cast<std::size_t>(b)] = SampleToken(
          {logits_.data() + b * V, static_cast<std::size_t>(V)}, options_.generate, uniform);
    });
    return drawn;
  }

  // Appends what was drawn; documents that end leave the batch and the cache. Returns the tokens
  // that go on.
  std::vector<std::int32_t> KeepOpen(const std::vector<std::int32_t>& drawn, bool last) {
    const std::vector<std::int32_t>& stops = options_.generate.stop_tokens;
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> kept;
    std::vector<std::size_t> open;
    for (std::size_t b = 0; b < open_.size(); ++b) {
      WrittenDocument& document = documents_[open_[b]];
      document.finished = std::find(stops.begin(), stops.end(), drawn[b]) != stops.end();
      if (document.finished) continue;
      document.ids.push_back(drawn[b]);
      if (last) continue;
      ids.push_back(drawn[b]);
      kept.push_back(static_cast<std::int64_t>(b));
      open.push_back(open_[b]);
    }
    if (open.size() < open_.size()) cache_.KeepSequences(kept);
    open_ = std::move(open);
    return ids;
  }

  const Model& model_;
  const WriteOptions& options_;
  std::int64_t start_, room_;
  KeyValueCache cache_;
  std::vector<WrittenDocument> documents_;
  std::vector<std::size_t> open_;  // which of them are not done, in the order of the cache
  std::optional<Activations> activations_;
  std::int64_t activations_batch_ = 0, activations_length_ = 0;
  Buffer<float> last_, logits_;
};

}  // namespace

void WriteDocuments(const Model& model, const WriteOptions& options,
                    const std::function<void(const WrittenDocument&)>& on_document,
                    const std::function<bool(std::int64_t)>& on_tokens) {
  CheckTokens(model.config, options.start, 1, static_cast<std::int64_t>(options.start.size()));
  Check(options.at_once >= 1, "at least one document is written at once");
  // As documents end, batches shrink, and buffers with them.
  constexpr std::size_t kKeptBytes = std::size_t{256} << 20;
  const KeptMemoryScope memory(std::make_shared<KeptMemory>(kKeptBytes));
  for (std::int64_t done = 0; done < options.documents;) {
    const std::int64_t count = std::min(options.at_once, options.documents - done);
    Batch batch(model, options, options.first_document + done, count);
    if (!batch.Write(on_tokens)) return;
    for (const WrittenDocument& document : batch.documents()) on_document(document);
    done += count;
  }
}

}  // namespace clearhead
