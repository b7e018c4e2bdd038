// SPDX-License-Identifier: MIT
// Files: whole-file reads, read-only maps, and writes that are either complete or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace clearhead {

// The whole file as bytes. Throws Error naming the file if it cannot be read or is over
// `max_bytes`.
std::string ReadFile(const std::filesystem::path& path, std::uint64_t max_bytes = 1ull << 32);

// A read-only memory map of a regular file.
// Lifetime: bytes() is valid while the object lives. Threads: reading is safe from any thread.
// Failure: throws Error naming the file. A file that shrinks while mapped raises SIGBUS on access,
// as with every map.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file that appears under its name only when complete: writes go to a temporary in the same
// folder; Commit() syncs it to disk and renames it. Destroyed without Commit(), nothing is left
// behind.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }
  void Commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

void WriteFile(const std::filesystem::path& path, std::string_view text);

// Makes the directory (and parents) if need be; throws Error naming it when that fails.
void MakeDirectory(const std::filesystem::path& path);

}  // namespace clearhead
