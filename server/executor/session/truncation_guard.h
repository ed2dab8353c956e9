// Keeps a client from killing the executor by truncating a file that both have mapped.
//
// Memory that a program registers may be a file in /dev/shm, which cannot be sealed. If it becomes shorter, whoever
// touches the lost pages gets SIGBUS. In covered ranges a handler puts a page of zeros there instead, and the access
// goes on, in whatever thread; the session whose memory it was is then ended (channel.cc). SIGBUS anywhere else ends
// the process as before, and so does one in a thread that blocks it: executor_process/deliverable_faults.cc.
//
// Process-wide, because signal handlers are. Thread-safe; the handler takes no lock.
#pragma once

#include <cstdint>

namespace tally::server {

class TruncationGuard {
 public:
  // Ranges at a time, of all sessions.
  static constexpr int kMaxRanges = 16384;

  // Before the range is touched for the first time. False: too many ranges.
  static bool Cover(uint64_t address, uint64_t size_bytes);
  // Before it is unmapped. For an address that is not covered: nothing.
  static void Uncover(uint64_t address);
  // How often something was missing, in any range. Cheap.
  static uint64_t NumTruncations();
  // Whether something was missing in the range that begins there.
  static bool WasTruncated(uint64_t address);
};

}  // namespace tally::server
