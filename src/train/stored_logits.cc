// SPDX-License-Identifier: MIT
#include "train/stored_logits.h"

#include <fmt/ranges.h>

#include <cstring>

#include "core/error.h"

namespace clearhead {

StoredLogits::StoredLogits(const std::filesystem::path& path, const ModelConfig& config)
    : file_(path), logits_(&file_.Get("logits")), vocabulary_(config.vocabulary) {
  const TensorEntry& ids = file_.Get("ids");
  if (ids.dtype != DType::kI32 || ids.shape.size() != 2) {
    Fail("{}: 'ids' is {} [{}], expected I32 [sequences, length]", file_.source(),
         DTypeName(ids.dtype), fmt::join(ids.shape, ","));
  }
  sequences_ = ids.shape[0];
  length_ = ids.shape[1];
  if (sequences_ < 1 || length_ < 2) {
    Fail("{}: 'ids' holds {} sequences of {} tokens; at least one of two is needed", file_.source(),
         sequences_, length_);
  }
  const std::vector<std::int64_t> expected = {sequences_, length_, vocabulary_};
  if (!IsConvertibleFloat(logits_->dtype) || logits_->shape != expected) {
    Fail("{}: 'logits' is {} [{}], expected F32, F16 or BF16 [{}] for its ids and this model",
         file_.source(), DTypeName(logits_->dtype), fmt::join(logits_->shape, ","),
         fmt::join(expected, ","));
  }
  ids_.resize(static_cast<std::size_t>(sequences_ * length_));
  std::memcpy(ids_.data(), ids.bytes.data(), ids.bytes.size());
  for (const std::int32_t id : ids_) {
    if (id < 0 || id >= vocabulary_) {
      Fail("{}: token {} is outside the model's vocabulary of {}", file_.source(), id, vocabulary_);
    }
  }
}

void StoredLogits::Read(std::int64_t token, std::int64_t count, float* out) const {
  const std::int64_t pitch = vocabulary_ * DTypeSize(logits_->dtype);
  ConvertToFloat(logits_->dtype, logits_->bytes.data() + token * pitch, count * vocabulary_, out);
}

}  // namespace clearhead
