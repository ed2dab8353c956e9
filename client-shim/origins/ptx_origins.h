// Which PTX a piece of machine code was made from, for what was compiled or linked in this process.
//
// Keyed by content: nobody follows the bytes on their way from the compiler through the program to the driver. Bounded:
// what was learnt first goes first. Thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_cache.h"

namespace tally::client_shim {

using PtxText = std::shared_ptr<const std::string>;  // without a NUL; null: not known
// Of text up to its first NUL; null if it does not begin as PTX does.
PtxText PtxTextOf(std::string_view text);

class PtxOrigins {
 public:
  explicit PtxOrigins(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // `cubin` was made from `ptx` alone. One that is not linked yet is remembered by its kernels, as they are found again
  // in the linked one.
  void Learn(std::span<const std::byte> cubin, PtxText ptx);
  // Of a linked cubin: the PTX of all of its kernels.
  PtxText Find(std::span<const std::byte> cubin) const;

  // A text on its way from its source to machine code: given back once.
  void NoteStep(const FileCache::Key& step, PtxText ptx);
  PtxText TakeStep(const FileCache::Key& step);

  uint64_t size_bytes() const;
  // Around a fork, so that the child's copy is whole and free.
  std::mutex& mutex() const { return mutex_; }

 private:
  enum class Kind : uint8_t { kImage, kKernel, kStep };
  struct Key {
    Kind kind;
    uint64_t source_bytes;  // before the digest: whether any of that size is known costs no digest
    uint64_t digest[4];
    auto operator<=>(const Key&) const = default;
  };
  struct Lesson {
    uint64_t number = 0;
    PtxText ptx;
    std::vector<Key> keys;
    uint64_t size_bytes() const;
  };
  struct Known {
    uint64_t lesson;
    PtxText ptx;
  };

  static Key KeyOf(Kind kind, const FileCache::Key& key);
  void Keep(std::vector<Key> keys, PtxText ptx);
  bool KnowsAnyOfSize(Kind kind, uint64_t source_bytes) const;
  PtxText FindByKernels(std::span<const std::byte> cubin) const;

  const uint64_t max_bytes_;
  mutable std::mutex mutex_;  // guards all below
  std::map<Key, Known> known_;
  std::deque<Lesson> lessons_;  // oldest first
  uint64_t next_lesson_ = 1;
  uint64_t used_bytes_ = 0;
};

}  // namespace tally::client_shim
