// SPDX-License-Identifier: MIT
// The tensors of an index of features (docs/formats.md), as they are made and as they are stored:
// columns of numbers, some with a row for each feature, others with rows that an offset table of
// the features points into.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace clearhead {

// Wide elements first, so that every tensor of a file lies where its numbers can be read in place.
enum class Column {
  kFired,          // fired              I64 [N]       tokens on which the feature fires
  kLabelBegin,     // label.begin        I64 [N+1]
  kExampleBegin,   // example.begin      I64 [N+1]
  kActiveBegin,    // active.begin       I64 [N+1]
  kMean,           // mean               F32 [N]       of the activations that are not 0
  kLargest,        // largest            F32 [N]
  kBinWidth,       // bin_width          F32 [N]
  kHistogram,      // histogram          U32 [N,32]
  kListScores,     // list.scores        F32 [N,3,8]   promoted, suppressed, exciting
  kLabelFired,     // label.fired        U32 [P]
  kLabelSeen,      // label.seen         U32 [P]
  kExampleStart,   // example.start      U32 [E]       first token, in `tokens`
  kActiveValue,    // active.value       F32 [A]
  kListTokens,     // list.tokens        id  [N,3,8]
  kLabelTokens,    // label.tokens       id  [P,4]     in reading order; what is beyond length is 0
  kTokens,         // tokens             id  [M]       the text of the examples
  kLabelKind,      // label.kind         U8  [N]
  kLabelLength,    // label.length       U8  [P]
  kLabelSource,    // label.embedding    U8  [P]
  kExampleGroup,   // example.group      U8  [E]
  kExampleLength,  // example.length     U8  [E]
  kExamplePeak,    // example.peak       U8  [E]
  kExampleActive,  // example.active     U8  [E]       entries of active.*
  kActiveOffset,   // active.offset      U8  [A]
};
inline constexpr std::size_t kColumns = static_cast<std::size_t>(Column::kActiveOffset) + 1;

struct ColumnSpec {
  const char* name;
  DType dtype;                      // kI32 stands for an id: U16 or U32
  std::vector<std::int64_t> inner;  // extents behind the rows
};
const ColumnSpec& SpecOf(Column column);
// Ids are stored in 16 bits where the vocabulary fits.
DType IdType(std::int64_t vocabulary);

// The columns of some features in a row, growing feature by feature. example.start holds places of
// the text, not of `tokens`, until they are joined (JoinColumns).
class IndexColumns {
 public:
  explicit IndexColumns(std::int64_t vocabulary) : id_type_(IdType(vocabulary)) {}

  template <typename T>
  void Append(Column column, T value) {
    static_assert(std::is_arithmetic_v<T>);
    auto& bytes = bytes_[static_cast<std::size_t>(column)];
    bytes.resize(bytes.size() + sizeof(T));
    std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
  }
  void AppendId(Column column, std::int32_t id);

  // Rows so far.
  std::int64_t Rows(Column column) const;

  // As a safetensors file, complete or absent.
  void Write(const std::filesystem::path& path) const;

 private:
  DType id_type_;
  std::array<std::vector<std::byte>, kColumns> bytes_;
};

// The index: the columns of `pieces`, files that IndexColumns wrote, one after another; and of the
// text what their examples show, each token once.
void JoinColumns(std::span<const std::filesystem::path> pieces, std::int64_t vocabulary,
                 std::span<const std::int32_t> text,
                 const std::map<std::string, std::string>& metadata,
                 const std::filesystem::path& path);

}  // namespace clearhead
