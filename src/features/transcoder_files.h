// SPDX-License-Identifier: MIT
// Transcoders in folders, in the layouts of circuit-tracer (read and written) and CLT-Forge (read);
// docs/features.md describes them. Opening reads headers and vectors, whatever the size.
#pragma once

#include <filesystem>

#include "core/dtype.h"
#include "features/transcoder.h"

namespace clearhead {

// Refuses, in one line, what is missing, of another shape, of an unknown kind, or not finite.
// Matrices are not read here: Activate and Reconstruct refuse what comes of values in them that
// are not finite.
Transcoder LoadTranscoder(const std::filesystem::path& folder);

// config.yaml comes last: a folder without it is not complete. Refuses what the layout cannot hold,
// values beyond the type's range, and a folder with files of other layers.
void SaveTranscoder(const Transcoder& transcoder, const std::filesystem::path& folder, DType dtype);

}  // namespace clearhead
