// Memory of one Module's AST: bump allocation, everything freed at once with the Module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <span>
#include <string_view>
#include <type_traits>

namespace tally::ptx_transforms {

// An immutable sequence that lives in an Arena. A pass that wants another sequence makes a new one (Arena::Copy) and
// assigns it. Unlike std::span it may be a member of its own element type.
template <typename T>
class List {
 public:
  using value_type = T;
  using const_iterator = const T*;
  using iterator = const_iterator;

  List() = default;
  List(const T* first, size_t size) : first_(first), size_(static_cast<uint32_t>(size)) {}

  const T* begin() const { return first_; }
  const T* end() const { return first_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t index) const { return first_[index]; }
  const T& front() const { return first_[0]; }
  const T& back() const { return first_[size_ - 1]; }

 private:
  const T* first_ = nullptr;
  uint32_t size_ = 0;
};

// Not thread-safe. Pointers stay valid until the Arena is destroyed.
class Arena {
 public:
  template <typename T>
  List<T> Copy(std::span<const T> items) {
    static_assert(std::is_trivially_destructible_v<T>, "the arena runs no destructors");
    if (items.empty()) return {};
    T* first = static_cast<T*>(memory_.allocate(items.size_bytes(), alignof(T)));
    for (size_t i = 0; i < items.size(); ++i) new (first + i) T(items[i]);
    return List<T>(first, items.size());
  }
  template <typename T>
  List<T> Copy(std::initializer_list<T> items) {
    return Copy(std::span<const T>(items.begin(), items.size()));
  }
  // Keeps a copy of `text`, for names and numbers that a pass makes up.
  std::string_view Keep(std::string_view text);

 private:
  std::pmr::monotonic_buffer_resource memory_{64 * 1024};
};

}  // namespace tally::ptx_transforms
