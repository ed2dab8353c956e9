// Bytes that are seldom many: a few hundred in place, more of them on the heap, which is kept for the next content.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace tally::server {

class SmallBuffer {
 public:
  static constexpr size_t kInPlace = 256;

  SmallBuffer() = default;
  // What was moved from is empty, and of use.
  SmallBuffer(SmallBuffer&& other) noexcept { Take(other); }
  SmallBuffer& operator=(SmallBuffer&& other) noexcept {
    if (this != &other) Take(other);
    return *this;
  }
  SmallBuffer(const SmallBuffer&) = delete;
  SmallBuffer& operator=(const SmallBuffer&) = delete;

  std::byte* data() { return heap_ != nullptr ? heap_.get() : place_; }
  const std::byte* data() const { return heap_ != nullptr ? heap_.get() : place_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }

  void Assign(std::span<const std::byte> bytes) {
    if (bytes.size() > capacity_) {
      size_ = 0;
      Grow(bytes.size());
    }
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
    size_ = bytes.size();
  }
  // Keeps what there is of it; what is new is zero.
  void Resize(size_t size) {
    if (size > capacity_) Grow(size);
    if (size > size_) std::memset(data() + size_, 0, size - size_);
    size_ = size;
  }

 private:
  void Grow(size_t size) {
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    if (size_ != 0) std::memcpy(bytes.get(), data(), size_);
    heap_ = std::move(bytes);
    capacity_ = size;
  }
  void Take(SmallBuffer& other) {
    if (other.heap_ != nullptr) {
      heap_ = std::move(other.heap_);
      capacity_ = std::exchange(other.capacity_, kInPlace);
      size_ = other.size_;
    } else {
      Assign(other.bytes());
    }
    other.size_ = 0;
  }

  size_t size_ = 0;
  size_t capacity_ = kInPlace;
  std::unique_ptr<std::byte[]> heap_;  // null: in place
  alignas(16) std::byte place_[kInPlace];
};

}  // namespace tally::server
