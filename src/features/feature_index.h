// SPDX-License-Identifier: MIT
// An index of features: what one run over a text found about every feature, in one mapped file.
// Opening reads the header and the offset tables; a feature is read, and checked, when it is asked
// for. build_index.h makes it, docs/formats.md describes the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/safetensors.h"
#include "features/feature_id.h"
#include "features/feature_labels.h"
#include "features/feature_tokens.h"
#include "features/index_columns.h"

namespace clearhead {

struct IndexInfo {
  std::int64_t layers = 0, features = 0;
  std::int64_t vocabulary = 0;  // ids are below it
  std::int64_t tokens = 0;      // places where features were looked at
  std::int64_t windows = 0, context = 0;
  std::string model_hash, features_hash;  // 16 hexadecimal digits
};

// Where among its firings a feature's example comes from.
enum class ExampleGroup : std::uint8_t { kTop, kUpper, kMiddle, kLower };
inline constexpr int kExampleGroups = 4;
std::string_view NameOf(ExampleGroup group);  // "top", "upper third", ...

struct FeatureExample {
  ExampleGroup group = ExampleGroup::kTop;
  std::vector<std::int32_t> tokens;
  std::vector<float> activations;  // of each token; 0 where the feature does not fire
  std::int64_t peak = 0;
};

struct FeatureFacts {
  FeatureId id;
  std::int64_t fired = 0;
  float mean = 0.0f, largest = 0.0f, bin_width = 0.0f;
  std::array<std::uint32_t, kHistogramBins> histogram = {};
  FeatureTokens tokens;
  FeatureLabel label;
  std::vector<FeatureExample> examples;
};

// A number that tells one set of features from another: of its biases and thresholds and of some
// rows of each matrix, so that it costs the same for any size.
std::string FeaturesFingerprint(const Transcoder& transcoder);

class FeatureIndex {
 public:
  // The file, or a folder that has it under its usual name.
  explicit FeatureIndex(const std::filesystem::path& path);
  // Views `bytes`, which must outlive the object.
  static FeatureIndex FromBytes(std::span<const std::byte> bytes, std::string source);

  const IndexInfo& info() const { return info_; }

  // Throw Error where the file contradicts itself.
  FeatureFacts Read(FeatureId id) const;
  FeatureLabel Label(FeatureId id) const;
  float Largest(FeatureId id) const;
  std::int64_t Fired(FeatureId id) const;

  // Throws Error unless it is of these features.
  void CheckBelongsTo(const Transcoder& transcoder) const;

 private:
  explicit FeatureIndex(SafetensorsFile file);
  template <typename T>
  T At(Column column, std::int64_t index) const;
  std::int32_t IdAt(Column column, std::int64_t index) const;
  std::int64_t Row(FeatureId id) const;
  void CheckTable(Column table, Column column) const;
  [[noreturn]] void Refuse(const std::string& what) const;

  SafetensorsFile file_;
  IndexInfo info_;
  DType id_type_ = DType::kU32;
  std::array<const TensorEntry*, kColumns> columns_ = {};
};

inline constexpr const char* kIndexFileName = "index.safetensors";

// The index in a folder, or beside its features; nothing if there is none.
std::optional<FeatureIndex> FindIndex(const std::filesystem::path& folder);

Json ToJson(const IndexInfo& info);

}  // namespace clearhead
