// SPDX-License-Identifier: MIT
// Feature files as circuit-tracer's page and Neuronpedia's tools read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "features/feature_index.h"
#include "text/tokenizer.h"

namespace clearhead {

// One feature's file.
Json FeatureFile(const FeatureFacts& facts, const IndexInfo& info, const Tokenizer& tokenizer,
                 const std::string& transcoder_id);

struct ExportedFeatures {
  std::int64_t features = 0, bytes = 0;
};

// folder/layer_N.bin: for each feature a u32 (little-endian) number of bytes and a gzipped feature
// file; folder/index.json.gz: {"N": {"filename", "offsets": [features + 1]}}. The index comes last.
// `progress` is given the features done.
ExportedFeatures ExportFeatures(const FeatureIndex& index, const Tokenizer& tokenizer,
                                const std::string& transcoder_id,
                                const std::filesystem::path& folder,
                                const std::function<void(std::int64_t)>& progress = {});

}  // namespace clearhead
