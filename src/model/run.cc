// SPDX-License-Identifier: MIT
#include "model/run.h"

#include <algorithm>

#include "core/error.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/output.h"

namespace clearhead {

void CheckTokens(const ModelConfig& config, std::span<const std::int32_t> ids, std::int64_t batch,
                 std::int64_t length, std::int64_t past) {
  Check(static_cast<std::int64_t>(ids.size()) == batch * length, "ids are [batch, length]");
  if (ids.empty()) Fail("the input has no tokens; give at least one");
  if (past + length > config.positions) {
    Fail("the input is {} tokens long, but the model has {} positions; shorten it", past + length,
         config.positions);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocabulary) {
      Fail("token id {} at position {} is outside the vocabulary of {}", ids[i],
           static_cast<std::int64_t>(i) % length, config.vocabulary);
    }
  }
}

namespace {

void CheckCache(const Pass& pass) {
  if (pass.cache == nullptr) return;
  const KeyValueCache& cache = *pass.cache;
  if (cache.length + pass.length > cache.capacity) {
    Fail("the cache has {} of {} positions filled, {} more do not fit; make a larger one",
         cache.length, cache.capacity, pass.length);
  }
  if (cache.batch != pass.batch) {
    Fail("the cache is for {} sequences, the pass has {}", cache.batch, pass.batch);
  }
}

void RefuseBackwardWithCache(const Pass& pass) {
  if (pass.cache != nullptr) {
    Fail("backward through a pass with a key/value cache is not defined; run without the cache");
  }
}

}  // namespace

void ForwardToFinalNorm(const Pass& pass, const std::int32_t* ids, Activations& activations) {
  Check(pass.batch == activations.batch && pass.length == activations.length,
        "activations planned for another batch");
  CheckTokens(pass.config(), {ids, static_cast<std::size_t>(pass.rows())}, pass.batch, pass.length,
              pass.past());
  CheckCache(pass);
  EmbeddingForward(pass, ids, activations);
  for (std::int64_t layer = 0; layer < pass.config().layers; ++layer) {
    BlockForward(pass, layer, activations);
  }
  if (pass.cache != nullptr) pass.cache->length += pass.length;
  FinalNormForward(pass, activations);
}

void Forward(const Pass& pass, const std::int32_t* ids, Activations& activations, float* logits) {
  ForwardToFinalNorm(pass, ids, activations);
  LogitsForward(pass, pass.rows(), activations.ln_f, logits);
}

void BackwardFromFinalNorm(const Pass& pass, const std::int32_t* ids, Activations& activations,
                           ModelValues* gradients, PackedBf16* scratch,
                           const GradientsReady& ready) {
  RefuseBackwardWithCache(pass);
  Check(activations.keep != Keep::kNothing, "backward after a forward that kept nothing");
  Check(activations.keep == Keep::kAll || pass.hooks == nullptr,
        "recomputation would call hooks twice; use Keep::kAll with hooks");
  const bool parameters = gradients != nullptr;
  const auto outside = [&](Role role) { return parameters ? (*gradients)(role) : nullptr; };
  FinalNormBackward(pass, activations, outside(Role::kFinalNormWeight),
                    outside(Role::kFinalNormBias));
  if (ready) ready(pass.config().layers);
  for (std::int64_t layer = pass.config().layers - 1; layer >= 0; --layer) {
    if (activations.keep == Keep::kInputs) BlockForward(pass, layer, activations);
    BlockBackward(pass, layer, activations,
                  parameters ? &gradients->blocks[static_cast<std::size_t>(layer)] : nullptr,
                  scratch);
    if (ready) ready(layer);
  }
  EmbeddingBackward(pass, ids, activations, outside(Role::kTokenEmbedding),
                    outside(Role::kPositionEmbedding));
}

double ForwardBackward(const Pass& pass, const std::int32_t* ids, const std::int32_t* targets,
                       float scale, Activations& activations, ModelValues* gradients,
                       PackedBf16* scratch, const GradientsReady& ready) {
  RefuseBackwardWithCache(pass);
  ForwardToFinalNorm(pass, ids, activations);
  float* d_output = gradients == nullptr ? nullptr : OutputMatrix(pass.config(), *gradients);
  const double loss = LossBackward(pass, targets, scale, activations, d_output, scratch);
  BackwardFromFinalNorm(pass, ids, activations, gradients, scratch, ready);
  return loss;
}

}  // namespace clearhead
