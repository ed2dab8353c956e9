// The PTX of Triton's kernels, from where Triton keeps it: its cache has a folder per kernel with NAME.json (how it was
// compiled), NAME.ptx and NAME.cubin, and Inductor's cache is one of Triton's.
//
// Triton runs ptxas as a process of its own and then loads the cubin, from memory or by its path. Looking into the
// cache afterwards works for kernels that were compiled before Tally came, changes nothing in the program's environment
// and cannot break a compilation, as a stand-in for ptxas (TRITON_PTXAS_PATH) could.
//
// Files are somebody's: whatever is in them, nothing worse happens than that the PTX is not found. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "client-shim/origins/ptx_origins.h"

namespace tally::client_shim {

// $TRITON_CACHE_DIR, else .triton/cache in $TRITON_HOME or $HOME: as the environment says now, for Inductor changes it
// while the program runs. Empty: nowhere.
std::string TritonCacheOfEnvironment();

// For a cubin that was loaded from the file `path`: the text beside it, if Triton has put both there.
PtxText PtxBesideCubin(const std::string& path);

class TritonCache {
 public:
  // The text of the cubin with these bytes in the cache folder `root`. What a folder holds is read once; a call reads
  // new folders for at most `time_limit` and goes on where the last one stopped.
  PtxText Find(const std::string& root, std::span<const std::byte> cubin,
               std::chrono::nanoseconds time_limit = std::chrono::milliseconds(150));

  std::mutex& mutex() { return mutex_; }

 private:
  void Forget();
  void ListFolders();
  // False if the folder has no cubin, or not yet.
  bool ReadFolder(const std::string& name);

  std::mutex mutex_;  // guards all below
  std::string root_;
  int64_t listed_at_ns_ = 0;  // the folder's time of modification when it was listed; 0: list it again
  std::set<std::string> folders_;
  std::deque<std::string> unread_;                // newest found first
  std::deque<std::string> without_cubin_;         // looked at again
  std::multimap<uint64_t, std::string> by_size_;  // of the cubin -> its path without the extension
};

}  // namespace tally::client_shim
