#include "server/executor/issue/segment_compiler.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/file_cache.h"
#include "base/log.h"
#include "base/thread.h"
#include "images/ptx_text.h"
#include "server/executor/issue/variant_source.h"

namespace tally::server {
namespace {

using ptx_transforms::KernelSegments;

constexpr int kLowestPriority = 19;
// Roughly, with what hashing and allocation add.
constexpr size_t kBytesPerNode = 256;
constexpr size_t kBytesPerAccess = 512;

// The code, for as long as the process lives.
const char* StaticCode(std::string_view code) {
  static const std::vector<std::string> codes = [] {
    const std::vector<std::string_view> views = ptx_transforms::BarrierCodes();
    return std::vector<std::string>(views.begin(), views.end());
  }();
  const auto found = std::find(codes.begin(), codes.end(), code);
  return found != codes.end() ? found->c_str() : "not-understood";
}

size_t BytesKept(const FoundSegments& found) {
  return 2 * sizeof(found) + found.segments.formula.size() * kBytesPerNode +
         found.segments.accesses.size() * kBytesPerAccess;
}

}  // namespace

SegmentCompiler::~SegmentCompiler() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const AwaitedSegments> SegmentCompiler::Find(std::shared_ptr<const ImageBytes> image,
                                                             std::string kernel, uint32_t capability) {
  std::shared_ptr<AwaitedSegments> answer;
  {
    const std::lock_guard lock(mutex_);
    if (questions_.size() >= limits_.questions) return nullptr;
    if (!thread_.joinable()) {
      auto thread = StartThread("segments", [this] { Run(); });
      if (!thread) {
        LOG_WARNING("kernels run in order for now: {}", thread.error().message());
        return nullptr;
      }
      thread_ = std::move(*thread);
    }
    answer = std::make_shared<AwaitedSegments>(++num_asked_);
    questions_.push_back({std::move(image), std::move(kernel), capability, answer});
  }
  changed_.notify_one();
  return answer;
}

void SegmentCompiler::Run() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowestPriority);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (questions_.empty()) {  // a tree is large
      last_module_.reset();
      last_text_ = {};
    }
    changed_.wait(lock, [&] { return is_stopping_ || !questions_.empty(); });
    if (is_stopping_) return;
    {
      const Question question = std::move(questions_.front());
      questions_.pop_front();
      lock.unlock();
      // Else whoever asked has gone.
      if (question.answer.use_count() > 1) question.answer->Set(Answer(question));
    }
    lock.lock();
  }
}

const std::array<uint64_t, 4>& SegmentCompiler::DigestOf(const std::shared_ptr<const ImageBytes>& image) {
  if (last_image_.lock() != image) {
    const FileCache::Key key = FileCache::KeyOf({image->bytes});
    std::copy(std::begin(key.digest), std::end(key.digest), last_digest_.begin());
    last_image_ = image;
  }
  return last_digest_;
}

std::shared_ptr<const FoundSegments> SegmentCompiler::Answer(const Question& question) {
  Key key = {DigestOf(question.image), question.kernel, question.capability};
  if (const auto known = known_.find(key); known != known_.end()) return known->second.found;
  auto found = std::make_shared<FoundSegments>(Look(question));
  const size_t bytes = BytesKept(*found) + key.kernel.size();
  if (!MakeRoom(bytes)) {
    found->barrier = "too-large";
    found->segments = {};
    found->inputs = {};
    return found;
  }
  known_bytes_ += bytes;
  known_.emplace(std::move(key), Known{found, bytes});
  return found;
}

FoundSegments SegmentCompiler::Look(const Question& question) {
  FoundSegments found;
  const auto refuse = [&](const char* code) {
    found.barrier = code;
    found.segments = {};
    return std::move(found);
  };
  const ImageParts parts = PartsOf(*question.image);
  if (!HasPtx(parts, question.capability)) return refuse("no-ptx");
  auto text = PtxOfKernel(parts, question.kernel, question.capability);
  if (!text) return refuse("no-ptx");
  if (text->size() > limits_.text_bytes) return refuse("too-large");
  const auto head = images::ReadPtxHead(*text);
  if (!head) return refuse("not-understood");
  if (!is_software_ && HasOtherCode(parts, question.capability, head->target)) return refuse("other-code");
  const ptx_transforms::Module* module = Parsed(std::move(*text));
  if (module == nullptr) return refuse("not-understood");
  auto segments = ptx_transforms::FindSegments(*module, question.kernel);
  if (!segments) return refuse("no-ptx");
  if (!segments->barriers.empty()) return refuse(StaticCode(segments->barriers.front().code));
  if (segments->formula.size() > limits_.nodes || segments->accesses.size() > limits_.accesses)
    return refuse("too-large");
  found.inputs = ptx_transforms::LaunchInputs(*segments);
  found.segments = std::move(*segments);
  return found;
}

const ptx_transforms::Module* SegmentCompiler::Parsed(std::string text) {
  if (!last_module_ || last_text_ != text) {
    last_module_.reset();
    last_text_ = std::move(text);
    auto module = ptx_transforms::ParseModule(last_text_);
    if (module) last_module_ = std::move(*module);
  }
  return last_module_ ? &*last_module_ : nullptr;
}

bool SegmentCompiler::MakeRoom(size_t bytes) {
  if (known_bytes_ + bytes <= limits_.kept_bytes) return true;
  std::erase_if(known_, [&](const auto& entry) {
    const bool is_unused = entry.second.found.use_count() == 1;
    if (is_unused) known_bytes_ -= entry.second.bytes;
    return is_unused;
  });
  return known_bytes_ + bytes <= limits_.kept_bytes;
}

}  // namespace tally::server
