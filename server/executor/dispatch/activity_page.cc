#include "server/executor/dispatch/activity_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/check.h"
#include "base/futex.h"

namespace tally::server {
namespace {

// How long a waiter believes that a busy executor is alive before it looks.
constexpr auto kSuspicion = std::chrono::milliseconds(100);

bool IsDead(uint32_t pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

}  // namespace

Result<std::unique_ptr<ActivityPage>> ActivityPage::Open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return std::unexpected(StatusFromErrno(errno, fmt::format("open activity page '{}'", path)));
  // One process at a time initialises; a page that another version left behind is refused, not reinterpreted.
  if (::flock(fd.get(), LOCK_EX) != 0) return std::unexpected(StatusFromErrno(errno, "lock activity page"));
  if (::ftruncate(fd.get(), sizeof(shm::ActivityPage)) != 0) {
    return std::unexpected(StatusFromErrno(errno, "size activity page"));
  }
  auto region = MappedRegion::Map(fd.get(), sizeof(shm::ActivityPage));
  if (!region) return std::unexpected(region.error());
  auto& page = *reinterpret_cast<shm::ActivityPage*>(region->data());
  if (page.magic.load() == 0) {
    page.version = shm::kActivityVersion;
    page.magic.store(shm::kActivityMagic);
  }
  ::flock(fd.get(), LOCK_UN);  // closing is not enough: the mapping keeps the open file, and with it the lock, alive
  if (page.magic.load() != shm::kActivityMagic || page.version != shm::kActivityVersion) {
    return Error(StatusCode::kFailedPrecondition,
                 fmt::format("'{}' is not an activity page of this version; remove it once no executor runs", path));
  }
  return std::unique_ptr<ActivityPage>(new ActivityPage(std::move(*region)));
}

ActivityPage::~ActivityPage() {
  if (slot_ != nullptr) ReleaseSlot(*slot_.load());
}

Status ActivityPage::ClaimSlot() {
  CHECK(slot_ == nullptr);
  ForgetDeadOwners();
  for (auto& slot : page().slot) {
    uint32_t free = 0;
    if (!slot.owner_pid.compare_exchange_strong(free, static_cast<uint32_t>(::getpid()))) continue;
    slot_ = &slot;
    return OkStatus();
  }
  return Status(StatusCode::kResourceExhausted,
                fmt::format("more than {} high-priority executors at one time", shm::kActivitySlots));
}

void ActivityPage::SetBusy(uint32_t device) {
  const uint64_t bit = uint64_t{1} << device;
  if ((slot_.load()->busy.load(std::memory_order_relaxed) & bit) != 0) return;
  if ((slot_.load()->present.fetch_or(bit) & bit) == 0) page().device[device].num_present.fetch_add(1);
  if ((slot_.load()->busy.fetch_or(bit) & bit) != 0) return;
  auto& activity = page().device[device];
  if (activity.num_busy.load() == 0) activity.busy_since_ns.store(MonotonicNs(), std::memory_order_relaxed);
  if (activity.num_busy.fetch_add(1) != 0) return;
  activity.busy_bell.fetch_add(1);
  if (activity.num_awaiting_busy.load() != 0) FutexWake(activity.busy_bell, INT_MAX);
}

void ActivityPage::SetIdle(uint32_t device, TimePoint opens_at) {
  const uint64_t bit = uint64_t{1} << device;
  page().device[device].opens_at_ns.store(static_cast<uint64_t>(opens_at.time_since_epoch().count()));
  if ((slot_.load()->busy.fetch_and(~bit) & bit) != 0) LeaveBusy(device);
}

void ActivityPage::LeaveBusy(uint32_t device) {
  auto& activity = page().device[device];
  if (activity.num_busy.fetch_sub(1) != 1) return;
  activity.bell.fetch_add(1);
  if (activity.num_waiting.load() != 0) FutexWake(activity.bell, INT_MAX);
}

bool ActivityPage::HasWorkedOn(uint32_t device) const {
  const shm::ActivitySlot* const slot = slot_.load();
  return slot != nullptr && (slot->present.load(std::memory_order_relaxed) >> device & 1) != 0;
}

bool ActivityPage::HighPriorityPresent(uint32_t device) const {
  return page().device[device].num_present.load(std::memory_order_relaxed) != 0;
}

bool ActivityPage::IsBusy(uint32_t device) const { return page().device[device].num_busy.load() != 0; }

TimePoint ActivityPage::BusySince(uint32_t device) const {
  return TimePoint(std::chrono::nanoseconds(page().device[device].busy_since_ns.load(std::memory_order_relaxed)));
}

TimePoint ActivityPage::OpensAt(uint32_t device) const {
  return TimePoint(std::chrono::nanoseconds(page().device[device].opens_at_ns.load(std::memory_order_relaxed)));
}

void ActivityPage::WaitWhileBusy(uint32_t device, std::chrono::nanoseconds timeout) {
  auto& activity = page().device[device];
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  activity.num_waiting.fetch_add(1);
  for (;;) {
    const uint32_t seen = activity.bell.load();
    if (activity.num_busy.load() == 0) break;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    if (!FutexWait(activity.bell, seen, std::min<std::chrono::nanoseconds>(left, kSuspicion))) ForgetDeadOwners();
  }
  activity.num_waiting.fetch_sub(1);
}

void ActivityPage::WaitWhileIdle(uint32_t device, std::chrono::nanoseconds timeout) {
  auto& activity = page().device[device];
  activity.num_awaiting_busy.fetch_add(1);
  const uint32_t seen = activity.busy_bell.load();
  if (activity.num_busy.load() == 0) FutexWait(activity.busy_bell, seen, timeout);
  activity.num_awaiting_busy.fetch_sub(1);
}

uint32_t ActivityPage::NumTimesBusy(uint32_t device) const {
  return page().device[device].busy_bell.load(std::memory_order_relaxed);
}

void ActivityPage::ForgetDeadOwners() {
  for (auto& slot : page().slot) {
    const uint32_t pid = slot.owner_pid.load();
    if (pid != 0 && &slot != slot_ && IsDead(pid)) ReleaseSlot(slot);
  }
}

void ActivityPage::ReleaseSlot(shm::ActivitySlot& slot) {
  const uint64_t busy = slot.busy.exchange(0);
  const uint64_t present = slot.present.exchange(0);
  for (uint32_t device = 0; device < shm::kActivityDevices; ++device) {
    if ((busy >> device & 1) != 0) LeaveBusy(device);
    if ((present >> device & 1) != 0) page().device[device].num_present.fetch_sub(1);
  }
  slot.owner_pid.store(0);
}

}  // namespace tally::server
