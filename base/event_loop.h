// A single-threaded epoll loop: descriptors that become readable, and tasks posted from other threads.
//
// Run() and every callback are on one thread, the owner. Only Post() and Quit() may be called from others.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally {

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> Create();

  // Calls `on_ready` whenever `fd` is readable or hung up, until Unwatch. The caller keeps owning `fd`.
  Status Watch(int fd, std::function<void()> on_ready);
  // Safe inside callbacks, also for the descriptor being served.
  void Unwatch(int fd);
  // Calls `task` once, not before `delay`.
  void PostDelayed(std::chrono::milliseconds delay, std::function<void()> task);
  void Post(std::function<void()> task);
  // Serves until Quit.
  void Run();
  void Quit();

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  EventLoop(UniqueFd epoll_fd, UniqueFd wake_fd) : epoll_fd_(std::move(epoll_fd)), wake_fd_(std::move(wake_fd)) {}
  int NextTimeoutMs() const;
  void RunDue();
  void RunPosted();

  UniqueFd epoll_fd_;
  UniqueFd wake_fd_;  // eventfd
  std::map<int, std::shared_ptr<std::function<void()>>> watches_;
  std::multimap<Deadline, std::function<void()>> delayed_;
  bool quit_ = false;

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
};

}  // namespace tally
