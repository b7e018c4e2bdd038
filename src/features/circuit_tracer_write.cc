// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/threads.h"
#include "core/yaml.h"
#include "features/circuit_tracer_files.h"
#include "features/numbered_files.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

// The tensors of one file. Matrices have the type that was asked for; vectors stay in fp32, since a
// threshold that moves changes what fires.
class FileToWrite {
 public:
  explicit FileToWrite(DType dtype) : dtype_(dtype) {}

  void AddVector(std::string name, const float* values, std::int64_t count) {
    Add({.name = std::move(name), .shape = {count}, .data = values}, count);
  }

  // A matrix that lies in memory as the file has it.
  void AddMatrix(std::string name, std::vector<std::int64_t> shape, const Weight& weight) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    TensorToWrite tensor{.name = std::move(name), .dtype = dtype_, .shape = std::move(shape)};
    if (weight.is_f32()) {
      tensor.data = weight.f32();
    } else if (weight.dtype == dtype_) {
      tensor.raw = {weight.data, static_cast<std::size_t>(count * DTypeSize(dtype_))};
    } else {
      Buffer<float>& values = values_.emplace_back(count);
      weight.CopyTo(0, count, values.data());
      tensor.data = values.data();
    }
    Add(std::move(tensor), count);
  }

  // One that is gathered row by row: fill(row, out).
  template <typename Fill>
  void AddRows(std::string name, std::vector<std::int64_t> shape, std::int64_t rows,
               const Fill& fill) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    Buffer<float>& values = values_.emplace_back(count);
    ParallelFor(rows, [&](std::int64_t row) { fill(row, values.data() + row * (count / rows)); });
    Add({.name = std::move(name),
         .dtype = dtype_,
         .shape = std::move(shape),
         .data = values.data()},
        count);
  }

  void Write(const fs::path& path) const { WriteSafetensors(path, tensors_, {{"format", "pt"}}); }

 private:
  // Refuses values that are not finite, or would not be as they are stored.
  void Add(TensorToWrite tensor, std::int64_t count) {
    for (std::int64_t i = 0; tensor.data != nullptr && i < count; ++i) {
      const float value = tensor.data[i];
      const float stored = tensor.dtype == DType::kF16    ? HalfToFloat(FloatToHalf(value))
                           : tensor.dtype == DType::kBF16 ? BFloat16ToFloat(FloatToBFloat16(value))
                                                          : value;
      if (std::isfinite(stored)) continue;
      Fail("the features' {} has the value {}, which {} cannot hold", tensor.name, value,
           DTypeName(tensor.dtype));
    }
    tensors_.push_back(std::move(tensor));
  }

  DType dtype_;
  std::vector<TensorToWrite> tensors_;
  std::deque<Buffer<float>> values_;
};

void AddEncoder(const Transcoder& transcoder, std::int64_t l, std::string name, FileToWrite* file) {
  const TranscoderLayer& layer = transcoder.layers[static_cast<std::size_t>(l)];
  const std::int64_t F = transcoder.config.features, C = transcoder.config.width;
  const bool as_stored = layer.encoder.order == Order::kOutIn && layer.encoder.stride == C &&
                         layer.input_scale == 1.0f;
  if (as_stored) return file->AddMatrix(std::move(name), {F, C}, layer.encoder.weight);
  file->AddRows(std::move(name), {F, C}, F,
                [&](std::int64_t f, float* out) { EncoderRow(transcoder, l, f, out); });
}

// W_dec as [F, targets, C], or [F, C] for a single target.
void AddDecoder(const Transcoder& transcoder, std::int64_t l, std::string name,
                std::vector<std::int64_t> shape, FileToWrite* file) {
  const TranscoderConfig& c = transcoder.config;
  const std::vector<DecoderRows>& writes = transcoder.layers[static_cast<std::size_t>(l)].writes;
  const auto targets = static_cast<std::int64_t>(writes.size());
  bool as_stored = true;
  for (std::int64_t t = 0; t < targets; ++t) {
    const DecoderRows& rows = writes[static_cast<std::size_t>(t)];
    as_stored &= rows.scale == 1.0f && rows.stride == targets * c.width &&
                 rows.rows.dtype == writes[0].rows.dtype &&
                 rows.rows.data == (writes[0].rows + t * c.width).data;
  }
  if (as_stored) return file->AddMatrix(std::move(name), std::move(shape), writes[0].rows);
  file->AddRows(std::move(name), std::move(shape), c.features, [&](std::int64_t f, float* out) {
    for (std::int64_t t = 0; t < targets; ++t) {
      DecoderRow(transcoder, l, f, l + t, out + t * c.width);
    }
  });
}

void WriteCrossLayer(const Transcoder& transcoder, const fs::path& folder, DType dtype) {
  const TranscoderConfig& c = transcoder.config;
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const TranscoderLayer& layer = transcoder.layers[static_cast<std::size_t>(l)];
    const auto name = [l](const char* word) { return fmt::format("{}_{}", word, l); };
    FileToWrite encoder(dtype), decoder(dtype);
    AddEncoder(transcoder, l, name("W_enc"), &encoder);
    encoder.AddVector(name("b_enc"), layer.encoder.bias, c.features);
    encoder.AddVector(name("b_dec"), layer.decoder_bias, c.width);
    if (layer.threshold != nullptr) {
      encoder.AddVector(name("threshold"), layer.threshold, c.features);
    }
    encoder.Write(NumberedFile(folder, "W_enc_", l));
    AddDecoder(transcoder, l, name("W_dec"), {c.features, c.layers - l, c.width}, &decoder);
    decoder.Write(NumberedFile(folder, "W_dec_", l));
  }
}

void WriteSet(const Transcoder& transcoder, const fs::path& folder, DType dtype) {
  const TranscoderConfig& c = transcoder.config;
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const TranscoderLayer& layer = transcoder.layers[static_cast<std::size_t>(l)];
    FileToWrite file(dtype);
    AddEncoder(transcoder, l, "W_enc", &file);
    file.AddVector("b_enc", layer.encoder.bias, c.features);
    AddDecoder(transcoder, l, "W_dec", {c.features, c.width}, &file);
    file.AddVector("b_dec", layer.decoder_bias, c.width);
    if (layer.threshold != nullptr) {
      file.AddVector("activation_function.threshold", layer.threshold, c.features);
    }
    if (layer.skip) {
      const Linear& skip = *layer.skip;
      file.AddRows("W_skip", {c.width, c.width}, c.width,
                   [&](std::int64_t row, float* out) { CopyMatrix(OutputsOf(skip, row, 1), out); });
    }
    file.Write(NumberedFile(folder, "layer_", l));
  }
}

// Files of more layers, or of the other layout, would be read with those written now.
void RefuseOtherFiles(const fs::path& folder, const TranscoderConfig& c) {
  const bool cross = c.kind == TranscoderKind::kCrossLayer;
  for (const std::string_view prefix : {"W_enc_", "W_dec_", "layer_"}) {
    const std::vector<std::int64_t> numbers = NumbersOf(folder, prefix);
    const std::int64_t allowed = (prefix != "layer_") == cross ? c.layers : 0;
    if (numbers.empty() || numbers.back() < allowed) continue;
    Fail("'{}' holds files of other features ({}); give another folder", folder.string(),
         NumberedFile("", prefix, numbers.back()).string());
  }
}

}  // namespace

void WriteCircuitTracer(const Transcoder& transcoder, const fs::path& folder, DType dtype) {
  const TranscoderConfig& c = transcoder.config;
  const bool cross = c.kind == TranscoderKind::kCrossLayer;
  Check(IsConvertibleFloat(dtype), "features are stored as F32, F16 or BF16");
  const bool skips = std::any_of(transcoder.layers.begin(), transcoder.layers.end(),
                                 [](const TranscoderLayer& layer) { return bool(layer.skip); });
  if (cross && (skips || c.activation == FeatureActivation::kTopK)) {
    Fail("the files of cross-layer transcoders have no place for {}; {}", skips ? "a skip" : "TopK",
         skips ? "train per-layer ones" : "give each feature a threshold (JumpReLU)");
  }
  MakeDirectory(folder);
  RefuseOtherFiles(folder, c);
  std::error_code ignored;
  fs::remove(folder / "config.yaml", ignored);  // old and new layers are never read together
  if (cross) {
    WriteCrossLayer(transcoder, folder, dtype);
  } else {
    WriteSet(transcoder, folder, dtype);
  }
  Json config = {{"model_kind", cross ? "cross_layer_transcoder" : "transcoder_set"},
                 {"feature_input_hook",
                  c.reads == Tap::kLn2Normalized ? "ln2.hook_normalized" : "hook_resid_mid"},
                 {"feature_output_hook", "hook_mlp_out"}};
  if (c.activation == FeatureActivation::kTopK) {
    config["activation"] = "topk";
    config["k"] = c.k;
  } else if (!cross && c.activation == FeatureActivation::kRelu) {
    config["activation"] = "relu";
  }
  if (!c.model.empty()) config["model_name"] = c.model;
  if (!c.model_hash.empty()) config["clearhead_model_hash"] = c.model_hash;
  if (c.first_position > 0) config["clearhead_first_position"] = c.first_position;
  WriteFile(folder / "config.yaml", ToYaml(config));
}

}  // namespace clearhead
