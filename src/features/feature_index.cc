// SPDX-License-Identifier: MIT
#include "features/feature_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/error.h"
#include "core/random.h"

namespace clearhead {
namespace {

constexpr const char* kSchema = "clearhead.features-index.1";
constexpr std::int64_t kMostLayers = 1 << 16, kMostFeatures = std::int64_t{1} << 31;

std::int64_t NumberIn(const Json& json, const char* name, const std::string& source,
                      std::int64_t least, std::int64_t most) {
  const auto found = json.find(name);
  const bool whole = found != json.end() && found->is_number_integer();
  const std::int64_t value = whole ? found->get<std::int64_t>() : -1;
  if (!whole || value < least || value > most) {
    Fail("{}: '{}' of the index is {}; expected a whole number from {} to {}", source, name,
         found == json.end() ? "missing" : ToText(*found, -1), least, most);
  }
  return value;
}

std::string HashIn(const Json& json, const char* name, const std::string& source) {
  const auto found = json.find(name);
  const bool text = found != json.end() && found->is_string();
  std::string value = text ? found->get<std::string>() : "";
  if (value.size() != 16 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
    Fail("{}: '{}' of the index is not a fingerprint of 16 hexadecimal digits", source, name);
  }
  return value;
}

}  // namespace

std::string_view NameOf(ExampleGroup group) {
  constexpr std::array<std::string_view, kExampleGroups> kNames = {"top", "upper third",
                                                                   "middle third", "lower third"};
  return kNames[static_cast<std::size_t>(group)];
}

std::string FeaturesFingerprint(const Transcoder& transcoder) {
  const TranscoderConfig& config = transcoder.config;
  const std::int64_t C = config.width, F = config.features;
  std::uint64_t hash = HashCoordinates(
      static_cast<std::uint64_t>(config.layers),
      {static_cast<std::uint64_t>(C), static_cast<std::uint64_t>(F),
       static_cast<std::uint64_t>(config.kind), static_cast<std::uint64_t>(config.activation)});
  const auto add = [&](const float* values, std::int64_t count) {
    for (std::int64_t i = 0; values != nullptr && i < count; ++i) {
      hash = Mix64(hash ^ std::bit_cast<std::uint32_t>(values[i])) + 1;
    }
  };
  std::vector<float> row(static_cast<std::size_t>(C));
  constexpr std::int64_t kRows = 16;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const TranscoderLayer& layer = transcoder.layers[static_cast<std::size_t>(l)];
    add(layer.encoder.bias, F);
    add(layer.threshold, F);
    add(layer.decoder_bias, C);
    for (std::int64_t i = 0; i < std::min(kRows, F); ++i) {
      const std::int64_t f = i * F / std::min(kRows, F);
      EncoderRow(transcoder, l, f, row.data());
      add(row.data(), C);
      DecoderRow(transcoder, l, f, LastTarget(config, l) - 1, row.data());
      add(row.data(), C);
    }
  }
  return fmt::format("{:016x}", hash);
}

FeatureIndex::FeatureIndex(const std::filesystem::path& path)
    : FeatureIndex(
          SafetensorsFile(std::filesystem::is_directory(path) ? path / kIndexFileName : path)) {}

FeatureIndex FeatureIndex::FromBytes(std::span<const std::byte> bytes, std::string source) {
  return FeatureIndex(SafetensorsFile::FromBytes(bytes, std::move(source)));
}

FeatureIndex::FeatureIndex(SafetensorsFile file) : file_(std::move(file)) {
  const std::string& source = file_.source();
  const auto found = file_.metadata().find("clearhead");
  if (found == file_.metadata().end()) {
    Fail("{}: not an index of features; `clearhead features index` makes one", source);
  }
  const Json json = ParseJson(found->second, source);
  if (!json.is_object() || json.value("schema", Json()) != kSchema) {
    Fail("{}: not an index that this version reads; expected '{}'", source, kSchema);
  }
  info_.layers = NumberIn(json, "layers", source, 1, kMostLayers);
  info_.features = NumberIn(json, "features", source, 1, kMostFeatures);
  info_.vocabulary = NumberIn(json, "vocabulary", source, 1, kMostFeatures);
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  info_.tokens = NumberIn(json, "tokens", source, 0, kMost);
  info_.windows = NumberIn(json, "windows", source, 0, kMost);
  info_.context = NumberIn(json, "context", source, 1, kMost);
  info_.model_hash = HashIn(json, "model_hash", source);
  info_.features_hash = HashIn(json, "features_hash", source);
  id_type_ = IdType(info_.vocabulary);

  const std::int64_t N = CheckedProduct("layers x features", {info_.layers, info_.features});
  std::array<std::int64_t, kColumns> rows = {};
  for (std::size_t c = 0; c < kColumns; ++c) {
    const ColumnSpec& spec = SpecOf(static_cast<Column>(c));
    const TensorEntry& entry = file_.Get(spec.name);
    const DType dtype = spec.dtype == DType::kI32 ? id_type_ : spec.dtype;
    if (entry.dtype != dtype || entry.shape.size() != spec.inner.size() + 1 ||
        !std::equal(spec.inner.begin(), spec.inner.end(), entry.shape.begin() + 1)) {
      Fail("{}: tensor '{}' is {} [{}]; expected {} with {} extents, the inner ones [{}]", source,
           spec.name, DTypeName(entry.dtype), fmt::join(entry.shape, ","), DTypeName(dtype),
           spec.inner.size() + 1, fmt::join(spec.inner, ","));
    }
    columns_[c] = &entry;
    rows[c] = entry.shape[0];
  }
  const auto expect = [&](Column column, std::int64_t count) {
    const std::int64_t has = rows[static_cast<std::size_t>(column)];
    if (has != count) {
      Fail("{}: tensor '{}' has {} rows; expected {}", source, SpecOf(column).name, has, count);
    }
  };
  for (const Column column :
       {Column::kFired, Column::kMean, Column::kLargest, Column::kBinWidth, Column::kHistogram,
        Column::kListScores, Column::kListTokens, Column::kLabelKind}) {
    expect(column, N);
  }
  for (const Column column : {Column::kLabelBegin, Column::kExampleBegin, Column::kActiveBegin}) {
    expect(column, N + 1);
  }
  const auto rows_of = [&](Column column) { return rows[static_cast<std::size_t>(column)]; };
  for (const Column column :
       {Column::kLabelFired, Column::kLabelSeen, Column::kLabelTokens, Column::kLabelSource}) {
    expect(column, rows_of(Column::kLabelLength));
  }
  for (const Column column : {Column::kExampleStart, Column::kExampleGroup, Column::kExamplePeak,
                              Column::kExampleActive}) {
    expect(column, rows_of(Column::kExampleLength));
  }
  expect(Column::kActiveOffset, rows_of(Column::kActiveValue));
  CheckTable(Column::kLabelBegin, Column::kLabelLength);
  CheckTable(Column::kExampleBegin, Column::kExampleLength);
  CheckTable(Column::kActiveBegin, Column::kActiveValue);
}

void FeatureIndex::Refuse(const std::string& what) const {
  Fail("{}: {}; the index is damaged, make it again with `clearhead features index`",
       file_.source(), what);
}

template <typename T>
T FeatureIndex::At(Column column, std::int64_t index) const {
  T value;
  std::memcpy(&value,
              columns_[static_cast<std::size_t>(column)]->bytes.data() +
                  static_cast<std::size_t>(index) * sizeof(T),
              sizeof(T));
  return value;
}

std::int32_t FeatureIndex::IdAt(Column column, std::int64_t index) const {
  const std::uint32_t id =
      id_type_ == DType::kU16 ? At<std::uint16_t>(column, index) : At<std::uint32_t>(column, index);
  if (id >= info_.vocabulary) {
    Refuse(fmt::format("'{}' holds token {} of a vocabulary of {}", SpecOf(column).name, id,
                       info_.vocabulary));
  }
  return static_cast<std::int32_t>(id);
}

void FeatureIndex::CheckTable(Column table, Column column) const {
  const std::int64_t N = info_.layers * info_.features;
  const std::int64_t rows = columns_[static_cast<std::size_t>(column)]->shape[0];
  std::int64_t before = 0;
  for (std::int64_t i = 0; i <= N; ++i) {
    const auto here = At<std::int64_t>(table, i);
    if (here < before || here > rows || (i == 0 && here != 0) || (i == N && here != rows)) {
      Refuse(fmt::format("'{}' has {} in row {}, after {} and with {} rows to point at",
                         SpecOf(table).name, here, i, before, rows));
    }
    before = here;
  }
}

std::int64_t FeatureIndex::Row(FeatureId id) const {
  Check(id.layer >= 0 && id.layer < info_.layers && id.feature >= 0 && id.feature < info_.features,
        "a feature that the index has");
  return id.layer * info_.features + id.feature;
}

float FeatureIndex::Largest(FeatureId id) const { return At<float>(Column::kLargest, Row(id)); }

std::int64_t FeatureIndex::Fired(FeatureId id) const {
  return At<std::int64_t>(Column::kFired, Row(id));
}

FeatureLabel FeatureIndex::Label(FeatureId id) const {
  const std::int64_t row = Row(id);
  FeatureLabel label;
  const auto kind = At<std::uint8_t>(Column::kLabelKind, row);
  if (kind > static_cast<std::uint8_t>(LabelKind::kMostly)) {
    Refuse(fmt::format("the label of {} is of kind {}", ToText(id), kind));
  }
  label.kind = static_cast<LabelKind>(kind);
  const auto end = At<std::int64_t>(Column::kLabelBegin, row + 1);
  for (auto p = At<std::int64_t>(Column::kLabelBegin, row); p < end; ++p) {
    LabelPattern pattern;
    const auto length = At<std::uint8_t>(Column::kLabelLength, p);
    if (length < 1 || length > kPatternTokens) {
      Refuse(fmt::format("a label of {} has {} tokens", ToText(id), length));
    }
    pattern.pattern.length = length;
    for (int t = 0; t < length; ++t) {
      pattern.pattern.tokens[static_cast<std::size_t>(t)] =
          IdAt(Column::kLabelTokens, p * kPatternTokens + t);
    }
    pattern.from_embedding = At<std::uint8_t>(Column::kLabelSource, p) != 0;
    pattern.fired = At<std::uint32_t>(Column::kLabelFired, p);
    pattern.seen = At<std::uint32_t>(Column::kLabelSeen, p);
    if (pattern.fired > pattern.seen) {
      Refuse(fmt::format("a label of {} fired on {} of {} places", ToText(id), pattern.fired,
                         pattern.seen));
    }
    label.patterns.push_back(pattern);
  }
  return label;
}

FeatureFacts FeatureIndex::Read(FeatureId id) const {
  const std::int64_t row = Row(id);
  FeatureFacts facts{.id = id, .fired = Fired(id), .label = Label(id)};
  facts.mean = At<float>(Column::kMean, row);
  facts.largest = Largest(id);
  facts.bin_width = At<float>(Column::kBinWidth, row);
  if (facts.fired < 0 || !std::isfinite(facts.mean) || !std::isfinite(facts.largest) ||
      !std::isfinite(facts.bin_width) || facts.bin_width < 0.0f) {
    Refuse(fmt::format("the numbers of {} are not those of a feature", ToText(id)));
  }
  for (int bin = 0; bin < kHistogramBins; ++bin) {
    facts.histogram[static_cast<std::size_t>(bin)] =
        At<std::uint32_t>(Column::kHistogram, row * kHistogramBins + bin);
  }
  TokenList* const lists[] = {&facts.tokens.promoted, &facts.tokens.suppressed,
                              &facts.tokens.exciting};
  for (std::int64_t list = 0; list < 3; ++list) {
    for (std::int64_t k = 0; k < kListedTokens; ++k) {
      const std::int64_t at = (row * 3 + list) * kListedTokens + k;
      TokenScore& score = (*lists[list])[static_cast<std::size_t>(k)];
      score = {IdAt(Column::kListTokens, at), At<float>(Column::kListScores, at)};
      if (!std::isfinite(score.score)) {
        Refuse(fmt::format("a token of {} has the score {}", ToText(id), score.score));
      }
    }
  }
  const std::int64_t tokens = columns_[static_cast<std::size_t>(Column::kTokens)]->shape[0];
  auto active = At<std::int64_t>(Column::kActiveBegin, row);
  const auto active_end = At<std::int64_t>(Column::kActiveBegin, row + 1);
  const auto end = At<std::int64_t>(Column::kExampleBegin, row + 1);
  for (auto e = At<std::int64_t>(Column::kExampleBegin, row); e < end; ++e) {
    FeatureExample& example = facts.examples.emplace_back();
    const auto group = At<std::uint8_t>(Column::kExampleGroup, e);
    const std::int64_t start = At<std::uint32_t>(Column::kExampleStart, e);
    const std::int64_t length = At<std::uint8_t>(Column::kExampleLength, e);
    const std::int64_t entries = At<std::uint8_t>(Column::kExampleActive, e);
    example.peak = At<std::uint8_t>(Column::kExamplePeak, e);
    if (group >= kExampleGroups || start + length > tokens || example.peak >= length ||
        entries > active_end - active) {
      Refuse(fmt::format("an example of {} points outside the text", ToText(id)));
    }
    example.group = static_cast<ExampleGroup>(group);
    example.activations.resize(static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < length; ++i) {
      example.tokens.push_back(IdAt(Column::kTokens, start + i));
    }
    for (const std::int64_t last = active + entries; active < last; ++active) {
      const auto offset = At<std::uint8_t>(Column::kActiveOffset, active);
      const auto value = At<float>(Column::kActiveValue, active);
      if (offset >= length || !std::isfinite(value)) {
        Refuse(fmt::format("an example of {} has the activation {} at token {} of {}", ToText(id),
                           value, offset, length));
      }
      example.activations[offset] = value;
    }
  }
  return facts;
}

void FeatureIndex::CheckBelongsTo(const Transcoder& transcoder) const {
  const TranscoderConfig& config = transcoder.config;
  if (config.layers != info_.layers || config.features != info_.features) {
    Fail(
        "{}: an index of {} x {} features, these are {} x {}; make one of these with `clearhead "
        "features index`",
        file_.source(), info_.layers, info_.features, config.layers, config.features);
  }
  const std::string hash = FeaturesFingerprint(transcoder);
  if (hash != info_.features_hash) {
    Fail(
        "{}: an index of features with fingerprint {}, that of these is {}; make one of these "
        "with `clearhead features index`",
        file_.source(), info_.features_hash, hash);
  }
}

std::optional<FeatureIndex> FindIndex(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kIndexFileName)) return {};
  return FeatureIndex(folder);
}

Json ToJson(const IndexInfo& info) {
  return {{"schema", kSchema},
          {"layers", info.layers},
          {"features", info.features},
          {"vocabulary", info.vocabulary},
          {"tokens", info.tokens},
          {"windows", info.windows},
          {"context", info.context},
          {"model_hash", info.model_hash},
          {"features_hash", info.features_hash}};
}

}  // namespace clearhead
