// SPDX-License-Identifier: MIT
// Running a model once and keeping what it computed: in memory, and from there in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/safetensors.h"
#include "model/intervention.h"
#include "model/pass.h"
#include "use/recorder.h"

namespace clearhead {

struct RecordOptions {
  std::vector<TapId> taps = {};
  bool gradients = false;  // also of the loss by every parameter and tap
  std::vector<Intervention> interventions = {};
  GateRun gates = {};
  const PackedWeights* packed = nullptr;  // products in bf16
  // Hooks of the caller's around the recorder, which they hand on what it wants. None: the
  // recorder.
  std::function<Hooks*(Hooks* recorder)> around = {};
};

struct Recording {
  ModelConfig config;
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> ids;           // [B,T]
  Buffer<float> logits;                    // [B,T,V]
  std::map<TapId, RecordedTensor> values;  // of the taps
  bool has_gradients = false;
  double loss = 0.0;                          // mean next-token cross-entropy; 0 when T = 1
  Buffer<float> parameter_gradients;          // as BindContiguous lays them out
  std::map<TapId, RecordedTensor> gradients;  // of the taps that have one
};

// ids [B,T]. Tokens and interventions that do not fit the model are refused.
Recording Record(const Model& model, std::vector<std::int32_t> ids, std::int64_t batch,
                 const RecordOptions& options);

struct WrittenFile {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

// A safetensors file: `ids` (I32), `logits` [B,T,V], the taps by name, batch first, fp32; with
// gradients also `loss`, grad.<parameter in the library's names>, grad.<tap>. `more` comes last.
WrittenFile WriteRecording(const Recording& recording, const std::filesystem::path& out,
                           std::span<const TensorToWrite> more = {});

}  // namespace clearhead
