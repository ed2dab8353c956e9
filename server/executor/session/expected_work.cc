#include "server/executor/session/expected_work.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/futex.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/thread_urgency.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/session_state.h"

namespace tally::server {
namespace {

// A client may ring as often as it can; looked is not more often than that.
constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr uint64_t kMostDeclared = 10'000;  // that are counted at a look
// How often it is asked whether notices are of use, while they are not or nothing is expected.
constexpr std::chrono::milliseconds kLongestSleep{500};
// As late as timers of sleeping threads are, and more: so long before its time a step is waited for with open eyes.
constexpr std::chrono::microseconds kWatched{30};

TimePoint At(uint64_t ns) {
  return TimePoint(std::chrono::nanoseconds(static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX))));
}

}  // namespace

ExpectedWork::~ExpectedWork() { Stop(); }

Status ExpectedWork::Start() {
  auto thread = StartThread("expected-work", [this] { Run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return OkStatus();
}

void ExpectedWork::Stop() {
  is_stopping_.store(true);
  page_.bell.fetch_add(1);
  FutexWake(page_.bell, 1);
  if (thread_.joinable()) thread_.join();
}

void ExpectedWork::OnBusy(int device, TimePoint at) {
  if (is_busy_.exchange(true) && device != device_.load(std::memory_order_relaxed)) return;
  const uint64_t index = num_begun_.load(std::memory_order_relaxed);
  begun_at_ns_.store(at.time_since_epoch().count(), std::memory_order_relaxed);
  device_.store(device, std::memory_order_relaxed);
  num_begun_.store(index + 1, std::memory_order_release);
  page_.begun_at_ns[index % shm::kArrivalTimes].store(static_cast<uint64_t>(at.time_since_epoch().count()),
                                                      std::memory_order_relaxed);
  page_.is_busy.store(1, std::memory_order_relaxed);
  page_.num_begun.store(index + 1, std::memory_order_release);
}

void ExpectedWork::OnSeen() {
  const bool is_busy = session_.busy.IsBusy();
  is_busy_.store(is_busy);
  page_.is_busy.store(is_busy ? 1 : 0, std::memory_order_relaxed);
  HoldingKernels* const holding = is_busy ? nullptr : holding_.load(std::memory_order_acquire);
  if (holding != nullptr) holding->Release();
}

std::optional<TimePoint> ExpectedWork::TakeWorkBegun() {
  const uint64_t num_begun = num_begun_.load(std::memory_order_acquire);
  if (std::exchange(num_begun_seen_, num_begun) == num_begun) return std::nullopt;
  return TimePoint(std::chrono::nanoseconds(begun_at_ns_.load(std::memory_order_relaxed)));
}

void ExpectedWork::Read(TimePoint now) {
  const uint32_t bell = page_.bell.load(std::memory_order_acquire);
  if (std::exchange(bell_, bell) == bell) return;
  const uint32_t num_declared = page_.num_declared.load(std::memory_order_relaxed);
  const uint64_t num_new = num_declared - std::exchange(num_declared_, num_declared);
  session_.counters.Add("hints_declared", std::min(num_new, kMostDeclared));
  if (!session_.core.notices.AreOfUseOn(device_.load(std::memory_order_relaxed)) ||
      !session_.is_high_priority.load(std::memory_order_relaxed)) {
    return;
  }
  notice_.OnExpected(At(page_.expected_from_ns.load(std::memory_order_relaxed)),
                     At(page_.expected_until_ns.load(std::memory_order_relaxed)), now);
}

HoldingKernels* ExpectedWork::KernelsOf(int device) {
  CUcontext context = nullptr;
  if (session_.core.fault() != CUDA_SUCCESS || session_.core.devices->Context(device, &context) != CUDA_SUCCESS ||
      session_.driver.cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return nullptr;
  }
  const auto [place, is_new] = kernels_.try_emplace(device, nullptr);
  if (!is_new) return place->second.get();
  auto kernels = std::make_unique<HoldingKernels>(session_.driver);
  if (const CUresult result = kernels->Load(); result != CUDA_SUCCESS) {
    LOG_WARNING("device {}: expected work is not made ready for: {}", device, CudaErrorName(session_.driver, result));
    return nullptr;
  }
  place->second = std::move(kernels);
  return place->second.get();
}

void ExpectedWork::Hold(std::chrono::nanoseconds duration) {
  HoldingKernels* const kernels = KernelsOf(device_.load(std::memory_order_relaxed));
  if (kernels == nullptr) return;
  holding_.store(kernels, std::memory_order_release);
  kernels->Hold(duration);
  // Work that came and was done meanwhile has not seen them.
  if (num_begun_.load(std::memory_order_acquire) != num_begun_seen_ && !session_.busy.IsBusy()) kernels->Release();
}

void ExpectedWork::Count() {
  const scheduler::ArrivalNotice::Counts& now = notice_.counts();
  if (now == counted_) return;
  session_.counters.Add("hints_announced", now.announced - counted_.announced);
  session_.counters.Add("hints_hit", now.hit - counted_.hit);
  session_.counters.Add("hints_false", now.missed - counted_.missed);
  session_.counters.Add("hints_late", now.late - counted_.late);
  session_.counters.Add("hints_refused", now.refused - counted_.refused);
  counted_ = now;
}

std::optional<TimePoint> ExpectedWork::Advance(TimePoint now) {
  const std::optional<TimePoint> work_began = TakeWorkBegun();
  scheduler::ArrivalNotice::Step step;
  {
    Notices& notices = session_.core.notices;
    const std::lock_guard lock(notices.mutex);
    step = notice_.Advance(now, work_began, session_.busy.IsBusy(), notices.budget);
  }
  if (step.releases) {
    if (HoldingKernels* const holding = holding_.exchange(nullptr); holding != nullptr) holding->Release();
  }
  if (step.hold) Hold(*step.hold);
  Count();
  return step.next;
}

void ExpectedWork::Sleep(std::optional<TimePoint> next, TimePoint looked_at) {
  const bool are_of_use = session_.core.notices.AreOfUseOn(device_.load(std::memory_order_relaxed));
  page_.is_awaited.store(are_of_use ? 1 : 0, std::memory_order_seq_cst);
  const TimePoint until = next ? *next - kWatched : looked_at + kLongestSleep;
  if (until > looked_at && !is_stopping_.load()) FutexWait(page_.bell, bell_, until - looked_at);
  const TimePoint earliest = next ? std::min(*next, looked_at + kBetweenLooks) : looked_at + kBetweenLooks;
  const TimePoint now = session_.clock.Now();
  if (now < earliest && (!next || *next - now > kWatched)) std::this_thread::sleep_for(earliest - now);
  if (next && *next - session_.clock.Now() > kWatched) return;  // rung
  while (next && session_.clock.Now() < *next) CpuRelax();
}

void ExpectedWork::Run() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: by default timers are 50 us late
  SetThreadUrgent(true);
  while (!is_stopping_.load()) {
    const TimePoint now = session_.clock.Now();
    Read(now);
    Sleep(Advance(now), now);
  }
  if (HoldingKernels* const holding = holding_.exchange(nullptr); holding != nullptr) holding->Release();
  CUcontext context = nullptr;
  for (auto& [device, kernels] : kernels_) {
    if (kernels == nullptr || session_.core.devices->Context(device, &context) != CUDA_SUCCESS) continue;
    session_.driver.cuCtxSetCurrent(context);
    kernels.reset();
  }
}

}  // namespace tally::server
