// What NVIDIA's run-time compilers (NVRTC, nvJitLink) have compiled, kept on disk as their driver keeps it.
//
// The compilers ask the driver for a finished result before they compile, through an export table
// (entry/export_tables.cc). Without an answer every process compiles anew, and some libraries compile the same source
// again and again within one: cuDNN's attention for every new sequence length.
//
// One file per result, named by a 256-bit digest of all that went into it; written beside its place and renamed, so
// that readers and other writers never see half a file; checked by length and checksum when read: what is damaged is a
// miss. As with NVIDIA's driver CUDA_CACHE_DISABLE=1 turns the cache off, CUDA_CACHE_PATH moves it (to a folder in it)
// and CUDA_CACHE_MAXSIZE bounds it (bytes). Otherwise it is $XDG_CACHE_HOME/tally/compiled, or that below ~/.cache. No
// state but the files: safe for threads, and in a forked child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tally::client_shim {

class CompileCache {
 public:
  struct Input {
    int32_t kind = 0;  // of source; the compilers' own number, as all numbers here
    std::span<const std::byte> source;
    std::string_view options;
    std::string_view platform;
    std::string_view compiler_build;
    int32_t architecture = 0;
    int32_t flags = 0;
  };
  struct Key {
    uint64_t digest[4] = {};
    uint64_t source_bytes = 0;
  };
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Result {
    std::unique_ptr<std::byte, Free> bytes;  // from malloc: handed to callers that give it back for free()
    size_t size_bytes = 0;
  };

  static Key KeyOf(const Input& input);
  // As the environment of this process says now.
  static CompileCache OfEnvironment();
  // An empty directory: nothing is found and nothing kept.
  CompileCache(std::string directory, uint64_t max_bytes) : directory_(std::move(directory)), max_bytes_(max_bytes) {}

  std::optional<Result> Find(const Key& key) const;
  // False when it could not be kept: no space, no permission. Nobody needs to know.
  bool Keep(const Key& key, std::span<const std::byte> result) const;

 private:
  std::string PathOf(const Key& key) const;
  // Removes the files that were not used for longest until three quarters of the bound are left.
  void Shrink() const;

  std::string directory_;
  uint64_t max_bytes_;
};

}  // namespace tally::client_shim
