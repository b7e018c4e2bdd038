// SPDX-License-Identifier: MIT
#include "core/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace clearhead {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kDataAlignment = 64;
constexpr std::int64_t kConversionChunk = 1 << 18;  // elements
constexpr std::string_view kMetadataKey = "__metadata__";

// Foreign text for a one-line message: quoted, without control characters, not endless.
std::string Quote(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string quoted = "'";
  for (const char c : text.substr(0, kLongest)) {
    quoted += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

struct HeaderEntry {
  TensorEntry tensor;  // without its bytes
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Receives the header's JSON events and accepts exactly the grammar at the top of safetensors.h.
// Events instead of a document: a hostile header of 100 MB then costs neither gigabytes nor,
// through an ordered object's linear search, hours.
class HeaderReader {
 public:
  HeaderReader(const std::string& source, std::map<std::string, std::string>* metadata)
      : source_(source), metadata_(*metadata) {}

  std::vector<HeaderEntry> TakeEntries() { return std::move(entries_); }

  // The interface that nlohmann's parser calls; each returns whether to go on.
  bool null() { Unexpected("null"); }
  bool boolean(bool value) { Unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { Unexpected(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) { Unexpected("the number " + Quote(text)); }
  bool binary(Json::binary_t&) { Unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (state_ == State::kShape) {
      if (value > std::numeric_limits<std::int64_t>::max()) {
        Unexpected(fmt::format("the number {}", value));
      }
      if (shape().size() == kMaxRank) {
        Fail("{}: tensor {} has a shape of more than {} axes", source_, name(), kMaxRank);
      }
      shape().push_back(static_cast<std::int64_t>(value));
    } else if (state_ == State::kOffsets && offsets_read_ < 2) {
      (offsets_read_++ == 0 ? entries_.back().begin : entries_.back().end) = value;
    } else {
      Unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::kMetadataValue) {
      metadata_.at(key_) = std::move(value);
      state_ = State::kMetadata;
    } else if (state_ == State::kDType) {
      const std::optional<DType> dtype = DTypeFromName(value);
      if (!dtype) {
        Fail(
            "{}: tensor {} has the unknown dtype {}; expected F32, F16, BF16 or another type of "
            "the safetensors format",
            source_, name(), Quote(value));
      }
      entries_.back().tensor.dtype = *dtype;
      state_ = State::kTensor;
    } else {
      Unexpected("the text " + Quote(value));
    }
    return true;
  }

  bool start_object(std::size_t) {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kMetadataStart:
        state_ = State::kMetadata;
        return true;
      case State::kTensorStart:
        state_ = State::kTensor;
        return true;
      default:
        Unexpected("an object");
    }
  }

  bool key(std::string& text) {
    if (state_ == State::kTop && text == kMetadataKey) {
      if (std::exchange(metadata_read_, true)) {
        Fail("{}: the header has two entries named {}", source_, Quote(text));
      }
      state_ = State::kMetadataStart;
    } else if (state_ == State::kTop) {
      if (!names_.insert(text).second) {
        Fail("{}: the header has two tensors named {}", source_, Quote(text));
      }
      entries_.emplace_back().tensor.name = std::move(text);
      has_dtype_ = has_shape_ = has_offsets_ = false;
      state_ = State::kTensorStart;
    } else if (state_ == State::kMetadata) {
      if (!metadata_.try_emplace(text).second) {
        Fail("{}: the header's metadata has two entries named {}", source_, Quote(text));
      }
      key_ = std::move(text);
      state_ = State::kMetadataValue;
    } else {
      TensorField(text);
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) {
      const char* missing = !has_dtype_     ? "dtype"
                            : !has_shape_   ? "shape"
                            : !has_offsets_ ? "data_offsets"
                                            : nullptr;
      if (missing != nullptr) Fail("{}: tensor {} has no '{}'", source_, name(), missing);
      state_ = State::kTop;
    } else if (state_ == State::kMetadata) {
      state_ = State::kTop;
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (state_ == State::kShapeStart) {
      state_ = State::kShape;
    } else if (state_ == State::kOffsetsStart) {
      state_ = State::kOffsets;
      offsets_read_ = 0;
    } else {
      Unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    if (state_ == State::kOffsets && offsets_read_ != 2) {
      Unexpected(fmt::format("an array of {}", offsets_read_));
    }
    state_ = State::kTensor;
    return true;
  }

  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    Fail("{}: the header is not valid JSON at its byte {}; the file is damaged or not safetensors",
         source_, position);
  }

 private:
  // What the next event may be.
  enum class State {
    kStart,
    kTop,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
  };

  void TensorField(const std::string& field) {
    const auto enter = [&](bool* seen, State next) {
      if (std::exchange(*seen, true)) {
        Fail("{}: tensor {} has two fields '{}'", source_, name(), field);
      }
      state_ = next;
    };
    if (field == "dtype") return enter(&has_dtype_, State::kDType);
    if (field == "shape") return enter(&has_shape_, State::kShapeStart);
    if (field == "data_offsets") return enter(&has_offsets_, State::kOffsetsStart);
    Fail("{}: tensor {} has the unknown field {}; expected dtype, shape and data_offsets", source_,
         name(), Quote(field));
  }

  [[noreturn]] void Unexpected(std::string_view found) const {
    switch (state_) {
      case State::kDType:
        Fail("{}: tensor {} has {} as its dtype; expected a text", source_, name(), found);
      case State::kShapeStart:
      case State::kShape:
        Fail(
            "{}: tensor {} has {} as or in its shape; expected an array of integers from 0 to "
            "2^63-1",
            source_, name(), found);
      case State::kOffsetsStart:
      case State::kOffsets:
        Fail("{}: tensor {} has {} as or in its data_offsets; expected two integers [begin, end]",
             source_, name(), found);
      case State::kTensorStart:
        Fail("{}: the header has {} for tensor {}; expected an object", source_, found, name());
      case State::kMetadataStart:
        Fail("{}: the header has {} for {}; expected an object of texts", source_, found,
             kMetadataKey);
      case State::kMetadataValue:
        Fail("{}: the header's metadata entry {} is {}; expected a text", source_, Quote(key_),
             found);
      default:
        Fail("{}: the header is {}; expected an object", source_, found);
    }
  }

  std::string name() const { return Quote(entries_.back().tensor.name); }
  std::vector<std::int64_t>& shape() { return entries_.back().tensor.shape; }

  const std::string& source_;
  std::map<std::string, std::string>& metadata_;
  State state_ = State::kStart;
  std::vector<HeaderEntry> entries_;
  std::unordered_set<std::string> names_;
  std::string key_;  // of the metadata entry being read
  bool metadata_read_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_read_ = 0;
};

// Bytes of a tensor, or nothing if they do not fit 63 bits. A zero extent does not excuse the
// others: code that multiplies them in another order must not overflow either.
std::optional<std::int64_t> ByteLength(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t product = DTypeSize(dtype);
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty = empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return empty ? 0 : product;
}

void CheckEntry(const HeaderEntry& entry, std::uint64_t data_size, const std::string& source) {
  const TensorEntry& tensor = entry.tensor;
  const std::optional<std::int64_t> length = ByteLength(tensor.shape, tensor.dtype);
  if (!length) {
    Fail("{}: tensor {} has the shape {}, more than any file can hold", source, Quote(tensor.name),
         ShapeText(tensor.shape));
  }
  if (entry.begin > entry.end || entry.end > data_size) {
    Fail(
        "{}: tensor {} has data_offsets [{},{}]; expected begin <= end <= {}, the size of the data "
        "(is the file complete?)",
        source, Quote(tensor.name), entry.begin, entry.end, data_size);
  }
  if (entry.end - entry.begin != static_cast<std::uint64_t>(*length)) {
    Fail("{}: tensor {} has {} bytes; expected {} for {} {}", source, Quote(tensor.name),
         entry.end - entry.begin, *length, DTypeName(tensor.dtype), ShapeText(tensor.shape));
  }
}

// The tensors must cover the data exactly once: bytes that belong to two tensors or to none could
// mean two things to two readers.
void CheckCoverage(const std::vector<HeaderEntry>& entries, std::uint64_t data_size,
                   const std::string& source) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  std::uint64_t covered = 0;
  const HeaderEntry* previous = nullptr;
  for (const std::size_t i : order) {
    const HeaderEntry& entry = entries[i];
    if (entry.begin < covered) {
      Fail(
          "{}: tensor {} overlaps tensor {}: it begins at byte {} of the data, the other ends at "
          "{}",
          source, Quote(entry.tensor.name), Quote(previous->tensor.name), entry.begin, covered);
    }
    if (entry.begin > covered) {
      Fail("{}: {} bytes of the data before tensor {} belong to no tensor", source,
           entry.begin - covered, Quote(entry.tensor.name));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_size) {
    Fail(
        "{}: {} bytes at the end of the data belong to no tensor; expected {} bytes of data, found "
        "{}",
        source, data_size - covered, covered, data_size);
  }
}

// The JSON header without its padding, in the order given.
std::string HeaderText(std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{},", kMetadataKey, ToText(Json(metadata), /*indent=*/-1));
  }
  std::unordered_set<std::string> names;
  std::int64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    Check(tensor.name != kMetadataKey && names.insert(tensor.name).second,
          "a tensor needs a name of its own");
    Check(tensor.shape.size() <= kMaxRank, "more axes than a safetensors file holds");
    const std::optional<std::int64_t> length = ByteLength(tensor.shape, tensor.dtype);
    Check(length.has_value(), "the shape of a tensor to write overflows");
    if (tensor.data != nullptr) {
      Check(IsConvertibleFloat(tensor.dtype), "fp32 values are written as F32, F16 or BF16");
    } else if (!tensor.make) {
      std::size_t raw = tensor.raw.size();
      for (const std::span<const std::byte> part : tensor.raw_parts) raw += part.size();
      Check(raw == static_cast<std::size_t>(*length),
            "the raw bytes of a tensor do not match its shape");
    }
    header += fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}},)",
                          ToText(Json(tensor.name), /*indent=*/-1), DTypeName(tensor.dtype),
                          ShapeText(tensor.shape), begin, begin + *length);
    begin += *length;
  }
  if (header.back() == ',') header.pop_back();
  return header + "}";
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : map_(path), source_(path.string()) {
  Parse(map_->bytes());
}

SafetensorsFile SafetensorsFile::FromBytes(std::span<const std::byte> bytes, std::string source) {
  SafetensorsFile file;
  file.source_ = std::move(source);
  file.Parse(bytes);
  return file;
}

void SafetensorsFile::Parse(std::span<const std::byte> file) {
  std::uint64_t header_size = 0;
  if (file.size() < sizeof(header_size)) {
    Fail("{}: {} bytes are too short for a safetensors file; expected at least 8", source_,
         file.size());
  }
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  file = file.subspan(sizeof(header_size));
  if (header_size > kMaxHeaderBytes) {
    Fail("{}: a header of {} bytes; expected at most {} (is this a safetensors file?)", source_,
         header_size, kMaxHeaderBytes);
  }
  if (header_size > file.size()) {
    Fail("{}: a header of {} bytes, but only {} follow; the file is cut off or not safetensors",
         source_, header_size, file.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()), header_size);
  const std::span<const std::byte> data = file.subspan(header_size);
  // The JSON library skips a byte-order mark and takes a NUL for the end of the text; the format
  // allows neither.
  if (!header.starts_with('{') || header.find('\0') != std::string_view::npos) {
    Fail("{}: the header is not a JSON object; the file is damaged or not safetensors", source_);
  }

  HeaderReader reader(source_, &metadata_);
  Json::sax_parse(header, &reader);
  std::vector<HeaderEntry> entries = reader.TakeEntries();
  for (const HeaderEntry& entry : entries) CheckEntry(entry, data.size(), source_);
  CheckCoverage(entries, data.size(), source_);

  tensors_.reserve(entries.size());
  index_.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors_.push_back(std::move(entry.tensor));
    index_.emplace(tensors_.back().name, tensors_.size() - 1);
  }
}

const TensorEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorEntry& SafetensorsFile::Get(std::string_view name) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) Fail("{}: there is no tensor {}", source_, Quote(name));
  return *entry;
}

void ConvertToFloat(const TensorEntry& entry, float* out) {
  if (!IsConvertibleFloat(entry.dtype)) {
    Fail("tensor {} is stored as {}; expected F32, F16 or BF16", Quote(entry.name),
         DTypeName(entry.dtype));
  }
  ConvertToFloat(entry.dtype, entry.bytes.data(), entry.size(), out);
}

void WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string header = HeaderText(tensors, metadata);
  const std::size_t unpadded = sizeof(std::uint64_t) + header.size();
  header.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  Check(header.size() <= kMaxHeaderBytes, "a safetensors header over its limit");

  AtomicFile file(path);
  const std::uint64_t header_size = header.size();
  file.Write(std::as_bytes(std::span(&header_size, 1)));
  file.Write(header);
  std::vector<std::byte> chunk;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.make) {
      std::int64_t written = 0;
      tensor.make([&](std::span<const std::byte> bytes) {
        file.Write(bytes);
        written += static_cast<std::int64_t>(bytes.size());
      });
      Check(written == *ByteLength(tensor.shape, tensor.dtype),
            "the bytes made for a tensor do not match its shape");
      continue;
    }
    if (tensor.data == nullptr) {
      file.Write(tensor.raw);
      for (const std::span<const std::byte> part : tensor.raw_parts) file.Write(part);
      continue;
    }
    const std::int64_t size = *ByteLength(tensor.shape, tensor.dtype) / DTypeSize(tensor.dtype);
    if (tensor.dtype == DType::kF32) {
      file.Write(std::as_bytes(std::span(tensor.data, static_cast<std::size_t>(size))));
      continue;
    }
    for (std::int64_t done = 0; done < size; done += kConversionChunk) {
      const std::int64_t n = std::min(kConversionChunk, size - done);
      chunk.resize(static_cast<std::size_t>(n * DTypeSize(tensor.dtype)));
      ConvertFromFloat(tensor.data + done, n, tensor.dtype, chunk.data());
      file.Write(chunk);
    }
  }
  file.Commit();
}

}  // namespace clearhead
