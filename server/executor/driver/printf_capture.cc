#include "server/executor/driver/printf_capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/thread.h"

namespace tally::server {

Result<std::unique_ptr<PrintfCapture>> PrintfCapture::Create() {
  std::unique_ptr<PrintfCapture> capture(new PrintfCapture);
  std::fflush(stdout);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(StatusFromErrno(errno, "pipe for device printf"));
  capture->read_end_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);  // best effort: fewer wake-ups
  capture->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  capture->saved_stdout_ = UniqueFd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!capture->stop_.valid()) return std::unexpected(StatusFromErrno(errno, "eventfd for device printf"));
  auto reader = StartThread("printf", [raw = capture.get()] { raw->ReadUntilStopped(); });
  if (!reader) return std::unexpected(reader.error());
  if (::dup2(write_end.get(), STDOUT_FILENO) < 0) {
    const Status failure = StatusFromErrno(errno, "redirect stdout");
    ::eventfd_write(capture->stop_.get(), 1);
    reader->join();
    return std::unexpected(failure);
  }
  capture->reader_ = std::move(*reader);
  return capture;
}

PrintfCapture::~PrintfCapture() {
  if (!reader_.joinable()) return;
  std::fflush(stdout);
  if (saved_stdout_.valid()) {
    ::dup2(saved_stdout_.get(), STDOUT_FILENO);
  } else {
    ::close(STDOUT_FILENO);
  }
  ::eventfd_write(stop_.get(), 1);
  reader_.join();
}

void PrintfCapture::DrainLocked() {
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t count = ::read(read_end_.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    if (text_.size() + static_cast<size_t>(count) > kMaxBytes) {
      dropped_ = true;
      continue;
    }
    text_.append(piece.data(), static_cast<size_t>(count));
  }
}

void PrintfCapture::ReadUntilStopped() {
  for (;;) {
    std::array<pollfd, 2> ready = {pollfd{read_end_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    const std::lock_guard lock(mutex_);
    DrainLocked();
    if ((ready[0].revents & POLLHUP) != 0) return;
  }
}

std::string PrintfCapture::Take() {
  std::fflush(stdout);
  const std::lock_guard lock(mutex_);
  DrainLocked();
  std::string result;
  result.swap(text_);
  if (dropped_) result += "[tally: more device output was dropped]\n";
  dropped_ = false;
  return result;
}

}  // namespace tally::server
