// Device printf: the driver writes it to this process's stdout when something synchronises; the client wants it on its
// own. Makes descriptor 1 a pipe and collects what arrives.
//
// At most one per process. Thread-safe. A reader thread keeps the pipe from filling up, so that a driver that prints a
// lot never blocks; it sleeps while nothing is printed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally::server {

class PrintfCapture {
 public:
  static Result<std::unique_ptr<PrintfCapture>> Create();
  // Gives descriptor 1 back.
  ~PrintfCapture();

  // Flushes C's stdout and returns everything printed since the last call, by whomever: the caller is the session whose
  // synchronisation made the driver print. At most kMaxBytes; what is more is dropped with a note.
  std::string Take();

 private:
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  PrintfCapture() = default;
  void DrainLocked();
  void ReadUntilStopped();

  UniqueFd saved_stdout_;
  UniqueFd read_end_;  // not blocking
  UniqueFd stop_;      // eventfd
  std::mutex mutex_;
  std::string text_;
  bool dropped_ = false;
  std::thread reader_;
};

}  // namespace tally::server
