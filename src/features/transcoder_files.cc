// SPDX-License-Identifier: MIT
#include "features/transcoder_files.h"

#include "core/error.h"
#include "features/circuit_tracer_files.h"
#include "features/clt_forge_file.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

Transcoder LoadTranscoder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    Fail("there is no folder of features '{}'", folder.string());
  }
  if (Exists(folder / "config.yaml")) return ReadCircuitTracer(folder);
  if (Exists(folder / "clt_cfg.json")) return ReadCltForge(folder);
  for (const char* weights :
       {"W_enc_0.safetensors", "layer_0.safetensors", "clt_weights.safetensors"}) {
    if (Exists(folder / weights)) {
      Fail("'{}' has {} but no {}, which says what the features read", folder.string(), weights,
           weights[0] == 'c' ? "clt_cfg.json" : "config.yaml");
    }
  }
  Fail("'{}' holds no features: expected config.yaml (circuit-tracer) or clt_cfg.json (CLT-Forge)",
       folder.string());
}

void SaveTranscoder(const Transcoder& transcoder, const fs::path& folder, DType dtype) {
  WriteCircuitTracer(transcoder, folder, dtype);
}

}  // namespace clearhead
