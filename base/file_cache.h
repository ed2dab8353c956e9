// Results that cost time to make, kept on disk by a digest of everything that went into them.
//
// One file per result, named by the 256-bit digest; written beside its place and renamed, so that readers and other
// writers never see half a file; checked by length and checksum when read: what is damaged is a miss. Bounded: when the
// files are larger together, those that were not used for longest go first. No state but the files: any number of
// threads and processes may use one directory, also a forked child.
//
// What is read may be code that we run: only files of ours are, in a directory that nobody else can replace
// (base/private_path.h). Another one is as good as none, and the log says so once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tally {

class FileCache {
 public:
  struct Key {
    uint64_t digest[4] = {};
    uint64_t source_bytes = 0;  // of all parts
  };
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Content {
    std::unique_ptr<std::byte, Free> bytes;  // from malloc: may be handed to code that gives it back by free()
    size_t size_bytes = 0;

    std::span<const std::byte> span() const { return {bytes.get(), size_bytes}; }
  };

  static std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }
  // Every part counts with its length, so that no two lists run together into the same bytes.
  static Key KeyOf(std::initializer_list<std::span<const std::byte>> parts);

  // An empty directory: nothing is found and nothing kept. Otherwise it is made when it is first needed.
  FileCache(std::string directory, uint64_t max_bytes) : directory_(std::move(directory)), max_bytes_(max_bytes) {}

  std::optional<Content> Find(const Key& key) const;
  // False when it could not be kept: no space, no permission (logged the first time), larger than a quarter of the
  // bound.
  bool Keep(const Key& key, std::span<const std::byte> result) const;
  // Removes files until three quarters of the bound are left, if there are too many. Keep() does so now and then: who
  // could choose keys for which it does not is bounded by this.
  void Shrink() const;

 private:
  std::string PathOf(const Key& key) const;
  // Whether the directory is ours alone. Looks once, as nobody else can change that.
  bool IsOurs() const;
  void SayOnce(const std::string& why) const;

  std::string directory_;
  uint64_t max_bytes_;
  mutable std::atomic<bool> is_ours_ = false;
  mutable std::atomic<bool> has_said_so_ = false;
};

}  // namespace tally
