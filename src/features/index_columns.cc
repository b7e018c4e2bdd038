// SPDX-License-Identifier: MIT
#include "features/index_columns.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/safetensors.h"
#include "features/feature_tally.h"
#include "features/feature_tokens.h"
#include "features/suffix_counts.h"

namespace clearhead {
namespace {

DType TypeOf(Column column, DType id_type) {
  const DType dtype = SpecOf(column).dtype;
  return dtype == DType::kI32 ? id_type : dtype;
}

std::int64_t RowBytes(Column column, DType id_type) {
  std::int64_t size = DTypeSize(TypeOf(column, id_type));
  for (const std::int64_t extent : SpecOf(column).inner) size *= extent;
  return size;
}

template <typename T>
T ReadAt(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

void PutId(std::int32_t id, DType type, std::vector<std::byte>* bytes) {
  const std::size_t size = static_cast<std::size_t>(DTypeSize(type));
  bytes->resize(bytes->size() + size);
  const auto wide = static_cast<std::uint32_t>(id);
  const auto narrow = static_cast<std::uint16_t>(id);
  const void* source = type == DType::kU16 ? static_cast<const void*>(&narrow) : &wide;
  std::memcpy(bytes->data() + bytes->size() - size, source, size);
}

// Parts of the text that examples show, ascending and apart; each token of them has a place in
// `tokens`.
struct ShownText {
  std::vector<std::int64_t> begin, end, place;

  // `ranges` are [first, last) of the text.
  explicit ShownText(std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
    std::sort(ranges.begin(), ranges.end());
    std::int64_t tokens = 0;
    for (const auto& [first, last] : ranges) {
      if (begin.empty() || first > end.back()) {
        if (!begin.empty()) tokens += end.back() - begin.back();
        begin.push_back(first);
        end.push_back(last);
        place.push_back(tokens);
      }
      end.back() = std::max(end.back(), last);
    }
  }

  std::uint32_t PlaceOf(std::int64_t position) const {
    const auto after = std::upper_bound(begin.begin(), begin.end(), position);
    const auto at = static_cast<std::size_t>(after - begin.begin()) - 1;
    return static_cast<std::uint32_t>(place[at] + position - begin[at]);
  }
};

}  // namespace

const ColumnSpec& SpecOf(Column column) {
  static const std::array<ColumnSpec, kColumns> specs = {{
      {"fired", DType::kI64, {}},
      {"label.begin", DType::kI64, {}},
      {"example.begin", DType::kI64, {}},
      {"active.begin", DType::kI64, {}},
      {"mean", DType::kF32, {}},
      {"largest", DType::kF32, {}},
      {"bin_width", DType::kF32, {}},
      {"histogram", DType::kU32, {kHistogramBins}},
      {"list.scores", DType::kF32, {3, kListedTokens}},
      {"label.fired", DType::kU32, {}},
      {"label.seen", DType::kU32, {}},
      {"example.start", DType::kU32, {}},
      {"active.value", DType::kF32, {}},
      {"list.tokens", DType::kI32, {3, kListedTokens}},
      {"label.tokens", DType::kI32, {kPatternTokens}},
      {"tokens", DType::kI32, {}},
      {"label.kind", DType::kU8, {}},
      {"label.length", DType::kU8, {}},
      {"label.embedding", DType::kU8, {}},
      {"example.group", DType::kU8, {}},
      {"example.length", DType::kU8, {}},
      {"example.peak", DType::kU8, {}},
      {"example.active", DType::kU8, {}},
      {"active.offset", DType::kU8, {}},
  }};
  return specs[static_cast<std::size_t>(column)];
}

DType IdType(std::int64_t vocabulary) { return vocabulary <= 1 << 16 ? DType::kU16 : DType::kU32; }

void IndexColumns::AppendId(Column column, std::int32_t id) {
  PutId(id, id_type_, &bytes_[static_cast<std::size_t>(column)]);
}

std::int64_t IndexColumns::Rows(Column column) const {
  return static_cast<std::int64_t>(bytes_[static_cast<std::size_t>(column)].size()) /
         RowBytes(column, id_type_);
}

void IndexColumns::Write(const std::filesystem::path& path) const {
  std::vector<TensorToWrite> tensors;
  for (std::size_t c = 0; c < kColumns; ++c) {
    const auto column = static_cast<Column>(c);
    std::vector<std::int64_t> shape = SpecOf(column).inner;
    shape.insert(shape.begin(), Rows(column));
    tensors.push_back({.name = SpecOf(column).name,
                       .dtype = TypeOf(column, id_type_),
                       .shape = shape,
                       .raw = bytes_[c]});
  }
  WriteSafetensors(path, tensors);
}

void JoinColumns(std::span<const std::filesystem::path> pieces, std::int64_t vocabulary,
                 std::span<const std::int32_t> text,
                 const std::map<std::string, std::string>& metadata,
                 const std::filesystem::path& path) {
  const DType id_type = IdType(vocabulary);
  std::vector<SafetensorsFile> files;
  for (const std::filesystem::path& piece : pieces) files.emplace_back(piece);
  const auto part = [&](std::size_t file, Column column) {
    return files[file].Get(SpecOf(column).name).bytes;
  };

  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto starts = part(f, Column::kExampleStart), lengths = part(f, Column::kExampleLength);
    for (std::size_t e = 0; e < lengths.size(); ++e) {
      const auto first = static_cast<std::int64_t>(ReadAt<std::uint32_t>(starts, e));
      ranges.emplace_back(first, first + ReadAt<std::uint8_t>(lengths, e));
    }
  }
  const ShownText shown(std::move(ranges));
  std::vector<std::byte> tokens;
  for (std::size_t r = 0; r < shown.begin.size(); ++r) {
    for (std::int64_t i = shown.begin[r]; i < shown.end[r]; ++i) {
      PutId(text[static_cast<std::size_t>(i)], id_type, &tokens);
    }
  }

  // Columns that are made anew; the others are their parts as they lie in the files.
  std::array<std::vector<std::int64_t>, kColumns> tables;
  std::vector<std::uint32_t> starts;
  for (const Column column : {Column::kLabelBegin, Column::kExampleBegin, Column::kActiveBegin}) {
    std::vector<std::int64_t>& table = tables[static_cast<std::size_t>(column)];
    table.push_back(0);
    for (std::size_t f = 0; f < files.size(); ++f) {
      const std::int64_t before = table.back();
      const auto bytes = part(f, column);
      for (std::size_t i = 1; i < bytes.size() / sizeof(std::int64_t); ++i) {
        table.push_back(before + ReadAt<std::int64_t>(bytes, i));
      }
    }
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto bytes = part(f, Column::kExampleStart);
    for (std::size_t e = 0; e < bytes.size() / sizeof(std::uint32_t); ++e) {
      starts.push_back(shown.PlaceOf(ReadAt<std::uint32_t>(bytes, e)));
    }
  }

  std::vector<TensorToWrite> tensors;
  for (std::size_t c = 0; c < kColumns; ++c) {
    const auto column = static_cast<Column>(c);
    TensorToWrite tensor{.name = SpecOf(column).name, .dtype = TypeOf(column, id_type)};
    if (!tables[c].empty()) {
      tensor.raw_parts = {BytesOf(tables[c])};
    } else if (column == Column::kExampleStart) {
      tensor.raw_parts = {BytesOf(starts)};
    } else if (column == Column::kTokens) {
      tensor.raw_parts = {tokens};
    } else {
      for (std::size_t f = 0; f < files.size(); ++f) tensor.raw_parts.push_back(part(f, column));
    }
    std::int64_t bytes = 0;
    for (const auto& piece : tensor.raw_parts) bytes += static_cast<std::int64_t>(piece.size());
    tensor.shape = SpecOf(column).inner;
    tensor.shape.insert(tensor.shape.begin(), bytes / RowBytes(column, id_type));
    tensors.push_back(std::move(tensor));
  }
  WriteSafetensors(path, tensors, metadata);
}

}  // namespace clearhead
