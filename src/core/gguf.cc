// SPDX-License-Identifier: MIT
#include "core/gguf.h"

#include <array>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

namespace clearhead {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxTensors = 1 << 20, kMaxValues = 1 << 16, kMaxItems = 1 << 24;
constexpr std::size_t kMaxName = 1 << 16;
constexpr std::int64_t kBlock = 32, kQ8Bytes = 2 + kBlock;  // of Q8_0: a half and 32 bytes

// The kinds of values, by number.
enum class Kind : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

// Reads on; every step is checked against the end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  std::size_t at() const { return at_; }

  template <typename T>
  T Take() {
    Need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string TakeText(std::size_t most) {
    const auto length = Take<std::uint64_t>();
    if (length > most) Fail("{}: a name of {} bytes; that is no GGUF file", source_, length);
    Need(length);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  std::size_t left() const { return bytes_.size() - at_; }

 private:
  void Need(std::uint64_t count) const {
    if (count > bytes_.size() - at_) Fail("{}: it is cut short at byte {}", source_, bytes_.size());
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
};

std::int64_t Whole64(std::uint64_t value, const std::string& source) {
  if (value > static_cast<std::uint64_t>(INT64_MAX))
    Fail("{}: the number {} is beyond 2^63", source, value);
  return static_cast<std::int64_t>(value);
}

bool IsReal(Kind kind) { return kind == Kind::kF32 || kind == Kind::kF64; }

std::int64_t TakeWhole(Reader& in, Kind kind, const std::string& source) {
  switch (kind) {
    case Kind::kU8:
    case Kind::kBool:
      return in.Take<std::uint8_t>();
    case Kind::kI8:
      return in.Take<std::int8_t>();
    case Kind::kU16:
      return in.Take<std::uint16_t>();
    case Kind::kI16:
      return in.Take<std::int16_t>();
    case Kind::kU32:
      return in.Take<std::uint32_t>();
    case Kind::kI32:
      return in.Take<std::int32_t>();
    case Kind::kU64:
      return Whole64(in.Take<std::uint64_t>(), source);
    case Kind::kI64:
      return in.Take<std::int64_t>();
    default:
      Fail("{}: a value of the unknown kind {}", source, static_cast<std::uint32_t>(kind));
  }
}

double TakeReal(Reader& in, Kind kind) {
  return kind == Kind::kF32 ? static_cast<double>(in.Take<float>()) : in.Take<double>();
}

GgufValue TakeArray(Reader& in, const std::string& source) {
  const auto kind = static_cast<Kind>(in.Take<std::uint32_t>());
  const auto count = in.Take<std::uint64_t>();
  // Every item takes at least a byte: nothing is reserved for what cannot be there.
  if (count > kMaxItems || count > in.left())
    Fail("{}: a list of {} items; that is no GGUF file", source, count);
  if (kind == Kind::kArray) Fail("{}: lists of lists are not read", source);
  if (kind == Kind::kText) {
    std::vector<std::string> items;
    for (std::uint64_t i = 0; i < count; ++i) items.push_back(in.TakeText(kMaxName));
    return items;
  }
  if (IsReal(kind)) {
    std::vector<double> items;
    for (std::uint64_t i = 0; i < count; ++i) items.push_back(TakeReal(in, kind));
    return items;
  }
  std::vector<std::int64_t> items;
  for (std::uint64_t i = 0; i < count; ++i) items.push_back(TakeWhole(in, kind, source));
  return items;
}

GgufValue TakeValue(Reader& in, const std::string& source) {
  const auto kind = static_cast<Kind>(in.Take<std::uint32_t>());
  if (kind == Kind::kText) return in.TakeText(in.left());
  if (kind == Kind::kArray) return TakeArray(in, source);
  if (IsReal(kind)) return TakeReal(in, kind);
  return TakeWhole(in, kind, source);
}

// Bytes of a tensor of a type that can be read; none for others.
std::optional<std::uint64_t> BytesOf(const GgufTensor& tensor, const std::string& source) {
  const auto size = static_cast<std::uint64_t>(tensor.size());
  switch (static_cast<GgufType>(tensor.type)) {
    case GgufType::kF32:
      return 4 * size;
    case GgufType::kF16:
    case GgufType::kBF16:
      return 2 * size;
    case GgufType::kQ8_0:
      if (tensor.shape.back() % kBlock != 0) {
        Fail("{}: '{}' is Q8_0 with rows of {}, which are no blocks of {}", source, tensor.name,
             tensor.shape.back(), kBlock);
      }
      return size / kBlock * kQ8Bytes;
  }
  return {};
}

}  // namespace

std::string GgufTypeName(std::uint32_t type) {
  constexpr std::array<std::string_view, 31> kNames = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
  return type < kNames.size() ? std::string(kNames[type]) : fmt::format("type {}", type);
}

bool IsGguf(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

GgufFile::GgufFile(const std::filesystem::path& path) : map_(path), source_(path.string()) {
  Parse(map_->bytes());
}

GgufFile GgufFile::FromBytes(std::span<const std::byte> bytes, std::string source) {
  GgufFile file;
  file.source_ = std::move(source);
  file.Parse(bytes);
  return file;
}

void GgufFile::Parse(std::span<const std::byte> file) {
  if (!IsGguf(file)) Fail("{}: it does not begin with GGUF", source_);
  Reader in(file.subspan(kMagic.size()), source_);
  const auto version = in.Take<std::uint32_t>();
  if (version != 2 && version != 3)
    Fail("{}: GGUF of version {}; versions 2 and 3 can be read", source_, version);
  const auto tensors = in.Take<std::uint64_t>(), values = in.Take<std::uint64_t>();
  if (tensors > kMaxTensors || values > kMaxValues)
    Fail("{}: {} tensors and {} values; that is no GGUF file", source_, tensors, values);
  for (std::uint64_t i = 0; i < values; ++i) {
    std::string name = in.TakeText(kMaxName);
    GgufValue value = TakeValue(in, source_);
    if (!values_.emplace(name, std::move(value)).second)
      Fail("{}: the value '{}' is there twice", source_, name);
  }
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufTensor tensor{.name = in.TakeText(kMaxName)};
    const auto axes = in.Take<std::uint32_t>();
    if (axes < 1 || axes > 4) Fail("{}: '{}' has {} axes", source_, tensor.name, axes);
    std::int64_t product = 1;
    for (std::uint32_t axis = 0; axis < axes; ++axis) {
      const std::int64_t extent = Whole64(in.Take<std::uint64_t>(), source_);
      if (extent < 1 || extent > (std::int64_t{1} << 40) / product)
        Fail("{}: '{}' has an extent of {}", source_, tensor.name, extent);
      product *= extent;
      tensor.shape.insert(tensor.shape.begin(), extent);
    }
    tensor.type = in.Take<std::uint32_t>();
    offsets.push_back(in.Take<std::uint64_t>());
    if (!index_.emplace(tensor.name, tensors_.size()).second)
      Fail("{}: the tensor '{}' is there twice", source_, tensor.name);
    tensors_.push_back(std::move(tensor));
  }
  const std::int64_t alignment = Whole("general.alignment").value_or(32);
  if (alignment < 1 || alignment > 1 << 20) Fail("{}: an alignment of {}", source_, alignment);
  const std::uint64_t header = kMagic.size() + in.at(),
                      unit = static_cast<std::uint64_t>(alignment);
  const std::uint64_t data = (header + unit - 1) / unit * unit;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::optional<std::uint64_t> bytes = BytesOf(tensors_[i], source_);
    if (!bytes) continue;
    if (data > file.size() || offsets[i] > file.size() - data ||
        *bytes > file.size() - data - offsets[i]) {
      Fail("{}: '{}' lies beyond the end of the file, which is cut short", source_,
           tensors_[i].name);
    }
    tensors_[i].bytes = file.subspan(data + offsets[i], *bytes);
    total += *bytes;  // a small file must not become a large model
    if (total > file.size()) Fail("{}: its tensors overlap", source_);
  }
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::optional<std::int64_t> GgufFile::Whole(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return {};
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return *value;
  Fail("{}: '{}' is not one whole number", source_, name);
}

std::optional<double> GgufFile::Number(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return {};
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second))
    return static_cast<double>(*value);
  Fail("{}: '{}' is not one number", source_, name);
}

std::optional<std::string> GgufFile::Text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return {};
  if (const auto* value = std::get_if<std::string>(&found->second)) return *value;
  Fail("{}: '{}' is not a text", source_, name);
}

void ConvertToFloat(const GgufTensor& tensor, float* out) {
  switch (static_cast<GgufType>(tensor.type)) {
    case GgufType::kF32:
      return ConvertToFloat(DType::kF32, tensor.bytes.data(), tensor.size(), out);
    case GgufType::kF16:
      return ConvertToFloat(DType::kF16, tensor.bytes.data(), tensor.size(), out);
    case GgufType::kBF16:
      return ConvertToFloat(DType::kBF16, tensor.bytes.data(), tensor.size(), out);
    case GgufType::kQ8_0:
      for (std::int64_t block = 0; block < tensor.size() / kBlock; ++block) {
        const std::byte* at = tensor.bytes.data() + block * kQ8Bytes;
        std::uint16_t half = 0;
        std::memcpy(&half, at, sizeof(half));
        const float scale = HalfToFloat(half);
        for (std::int64_t i = 0; i < kBlock; ++i) {
          out[block * kBlock + i] = scale * static_cast<float>(static_cast<std::int8_t>(at[2 + i]));
        }
      }
      return;
  }
  Fail("'{}' is stored as {}; F32, F16, BF16 and Q8_0 can be read", tensor.name,
       GgufTypeName(tensor.type));
}

}  // namespace clearhead
