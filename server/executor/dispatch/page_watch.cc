#include "server/executor/dispatch/page_watch.h"

#include <algorithm>
#include <thread>

namespace tally::server {

bool PageWatch::IsClosed(int device) {
  if (!IsHighPriorityPresent(device) || is_open()) return false;
  if (page_.IsBusy(static_cast<uint32_t>(device))) return true;
  return minds_hold_off_ && page_.OpensAt(static_cast<uint32_t>(device)) > clock_.Now();
}

void PageWatch::WaitWhileOpen(int device, std::chrono::nanoseconds timeout) {
  page_.WaitWhileIdle(static_cast<uint32_t>(device), timeout);
}

// Bounded, so that Open() is noticed.
void PageWatch::WaitWhileClosed(int device, std::chrono::nanoseconds timeout) {
  const auto limit = std::min<std::chrono::nanoseconds>(timeout, kLook);
  if (page_.IsBusy(static_cast<uint32_t>(device))) return page_.WaitWhileBusy(static_cast<uint32_t>(device), limit);
  const auto hold_off = page_.OpensAt(static_cast<uint32_t>(device)) - clock_.Now();
  if (hold_off > hold_off.zero()) std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(hold_off, limit));
}

std::optional<uint32_t> PageWatch::QuietPhase(int device) {
  // The number first: work that comes in between is then seen as running, or by a later number.
  const uint32_t phase = page_.NumTimesBusy(static_cast<uint32_t>(device));
  return page_.IsBusy(static_cast<uint32_t>(device)) ? std::nullopt : std::optional(phase);
}

}  // namespace tally::server
