// SPDX-License-Identifier: MIT
// An index of features. The first byte chooses: any bytes as the file; a good index whose
// description is the input; or a good index with bytes of it changed, three of the input for each:
// place, place, value. It is refused with an Error, or every feature that it names can be read, or
// is refused.
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "features/feature_index.h"

namespace {

using namespace clearhead;  // NOLINT(google-build-using-namespace): a program, not a library
namespace fs = std::filesystem;

void Require(bool holds) {
  if (!holds) std::abort();
}

constexpr std::string_view kDescription =
    R"({"schema":"clearhead.features-index.1","layers":1,"features":2,"vocabulary":9,"tokens":5,)"
    R"("windows":1,"context":6,"model_hash":"0123456789abcdef","features_hash":"0123456789abcdef"})";

// Two features, the first with a label and an example.
IndexColumns TwoFeatures() {
  IndexColumns columns(9);
  const auto mark = [&] {
    columns.Append(Column::kLabelBegin, columns.Rows(Column::kLabelLength));
    columns.Append(Column::kExampleBegin, columns.Rows(Column::kExampleLength));
    columns.Append(Column::kActiveBegin, columns.Rows(Column::kActiveValue));
  };
  mark();
  for (int f = 0; f < 2; ++f) {
    columns.Append(Column::kFired, std::int64_t{1} - f);
    for (const Column column : {Column::kMean, Column::kLargest, Column::kBinWidth}) {
      columns.Append(column, 0.5f);
    }
    for (int bin = 0; bin < kHistogramBins; ++bin) columns.Append(Column::kHistogram, 0u);
    for (int token = 0; token < 3 * kListedTokens; ++token) {
      columns.AppendId(Column::kListTokens, token % kListedTokens);
      columns.Append(Column::kListScores, 1.0f);
    }
    columns.Append(Column::kLabelKind, static_cast<std::uint8_t>(1 - f));
    if (f == 0) {
      columns.Append(Column::kLabelLength, std::uint8_t{2});
      columns.Append(Column::kLabelSource, std::uint8_t{0});
      columns.Append(Column::kLabelFired, 3u);
      columns.Append(Column::kLabelSeen, 4u);
      for (int token = 0; token < kPatternTokens; ++token) {
        columns.AppendId(Column::kLabelTokens, token);
      }
      columns.Append(Column::kExampleGroup, std::uint8_t{0});
      columns.Append(Column::kExampleStart, 1u);
      columns.Append(Column::kExampleLength, std::uint8_t{3});
      columns.Append(Column::kExamplePeak, std::uint8_t{1});
      columns.Append(Column::kExampleActive, std::uint8_t{1});
      columns.Append(Column::kActiveOffset, std::uint8_t{1});
      columns.Append(Column::kActiveValue, 0.5f);
    }
    mark();
  }
  return columns;
}

std::string GoodIndex(std::string_view description) {
  static const fs::path folder = [] {
    std::string pattern = (fs::temp_directory_path() / "fuzz-index-XXXXXX").string();
    Require(::mkdtemp(pattern.data()) != nullptr);
    TwoFeatures().Write(fs::path(pattern) / "piece.safetensors");
    return fs::path(pattern);
  }();
  static const bool removed = std::atexit([] { fs::remove_all(folder); }) == 0;
  Require(removed);
  const std::vector<std::int32_t> text = {1, 2, 3, 4, 5, 6};
  const std::vector<fs::path> pieces = {folder / "piece.safetensors"};
  const fs::path file = folder / "index.safetensors";
  JoinColumns(pieces, 9, text, {{"clearhead", std::string(description)}}, file);
  return ReadFile(file);
}

void Walk(std::string_view bytes) {
  try {
    const FeatureIndex index =
        FeatureIndex::FromBytes(std::as_bytes(std::span(bytes)), "index.safetensors");
    const std::int64_t F = index.info().features;
    for (std::int64_t i = 0; i < index.info().layers * F; ++i) {
      try {
        const FeatureFacts facts = index.Read({i / F, i % F});
        for (const FeatureExample& example : facts.examples) {
          Require(example.tokens.size() == example.activations.size());
          Require(example.peak < static_cast<std::int64_t>(example.tokens.size()));
          for (const std::int32_t id : example.tokens) Require(id < index.info().vocabulary);
        }
        for (const LabelPattern& label : facts.label.patterns) Require(label.fired <= label.seen);
        Require(std::isfinite(facts.largest));
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const std::string good = [] {
    std::string bytes = GoodIndex(kDescription);
    const FeatureIndex index =
        FeatureIndex::FromBytes(std::as_bytes(std::span(bytes)), "index.safetensors");
    Require(index.Read({0, 0}).examples.size() == 1);  // it is good
    return bytes;
  }();
  switch (data[0] % 3) {
    case 0:
      Walk(input);
      break;
    case 1: {
      // The description sits in the header, which says its own length.
      std::string bytes = good;
      const std::size_t at = bytes.find("{\\\"schema");
      const std::size_t end = bytes.find("\\\"}", at) + 3;
      Require(at != std::string::npos && end > at);
      const std::size_t room = end - at;
      std::string text;
      for (const char c : input) {
        if (c == '"' || c == '\\') text += '\\';
        if (static_cast<unsigned char>(c) >= 0x20) text += c;
      }
      text.resize(room, ' ');
      bytes.replace(at, room, text);
      Walk(bytes);
      break;
    }
    default: {
      std::string bytes = good;
      for (std::size_t i = 0; i + 2 < input.size(); i += 3) {
        const std::size_t place =
            (static_cast<unsigned char>(input[i]) << 8 | static_cast<unsigned char>(input[i + 1])) %
            bytes.size();
        bytes[place] = input[i + 2];
      }
      Walk(bytes);
    }
  }
  return 0;
}
