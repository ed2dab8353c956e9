#include "sim-driver/api/printf_buffer.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

namespace tally::sim_driver {
namespace {

void WriteOut(std::string_view text) {
  // Keeps its place among what the program itself printed.
  fflush(stdout);
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void PrintfBuffer::Append(std::string_view text) {
  const std::lock_guard lock(mutex_);
  waiting_ += text;
  if (waiting_.size() < limit_bytes_) return;
  WriteOut(waiting_);
  waiting_.clear();
}

void PrintfBuffer::Flush() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return;
  WriteOut(waiting_);
  waiting_ = std::string();
}

void PrintfBuffer::SetLimit(size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  limit_bytes_ = num_bytes;
}

}  // namespace tally::sim_driver
