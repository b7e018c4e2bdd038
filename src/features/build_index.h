// SPDX-License-Identifier: MIT
// Making an index of features (feature_index.h): one run of the model over a text.
//
// Features are handled in slices whose tallies fit into the memory that is given; with more
// features than that the text is run once for each slice. Even groups of windows propose labels,
// odd ones judge them (feature_labels.h). Position 0 of every window is left out: it has other
// magnitudes than all others.
//
// Examples quote the text. Where a part of it may not be passed on, it comes last and counts, but
// no example is taken from it (`quotable`); labels, runs of up to four tokens, may come from there.
//
// Ranks share the windows out: each runs the model and the encoders on groups of its own, and the
// first, which alone has tallies and files, adds them up in the order of one rank alone.
//
// What is done is kept in the folder while it runs: a finished slice as a piece of the index, the
// slice at hand as a checkpoint every few minutes. The result does not depend on where a run was
// stopped and gone on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "core/communicator.h"
#include "features/feature_index.h"
#include "model/pass.h"

namespace clearhead {

struct BuildIndexOptions {
  std::int64_t context = 0;          // 0: the model's positions
  std::int64_t max_tokens = 0;       // 0: all
  std::int64_t quotable = 0;         // tokens at the front that examples may show; 0: all
  std::int64_t batch_tokens = 2048;  // tokens per pass
  std::int64_t vocabulary = 0;       // ids that may be listed: the tokenizer's; 0: the model's
  std::int64_t memory = std::int64_t{1} << 30;  // for tallies, in bytes
  double checkpoint_seconds = 300.0;
  bool resume = false;  // go on with what the folder holds
  // Tokens of all slices, or features whose weights were looked at, each counted as a token.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  std::function<bool()> should_stop = {};
  Communicator* ranks = nullptr;  // null: one alone
};

struct BuiltIndex {
  bool finished = false;  // else it was stopped; what was done is in the folder
  std::int64_t tokens = 0, slices = 0;
  std::int64_t bytes = 0;  // of the file
  double seconds = 0.0;
};

// Writes folder/index.safetensors. Refuses features of another model, a folder with an index (of
// these or other features) unless it is to go on, and to go on with something else.
BuiltIndex BuildIndex(const Model& model, const Transcoder& transcoder,
                      std::span<const std::int32_t> tokens, const BuildIndexOptions& options,
                      const std::filesystem::path& folder);

// Bytes that a feature takes while its slice is run.
std::int64_t TallyBytes();

}  // namespace clearhead
