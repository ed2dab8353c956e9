#include "client-shim/transport/copy_threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>

#include "base/futex.h"

namespace tally::client_shim {
namespace {

// Below, waking the threads costs more than they save.
constexpr size_t kLargeCopyBytes = size_t{2} << 20;
constexpr size_t kStackBytes = 64 << 10;
// Pauses (about 40 us) before a thread that waits inside a turn gives its core to others at each look, and before one
// that has no turn to work for goes to sleep: copies come in series.
constexpr int kPausesAlone = 1000;

// What a bad pointer raises stays deliverable: a program that handles it must find it in whichever thread touched it.
sigset_t BlockedSignals() {
  sigset_t blocked;
  ::sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, fault);
  return blocked;
}

class Pauses {
 public:
  void Pause() {
    if (count_++ < kPausesAlone) {
      CpuRelax();
    } else {
      ::sched_yield();
    }
  }

 private:
  int count_ = 0;
};

}  // namespace

unsigned CopyThreads::NumFor(unsigned num_cpus) {
  if (num_cpus < 4) return 0;
  return num_cpus < 8 ? 1 : num_cpus < 16 ? 2 : 3;
}

CopyThreads::Turn::Turn(CopyThreads& threads, size_t size_bytes) : threads_(nullptr) {
  if (size_bytes < kLargeCopyBytes || threads.num_threads_ == 0) return;
  if (threads.is_taken_.exchange(true, std::memory_order_acquire)) return;
  if (!threads.is_started_ && !threads.Start()) {
    threads.is_taken_.store(false, std::memory_order_release);
    return;
  }
  threads_ = &threads;
  threads.is_active_.store(1, std::memory_order_seq_cst);
  threads.bell_.fetch_add(1, std::memory_order_seq_cst);
  if (threads.num_asleep_.load(std::memory_order_seq_cst) != 0) FutexWake(threads.bell_, INT_MAX);
}

CopyThreads::Turn::~Turn() {
  if (threads_ == nullptr) return;
  threads_->is_active_.store(0, std::memory_order_seq_cst);
  threads_->is_taken_.store(false, std::memory_order_release);
}

void CopyThreads::Turn::Copy(void* destination, const void* source, size_t size_bytes) {
  if (threads_ == nullptr || size_bytes < 2 * kSliceBytes) {
    std::memcpy(destination, source, size_bytes);
  } else {
    threads_->Copy(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), size_bytes);
  }
}

// Some threads are enough; none at all means that there will not be any.
bool CopyThreads::Start() {
  const sigset_t blocked = BlockedSignals();
  sigset_t before;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, std::max<size_t>(kStackBytes, PTHREAD_STACK_MIN));
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);  // the new threads inherit it
  for (unsigned i = 0; i < num_threads_; ++i) {
    pthread_t thread;
    if (::pthread_create(&thread, &attributes, &CopyThreads::Run, this) != 0) break;
    ::pthread_setname_np(thread, "tally-copy");
    is_started_ = true;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return is_started_;
}

void* CopyThreads::Run(void* self) {
  auto& threads = *static_cast<CopyThreads*>(self);
  while (true) {
    threads.SleepUntilTurn();
    Pauses pauses;
    while (threads.is_active_.load(std::memory_order_acquire) != 0) {
      if (static_cast<uint32_t>(threads.claims_.load(std::memory_order_acquire)) == 0) {
        pauses.Pause();
        continue;
      }
      threads.TakeSlices();
      pauses = {};
    }
  }
}

void CopyThreads::SleepUntilTurn() {
  for (int i = 0; i < kPausesAlone; ++i) {
    if (is_active_.load(std::memory_order_acquire) != 0) return;
    CpuRelax();
  }
  num_asleep_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const uint32_t seen = bell_.load(std::memory_order_seq_cst);
    if (is_active_.load(std::memory_order_seq_cst) != 0) break;
    FutexWait(bell_, seen, std::chrono::hours(1));
  }
  num_asleep_.fetch_sub(1, std::memory_order_seq_cst);
}

void CopyThreads::TakeSlices() {
  uint64_t claims = claims_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(claims) != 0) {
    std::byte* const destination = destination_.load(std::memory_order_relaxed);
    const std::byte* const source = source_.load(std::memory_order_relaxed);
    const size_t size_bytes = size_bytes_.load(std::memory_order_relaxed);
    if (!claims_.compare_exchange_weak(claims, claims - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    const size_t offset = (size_t{static_cast<uint32_t>(claims)} - 1) * kSliceBytes;
    std::memcpy(destination + offset, source + offset, std::min(kSliceBytes, size_bytes - offset));
    num_done_.fetch_add(1, std::memory_order_acq_rel);
    claims = claims_.load(std::memory_order_acquire);
  }
}

void CopyThreads::Copy(std::byte* destination, const std::byte* source, size_t size_bytes) {
  const auto num_slices = static_cast<uint32_t>((size_bytes + kSliceBytes - 1) / kSliceBytes);
  const uint64_t piece = (claims_.load(std::memory_order_relaxed) >> 32) + 1;
  // Nobody reads these now: all slices of the piece before are taken and done.
  destination_.store(destination, std::memory_order_relaxed);
  source_.store(source, std::memory_order_relaxed);
  size_bytes_.store(size_bytes, std::memory_order_relaxed);
  num_done_.store(0, std::memory_order_relaxed);
  claims_.store(piece << 32 | num_slices, std::memory_order_release);
  TakeSlices();
  Pauses pauses;
  while (num_done_.load(std::memory_order_acquire) != num_slices) pauses.Pause();
}

}  // namespace tally::client_shim
