// What clients make the executor hold beside device memory: counted per session, and per user for all its sessions.
//
// Each kind has a limit of each. What does not fit is refused where it is asked for; nothing is taken away later.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace tally::server {

enum class Held : size_t {
  kChannels,     // number: each is a thread and shm::kChannelRegionBytes of memory
  kPinnedBytes,  // allocated or registered host memory
  kImageBytes,   // device code, whole or on its way
  kOutputBytes,  // text of device printf that the client has not fetched
};
inline constexpr size_t kNumHeld = 4;

using HeldLimits = std::array<uint64_t, kNumHeld>;  // by Held

// One count of each kind, of a session or a user.
class HeldCounts {
 public:
  // False, and nothing changes: it would be more than `limit`.
  bool Take(Held kind, uint64_t amount, uint64_t limit);
  void Return(Held kind, uint64_t amount);
  uint64_t count(Held kind) const { return counts_[static_cast<size_t>(kind)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kNumHeld> counts_{};
};

// The users of one executor.
class HeldByUsers {
 public:
  std::shared_ptr<HeldCounts> Of(uid_t uid);

 private:
  std::mutex mutex_;
  std::map<uid_t, std::weak_ptr<HeldCounts>> users_;
};

// Of one session.
class HeldAccount {
 public:
  HeldAccount(const HeldLimits& session_limits, const HeldLimits& user_limits, std::shared_ptr<HeldCounts> user)
      : session_limits_(session_limits), user_limits_(user_limits), user_(std::move(user)) {}
  ~HeldAccount() { ReturnAll(); }
  HeldAccount(const HeldAccount&) = delete;
  HeldAccount& operator=(const HeldAccount&) = delete;

  // False, and nothing changes: it would be more than the session or its user may hold.
  bool Take(Held kind, uint64_t amount);
  void Return(Held kind, uint64_t amount);
  // The session has ended: nothing is held any more, or will be.
  void ReturnAll();

 private:
  const HeldLimits session_limits_;
  const HeldLimits user_limits_;
  HeldCounts session_;
  const std::shared_ptr<HeldCounts> user_;
};

}  // namespace tally::server
