// Images with gates in their kernels: made once of each content, shared by all sessions that load it, and kept on disk,
// so that the next start need not unpack, splice and check them again (about 50 us a kernel; a digest and a file
// are a fifth of that).
//
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/file_cache.h"
#include "server/executor/issue/gated_code.h"

namespace tally::server {

class GatedImages {
 public:
  using Job = std::function<void()>;
  // `cache_directory` empty: nothing is kept on disk. `post` runs a job later on some thread, while this exists: nobody
  // waits for the disk. `link` is the linker of a driver of that version, which may be the only one that takes its
  // results.
  GatedImages(const std::string& cache_directory, uint32_t driver_version, CubinLinker link,
              std::function<void(Job)> post);

  // For devices of that architecture (90: sm_90). `is_text`: from its PTX, for the software driver. Errors as
  // GateMachineCode and GateText.
  Result<std::shared_ptr<const GatedCode>> Get(const ImageParts& image, uint32_t arch, bool is_text);

 private:
  std::shared_ptr<const GatedCode> Share(const FileCache::Key& key, GatedCode code);

  struct Less {
    bool operator()(const FileCache::Key& a, const FileCache::Key& b) const;
  };

  const FileCache cache_;
  const uint32_t driver_version_;
  const CubinLinker link_;
  const std::function<void(Job)> post_;
  std::mutex mutex_;
  std::map<FileCache::Key, std::weak_ptr<const GatedCode>, Less> in_use_;  // guarded by mutex_
};

}  // namespace tally::server
