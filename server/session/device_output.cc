#include "server/session/device_output.h"

#include "server/session/pending_output.h"

namespace tally::server {
namespace {

constexpr const char* kRefusal =
    "[tally: device printf is refused while several programs of one domain may print: give each a domain of its own, "
    "tally-run --domain NAME]\n";

}  // namespace

void DeviceOutput::Join(PendingOutput& session) {
  if (capture_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  CollectLocked();  // belongs to whoever was alone until now
  sessions_.insert(&session);
}

void DeviceOutput::Leave(PendingOutput& session) {
  if (capture_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (!sessions_.contains(&session)) return;
  CollectLocked();
  sessions_.erase(&session);
}

void DeviceOutput::Collect() {
  if (capture_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  CollectLocked();
}

void DeviceOutput::CollectLocked() {
  std::string text = capture_->Take();
  if (text.empty()) return;
  if (sessions_.size() == 1) return (*sessions_.begin())->Append(std::move(text));
  for (PendingOutput* session : sessions_) session->Refuse(kRefusal);
}

}  // namespace tally::server
