// SPDX-License-Identifier: MIT
// circuit-tracer's layouts: config.yaml, and with model_kind
//   cross_layer_transcoder   W_enc_i.safetensors: W_enc_i [F,C], b_enc_i [F], b_dec_i [C], and for
//                            JumpReLU threshold_i [F]; W_dec_i.safetensors: W_dec_i [F,L-i,C]
//   transcoder_set           layer_i.safetensors, or the files that `transcoders` lists: W_enc
//   [F,C],
//                            b_enc [F], W_dec [F,C], b_dec [C], and where they apply
//                            activation_function.threshold [F], W_skip [C,C]
#pragma once

#include <filesystem>

#include "core/dtype.h"
#include "features/transcoder.h"

namespace clearhead {

Transcoder ReadCircuitTracer(const std::filesystem::path& folder);
void WriteCircuitTracer(const Transcoder& transcoder, const std::filesystem::path& folder,
                        DType dtype);

}  // namespace clearhead
