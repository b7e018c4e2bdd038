// SPDX-License-Identifier: MIT
// What a transcoder learns from: inputs and outputs of a frozen model's MLPs, made as they are
// needed and never stored on a disk.
//
// The model runs over windows of the text; half of them begin with the model's begin-of-text token,
// if it has one. Position 0 of a window is left out: its magnitudes are others (attention has one
// key) and would take features of their own. Rows of `steps_at_once` steps are made together and
// mixed, so that a step's rows come from many windows. All of it is a pure function of (seed, step)
// and does not depend on the number of threads. Several ranks share the windows, and each gets its
// rows of every step from whoever made them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/communicator.h"
#include "model/model.h"
#include "model/taps.h"
#include "train/batches.h"
#include "train/transcoder_parameters.h"

namespace clearhead {

struct TranscoderDataOptions {
  std::int64_t context = 64;       // tokens of a window
  std::int64_t rows = 4096;        // of a step
  std::int64_t steps_at_once = 8;  // the shuffling buffer
  Tap reads = Tap::kLn2Normalized;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> starts = {};  // where windows may begin; anywhere if empty
};

// A rank's rows of every step: all of them if it is alone. Throws Error if it would have none.
struct RankRows {
  std::int64_t first = 0, rows = 0, total = 0;
};
RankRows RankRowsOf(std::int64_t total, const Communicator* ranks);

// Rows in training's units, of this rank.
struct TranscoderRows {
  std::int64_t rows = 0;
  std::vector<const float*> x;  // of each layer [rows, C]
  const float* y = nullptr;     // [rows, L, C]
};

class TranscoderData {
 public:
  TranscoderData(const Model& model, std::span<const std::int32_t> tokens,
                 const TranscoderDataOptions& options, Communicator* ranks = nullptr);

  // From the rows of the first block. To be called first; two runs with equal settings agree.
  std::vector<LayerUnits> MeasureUnits();
  void SetUnits(std::vector<LayerUnits> units);

  // Valid until the next call.
  TranscoderRows Step(std::int64_t step);

  static std::int64_t BytesOf(const ModelConfig& config, const TranscoderDataOptions& options);

 private:
  struct Sink;  // where rows go
  struct Window {
    std::int64_t number;  // in the block
    std::int64_t start;   // in the tokens
  };
  void FillBlock(std::int64_t block);
  void RunWindows(std::int64_t block, std::span<const Window> windows,
                  std::span<const std::int64_t> place, const Sink& sink);
  void RunOnRanks(std::int64_t block, std::span<const Window> windows,
                  std::span<const std::int64_t> place);
  Sink OwnRows();
  std::int64_t block_rows() const { return options_.rows * options_.steps_at_once; }
  std::int64_t own_rows() const { return own_.rows * options_.steps_at_once; }

  const Model& model_;
  std::span<const std::int32_t> tokens_;
  TranscoderDataOptions options_;
  Communicator* ranks_;
  RankRows own_;
  Batches batches_;
  std::vector<LayerUnits> units_;  // empty: rows are as the model has them
  std::int64_t block_ = -1;        // what the buffers hold
  std::vector<Buffer<float>> x_;   // of each layer [own rows of the block's steps, C]
  Buffer<float> y_;                // [own rows, L, C]
  Buffer<float> made_, received_;  // with several ranks: rows of [x of all layers, y of all]
};

}  // namespace clearhead
