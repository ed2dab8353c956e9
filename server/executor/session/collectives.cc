#include "server/executor/session/collectives.h"

#include <algorithm>

namespace tally::server {

void Collectives::NoteKernel(const void* session, std::string_view name) {
  // Mangled or not; the second as older versions have it.
  if (name.find("ncclDevKernel") == std::string_view::npos && name.find("ncclKernel") == std::string_view::npos) return;
  const std::lock_guard lock(mutex_);
  ranks_.try_emplace(session);
}

bool Collectives::MayUse(const void* session, const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto own = ranks_.find(session);
  if (own == ranks_.end()) return true;
  const bool is_anothers =
      std::ranges::any_of(ranks_, [&](const auto& rank) { return rank.first != session && rank.second.contains(key); });
  if (is_anothers) return false;
  if (own->second.size() < kMostKeys) own->second.insert(key);
  return true;
}

void Collectives::Forget(const void* session) {
  const std::lock_guard lock(mutex_);
  ranks_.erase(session);
}

}  // namespace tally::server
