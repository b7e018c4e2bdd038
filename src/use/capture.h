// SPDX-License-Identifier: MIT
// Running a model once and writing what it computed to a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/intervention.h"
#include "model/pass.h"

namespace clearhead {

struct CaptureOptions {
  std::vector<TapId> taps = {};
  bool gradients = false;  // also loss, grad.<name in GPT2LMHeadModel>, grad.<tap>
  std::vector<Intervention> interventions = {};
  GateRun gates = {};
  const PackedWeights* packed = nullptr;  // products in bf16
};

struct CaptureResult {
  double loss = 0.0;  // mean next-token cross-entropy; 0 when T = 1 or without gradients
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

// ids [B,T]. Writes `ids` (I32), `logits` [B,T,V] and the taps by name, batch first, fp32.
CaptureResult Capture(const Model& model, const std::vector<std::int32_t>& ids, std::int64_t batch,
                      const CaptureOptions& options, const std::filesystem::path& out);

}  // namespace clearhead
