#include "client-shim/origins/ptx_origins.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "images/cubin.h"
#include "images/kernel_identity.h"
#include "images/ptx_text.h"

namespace tally::client_shim {
namespace {

constexpr uint64_t kBytesPerKey = 160;  // of a node in the table, about

}  // namespace

PtxText PtxTextOf(std::string_view text) {
  text = text.substr(0, text.find('\0'));
  return images::ReadPtxHead(text) ? std::make_shared<const std::string>(text) : nullptr;
}

uint64_t PtxOrigins::Lesson::size_bytes() const { return ptx->size() + kBytesPerKey * (1 + keys.size()); }

PtxOrigins::Key PtxOrigins::KeyOf(Kind kind, const FileCache::Key& key) {
  Key result{kind, key.source_bytes, {}};
  std::copy(std::begin(key.digest), std::end(key.digest), std::begin(result.digest));
  return result;
}

void PtxOrigins::Learn(std::span<const std::byte> cubin, PtxText ptx) {
  const auto view = images::CubinView::Parse(cubin);
  if (!view || ptx == nullptr) return;
  std::vector<Key> keys;
  if (view->is_linked()) {
    keys.push_back(KeyOf(Kind::kImage, FileCache::KeyOf({cubin})));
  } else if (const auto kernels = images::IdentifyKernels(cubin); kernels) {
    for (const images::KernelIdentity& kernel : *kernels)
      if (!kernel.identity.empty()) keys.push_back(KeyOf(Kind::kKernel, FileCache::KeyOf({kernel.identity})));
  }
  if (!keys.empty()) Keep(std::move(keys), std::move(ptx));
}

PtxText PtxOrigins::Find(std::span<const std::byte> cubin) const {
  bool may_be_known = false;
  bool knows_kernels = false;
  {
    const std::lock_guard lock(mutex_);
    may_be_known = KnowsAnyOfSize(Kind::kImage, cubin.size());
    const auto kernel = known_.lower_bound(Key{Kind::kKernel, 0, {}});
    knows_kernels = kernel != known_.end() && kernel->first.kind == Kind::kKernel;
  }
  if (may_be_known) {
    const Key key = KeyOf(Kind::kImage, FileCache::KeyOf({cubin}));
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second.ptx;
  }
  return knows_kernels ? FindByKernels(cubin) : nullptr;
}

// All kernels must come from one text.
PtxText PtxOrigins::FindByKernels(std::span<const std::byte> cubin) const {
  const auto kernels = images::IdentifyKernels(cubin);
  if (!kernels || kernels->empty()) return nullptr;
  PtxText result;
  for (const images::KernelIdentity& kernel : *kernels) {
    if (kernel.identity.empty()) return nullptr;
    const Key key = KeyOf(Kind::kKernel, FileCache::KeyOf({kernel.identity}));
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    if (found == known_.end()) return nullptr;
    if (result != nullptr && result != found->second.ptx && *result != *found->second.ptx) return nullptr;
    result = found->second.ptx;
  }
  return result;
}

void PtxOrigins::NoteStep(const FileCache::Key& step, PtxText ptx) {
  if (ptx != nullptr) Keep({KeyOf(Kind::kStep, step)}, std::move(ptx));
}

PtxText PtxOrigins::TakeStep(const FileCache::Key& step) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(KeyOf(Kind::kStep, step));
  if (found == known_.end()) return nullptr;
  const uint64_t number = found->second.lesson;
  PtxText ptx = std::move(found->second.ptx);
  known_.erase(found);
  const auto lesson =
      std::find_if(lessons_.begin(), lessons_.end(), [number](const Lesson& l) { return l.number == number; });
  if (lesson != lessons_.end()) {
    used_bytes_ -= lesson->size_bytes();
    lessons_.erase(lesson);
  }
  return ptx;
}

void PtxOrigins::Keep(std::vector<Key> keys, PtxText ptx) {
  Lesson lesson{0, std::move(ptx), std::move(keys)};
  const uint64_t added_bytes = lesson.size_bytes();
  if (added_bytes > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  // The same again, as when a program compiles the same for each of its devices: nothing new.
  const bool is_known = std::all_of(lesson.keys.begin(), lesson.keys.end(), [&](const Key& key) {
    const auto found = known_.find(key);
    return found != known_.end() && *found->second.ptx == *lesson.ptx;
  });
  if (is_known) return;
  while (used_bytes_ + added_bytes > max_bytes_ && !lessons_.empty()) {
    const Lesson& oldest = lessons_.front();
    for (const Key& key : oldest.keys) {
      // Learnt anew since then, it is the later lesson's.
      if (const auto found = known_.find(key); found != known_.end() && found->second.lesson == oldest.number)
        known_.erase(found);
    }
    used_bytes_ -= oldest.size_bytes();
    lessons_.pop_front();
  }
  lesson.number = next_lesson_++;
  for (const Key& key : lesson.keys) known_[key] = Known{lesson.number, lesson.ptx};
  used_bytes_ += added_bytes;
  lessons_.push_back(std::move(lesson));
}

bool PtxOrigins::KnowsAnyOfSize(Kind kind, uint64_t source_bytes) const {
  const auto found = known_.lower_bound(Key{kind, source_bytes, {}});
  return found != known_.end() && found->first.kind == kind && found->first.source_bytes == source_bytes;
}

uint64_t PtxOrigins::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace tally::client_shim
