#include "server/executor/session/device_output.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/executor/session/pending_output.h"

namespace tally::server {
namespace {

constexpr const char* kRefusal =
    "[tally: device printf is refused while several programs of one domain may print: give each a domain of its own, "
    "tally-run --domain NAME]\n";
// A session that leaves waits for its work, which may never end.
constexpr std::chrono::seconds kLongestWait{1};

}  // namespace

void DeviceOutput::Join(PendingOutput& session, std::function<bool()> has_left) {
  if (capture_ == nullptr) return;
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, kLongestWait,
                 [&] { return std::ranges::none_of(sessions_, [](const auto& other) { return other.second(); }); });
  CollectLocked();  // belongs to whoever was alone until now
  sessions_.emplace(&session, std::move(has_left));
}

void DeviceOutput::Leave(PendingOutput& session) {
  if (capture_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (!sessions_.contains(&session)) return;
  CollectLocked();
  sessions_.erase(&session);
  left_.notify_all();
}

void DeviceOutput::Collect() {
  if (capture_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  CollectLocked();
}

void DeviceOutput::CollectLocked() {
  std::string text = capture_->Take();
  if (text.empty()) return;
  if (sessions_.size() == 1) return sessions_.begin()->first->Append(std::move(text));
  for (const auto& [session, has_left] : sessions_) session->Refuse(kRefusal);
}

}  // namespace tally::server
