// The background thread that makes variants: passes, the driver's linker, and the disk in front of both.
//
// Nothing waits for it: a launch that would like a variant runs the original until there is one. Its thread has the
// lowest CPU priority. What was compiled is kept by content (image, kernel, architecture, driver, version of the
// passes) and is found again by other executors and after restarts; base/file_cache.h makes that safe against
// concurrency and damage.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/file_cache.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/compiled_variants.h"
#include "server/executor/issue/variant_source.h"

namespace tally::server {

// Raise it when what is kept changes: what older versions kept is then not found. The passes have a version of their
// own.
inline constexpr uint32_t kVariantVersion = 2;

struct CompileRequest {
  std::shared_ptr<const void> keep;  // what `image` points into
  ImageParts image;
  FileCache::Key image_key;
  std::string kernel;
  uint32_t arch = 0;            // of the device: 90
  CUcontext context = nullptr;  // the linker wants one
};

class VariantCompiler {
 public:
  // `cache_directory` may be empty: nothing is kept. `driver` outlives this.
  VariantCompiler(const DriverTable& driver, std::string cache_directory);
  // Finishes the job at hand and forgets the others.
  ~VariantCompiler();

  // `done` runs on the compiler's thread. Variants that cannot be made say why (CompiledForm::refusal).
  void Compile(CompileRequest request, std::function<void(CompiledVariants)> done);
  // Runs `job` on the compiler's thread, behind what was asked before. Where no thread can be started the jobs wait
  // for the next one that is posted.
  void Post(std::function<void()> job);

  // Shared by everything that is kept about kernels. Thread-safe.
  const FileCache& cache() const { return cache_; }

 private:
  CompiledVariants Make(const CompileRequest& request);
  CompiledForm Link(const CompileRequest& request, Result<VariantText> text) const;
  void Run();

  const DriverTable& driver_;
  const FileCache cache_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool is_stopping_ = false;                // guarded by mutex_
  std::thread thread_;                      // last: it uses all of the above; guarded by mutex_ until it runs
};

}  // namespace tally::server
