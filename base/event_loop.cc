#include "base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>

namespace tally {

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.valid()) return std::unexpected(StatusFromErrno(errno, "epoll_create"));
  UniqueFd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.valid()) return std::unexpected(StatusFromErrno(errno, "eventfd"));
  const int wake = wake_fd.get();
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll_fd), std::move(wake_fd)));
  const Status watched = loop->Watch(wake, [wake] {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake, &count, sizeof(count));
  });
  if (!watched.ok()) return std::unexpected(watched);
  return loop;
}

Status EventLoop::Watch(int fd, std::function<void()> on_ready) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return StatusFromErrno(errno, "epoll_ctl");
  watches_[fd] = std::make_shared<std::function<void()>>(std::move(on_ready));
  return OkStatus();
}

void EventLoop::Unwatch(int fd) {
  ::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(fd);
}

void EventLoop::PostDelayed(std::chrono::milliseconds delay, std::function<void()> task) {
  delayed_.emplace(std::chrono::steady_clock::now() + delay, std::move(task));
}

void EventLoop::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof(one));
}

void EventLoop::Quit() {
  Post([this] { quit_ = true; });
}

int EventLoop::NextTimeoutMs() const {
  if (delayed_.empty()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(delayed_.begin()->first - std::chrono::steady_clock::now());
  return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

void EventLoop::RunDue() {
  const auto now = std::chrono::steady_clock::now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    auto task = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    task();
  }
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

void EventLoop::Run() {
  while (!quit_) {
    epoll_event events[32];
    const int count = ::epoll_wait(epoll_fd_.get(), events, 32, NextTimeoutMs());
    for (int i = 0; i < count; ++i) {
      // A callback may have unwatched a later descriptor of this batch: look each up again.
      const auto found = watches_.find(events[i].data.fd);
      if (found == watches_.end()) continue;
      const auto callback = found->second;
      (*callback)();
    }
    RunPosted();
    RunDue();
  }
}

}  // namespace tally
