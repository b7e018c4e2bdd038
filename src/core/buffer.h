// SPDX-License-Identifier: MIT
// An owned, uninitialised, 64-byte aligned array. Move-only; views borrow from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "core/kept_memory.h"

namespace clearhead {

namespace internal {
// Large blocks are aligned to and advised for huge pages: a fresh 600 MB block of attention maps is
// then 300 page faults instead of 150,000.
// Throws Error for a negative count, and for more than there is memory.
struct FreeBlock {
  std::shared_ptr<KeptMemory> home;  // where the block comes from and goes to; null: the system
  std::size_t bytes = 0;
  void operator()(void* block) const;
};
std::unique_ptr<void, FreeBlock> AllocateAligned(std::int64_t count, std::size_t size_of_each);
}  // namespace internal

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "a buffer holds raw values without constructors");

 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size)
      : data_(internal::AllocateAligned(size, sizeof(T))), size_(size) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() { return static_cast<T*>(data_.get()); }
  const T* data() const { return static_cast<const T*>(data_.get()); }
  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }
  std::span<T> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  std::unique_ptr<void, internal::FreeBlock> data_;
  std::int64_t size_ = 0;
};

}  // namespace clearhead
