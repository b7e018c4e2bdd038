// SPDX-License-Identifier: MIT
// Any bytes as the files that analysis reads: each is refused with an Error, or what it gives can
// be walked to the end. The first byte chooses the reader; the others are the file.
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/safetensors.h"
#include "heads/attention_source.h"
#include "heads/head_list.h"
#include "tasks/task_items.h"
#include "text/bpe_train.h"

namespace {
using namespace clearhead;
namespace fs = std::filesystem;

// A folder of this process, gone when it ends.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("clearhead-fuzz-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

// Not AtomicFile: syncing to the disk would take longer than everything else.
void Write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void Walk(const AttentionSource& source) {
  for (std::size_t s = 0; s < source.sequences.size(); ++s) {
    const std::int64_t T = source.sequences[s].length;
    for (std::int64_t position = 0; position < T; ++position) source.token(s, position);
    try {
      source.visit(s, [&](std::int64_t layer, const float* weights) {
        if (layer >= source.layers) std::abort();
        for (std::int64_t i = 0; i < source.heads * T * T; ++i) {
          if (!(weights[i] >= 0.0f)) std::abort();  // CheckAttention should have refused
        }
      });
    } catch (const Error&) {
    }
  }
}

const Tokenizer& Letters() {
  static const Tokenizer tokenizer = [] {
    const std::vector<std::string_view> texts = {"the cat, the mat"};
    return TrainBpe(texts, {.vocabulary_size = 260});
  }();
  return tokenizer;
}

void WriteUniformAttention(const fs::path& path) {
  const std::vector<float> weights = {1, 0, 0.5f, 0.5f};
  const std::vector<TensorToWrite> tensors = {
      {.name = "attn", .shape = {1, 1, 2, 2}, .data = weights.data()}};
  WriteSafetensors(path, tensors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const Folder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0: {
        fs::remove(folder.path / "maps.json");
        Write(folder.path / "maps.safetensors", bytes);
        Walk(AttentionOfFile(folder.path / "maps.safetensors", "maps"));
        break;
      }
      case 1: {
        static const bool written = [] {
          WriteUniformAttention(folder.path / "two.safetensors");
          return true;
        }();
        static_cast<void>(written);
        Write(folder.path / "two.json", bytes);
        Walk(AttentionOfFile(folder.path / "two.safetensors", "two"));
        break;
      }
      case 2: {
        Write(folder.path / "items.csv", bytes);
        for (const TaskItem& item : ReadTaskCsv(folder.path / "items.csv", Letters()).items) {
          if (item.clean.size() != item.corrupted.size() || item.answers.empty()) std::abort();
        }
        break;
      }
      default: {
        Write(folder.path / "circuit.json", bytes);
        const std::string list = "circuit:" + (folder.path / "circuit.json").string();
        for (const HeadId& head : ParseHeadList(list, 3, 4, {})) {
          if (head.layer < 0 || head.layer >= 3 || head.head < 0 || head.head >= 4) std::abort();
        }
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
