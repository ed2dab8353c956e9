// What this process has mapped at some addresses, as /proc/self/maps says, and the file behind it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tally::client_shim {

inline constexpr uint64_t kPageBytes = 4096;

// One line of /proc/self/maps.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t file_offset_bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;  // 0: no file
  bool is_readable = false;
  bool is_writable = false;
  bool is_executable = false;
  bool is_shared = false;
  std::string path;
};

// The mappings that touch [begin, end), in order of address, not clipped.
std::vector<Mapping> MappingsWithin(uint64_t begin, uint64_t end);

// What a range of whole pages rests on, for somebody who wants to share it with another process.
enum class Backing : uint8_t {
  kNothing,   // there is a hole in it, or it may not be read and written
  kOwnPages,  // private pages of this process: others may be put in their place
  kFile,      // one file that other processes may have mapped too: it must be shared itself
  kForeign,   // anything else: devices, huge pages, several kinds at once
};

struct RangeBacking {
  Backing kind = Backing::kNothing;
  // Of a kFile: opened anew for reading and writing; invalid if that was not possible.
  UniqueFd file;
  uint64_t file_offset_bytes = 0;
};
RangeBacking FindBacking(uint64_t begin, uint64_t end);

}  // namespace tally::client_shim
