// Text that a session's kernels printed and its client has not fetched. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "server/executor/session/held_account.h"

namespace tally::server {

class PendingOutput {
 public:
  explicit PendingOutput(HeldAccount& account) : account_(account) {}

  // What the session may not hold any more is dropped, and a sentence at the end says so.
  void Append(std::string text);
  // Text was dropped, for this reason, which the client gets instead; once, until it has fetched it.
  void Refuse(const std::string& sentence);
  // At most `max_bytes` of it.
  std::string Take(size_t max_bytes);
  bool empty() const { return is_empty_.load(std::memory_order_acquire); }

 private:
  HeldAccount& account_;
  std::mutex mutex_;
  std::string text_;
  std::string refusal_;  // behind the text
  std::atomic<bool> is_empty_{true};
};

}  // namespace tally::server
