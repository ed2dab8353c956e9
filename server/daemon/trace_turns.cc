#include "server/daemon/trace_turns.h"

namespace tally::server {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kAskAgain{50};

}  // namespace

Status TraceTurns::Enter(bool is_administrator, std::chrono::milliseconds limit,
                         const std::function<void()>& end_running) {
  const Status taken(StatusCode::kAlreadyExists, "a trace is being recorded already: try again when it has ended");
  std::unique_lock lock(mutex_);
  if (!is_administrator && (recording_ != Who::kNobody || num_waiting_ != 0)) return taken;
  const auto until = steady_clock::now() + limit;
  ++num_waiting_;
  while (recording_ == Who::kUser && steady_clock::now() < until) {
    is_cut_short_ = true;
    end_running();
    left_.wait_for(lock, kAskAgain);
  }
  --num_waiting_;
  if (recording_ != Who::kNobody) return taken;
  recording_ = is_administrator ? Who::kAdministrator : Who::kUser;
  is_cut_short_ = false;
  return OkStatus();
}

bool TraceTurns::Leave() {
  const std::lock_guard lock(mutex_);
  recording_ = Who::kNobody;
  left_.notify_all();
  return is_cut_short_;
}

}  // namespace tally::server
