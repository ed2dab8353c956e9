// Finds what kernels touch, in the PTX of their images, on a background thread: once per content (image, kernel,
// architecture), for all sessions of an executor.
//
//      Find  -->  thread: hash, PTX of the kernel, FindSegments  -->  AwaitedSegments::found
//
// Nothing waits for it. The thread is started with the first question and has the lowest CPU priority. PTX is the
// client's and may be anything: what is not understood, or is too large, is a barrier, by name.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ptx-transforms/segments.h"
#include "server/executor/issue/kernel_code.h"

namespace tally::server {

// What was found. Immutable.
struct FoundSegments {
  // Not null: no launch of the kernel may run beside others. A code of docs/segments.md, "no-ptx": its image holds no
  // PTX of it, or "other-code": the image also holds machine code that was made from other PTX. Static.
  const char* barrier = nullptr;
  ptx_transforms::KernelSegments segments;  // without a barrier
  std::vector<ptx_transforms::ParameterPiece> inputs;
};

// The answer to come. Any thread may look.
class AwaitedSegments {
 public:
  explicit AwaitedSegments(uint64_t number) : number_(number) {}
  // Of no other one of this executor.
  uint64_t number() const { return number_; }
  // Null: not yet. Stays the same once it is there.
  const FoundSegments* found() const { return is_there_.load(std::memory_order_acquire) ? found_.get() : nullptr; }
  // Once.
  void Set(std::shared_ptr<const FoundSegments> found) {
    found_ = std::move(found);
    is_there_.store(true, std::memory_order_release);
  }

 private:
  const uint64_t number_;
  std::shared_ptr<const FoundSegments> found_;
  std::atomic<bool> is_there_ = false;
};

struct SegmentLimits {
  size_t text_bytes = size_t{8} << 20;    // of the PTX text that defines the kernel
  size_t nodes = size_t{1} << 16;         // of a kernel's formulas: they are evaluated in launches
  size_t accesses = 2048;                 // of a kernel
  size_t kept_bytes = size_t{256} << 20;  // of what is found: then what nobody uses goes
  size_t questions = 4096;                // that wait
};

// Thread-safe.
class SegmentCompiler {
 public:
  // `is_software`: the driver is, and runs the newest PTX whatever machine code lies beside it.
  explicit SegmentCompiler(bool is_software = false, SegmentLimits limits = {})
      : is_software_(is_software), limits_(limits) {}
  // Finishes the kernel at hand and forgets the others.
  ~SegmentCompiler();
  SegmentCompiler(const SegmentCompiler&) = delete;
  SegmentCompiler& operator=(const SegmentCompiler&) = delete;

  // `capability`: of the device, 90. Whoever lets go of the answer is not interested any more. Null: too many questions
  // wait; ask again later.
  std::shared_ptr<const AwaitedSegments> Find(std::shared_ptr<const ImageBytes> image, std::string kernel,
                                              uint32_t capability);

 private:
  struct Question {
    std::shared_ptr<const ImageBytes> image;
    std::string kernel;
    uint32_t capability = 0;
    std::shared_ptr<AwaitedSegments> answer;
  };
  struct Key {
    std::array<uint64_t, 4> image{};
    std::string kernel;
    uint32_t capability = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Known {
    std::shared_ptr<const FoundSegments> found;
    size_t bytes = 0;
  };

  void Run();
  std::shared_ptr<const FoundSegments> Answer(const Question& question);
  const std::array<uint64_t, 4>& DigestOf(const std::shared_ptr<const ImageBytes>& image);
  FoundSegments Look(const Question& question);
  // Null: it is not PTX.
  const ptx_transforms::Module* Parsed(std::string text);
  bool MakeRoom(size_t bytes);

  const bool is_software_;
  const SegmentLimits limits_;
  // The thread's own.
  std::map<Key, Known> known_;
  size_t known_bytes_ = 0;
  std::weak_ptr<const ImageBytes> last_image_;  // of many kernels in a row, as a rule
  std::array<uint64_t, 4> last_digest_{};
  std::string last_text_;
  std::optional<ptx_transforms::Module> last_module_;  // of last_text_; while questions wait

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;  // guarded by mutex_
  uint64_t num_asked_ = 0;          // guarded by mutex_
  bool is_stopping_ = false;        // guarded by mutex_
  std::thread thread_;              // last: it uses all of the above; guarded by mutex_ until it runs
};

}  // namespace tally::server
