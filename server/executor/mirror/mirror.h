// Mirror: home's end of a mirror process (proto/shm/mirror_abi.h says what one is and how the two speak).
//
//   auto mirror = Mirror::Start({.device = 1, ...});
//   const auto position = (*mirror)->Post(command, bytes);   // returns at once while the page has room
//   (*mirror)->Wait(*position);                              // or IsDone, now and then
//
// Errors. A command that fails alone: Wait says CUDA's error, the mirror goes on. A mirror that is broken (its context
// met a fault, its process is gone, it says what makes no sense): error() says why from then on, nothing waits for it
// any more and Post is refused. CUDA_ERROR_DEVICE_UNAVAILABLE stands for a process that is gone.
//
// Not thread-safe. The process ends with this object, and with this process.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_region.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/shm/mirror_abi.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {

struct MirrorOptions {
  std::string program = "/proc/self/exe";  // started with kMirrorFlag, see mirror_process.h
  DriverLibraries libraries;               // as home's
  int device = 0;                          // ordinal
  std::chrono::milliseconds longest_start{30'000};
};

class Mirror {
 public:
  // Starts the process and waits until it has its context.
  static Result<std::unique_ptr<Mirror>> Start(const MirrorOptions& options);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Waits for room if the page is full of unfinished commands. `fd`: the parcel that the command needs; it stays the
  // caller's. The command's position, or the error of a broken mirror.
  std::expected<uint64_t, CUresult> Post(const shm::MirrorCommand& command, std::span<const std::byte> bytes = {},
                                         int fd = -1);
  uint64_t next_position() const { return next_; }
  // Also true, for all positions, once the mirror is broken.
  bool IsDone(uint64_t position);
  // Until it is done or the mirror is broken: what became of it.
  CUresult Wait(uint64_t position);
  // Posts and waits.
  CUresult Do(const shm::MirrorCommand& command, std::span<const std::byte> bytes = {}, int fd = -1);
  // What a kMapOwn that has succeeded sent. kUnavailable from a broken mirror.
  Result<UniqueFd> TakeParcel(uint64_t position);

  // 0 while it is well. Stays.
  CUresult error();
  uint64_t fetched_bytes() const { return page().header.fetched_bytes.load(std::memory_order_relaxed); }
  uint64_t written_back_bytes() const { return page().header.written_back_bytes.load(std::memory_order_relaxed); }
  pid_t pid() const { return pid_; }
  // Ends the process now, whatever its GPU is at; broken from then on.
  void End();
  // As if this process had ended: the process is left to itself, and to be waited for.
  void CloseForTesting() {
    socket_.Reset();
    pid_ = 0;
  }

 private:
  Mirror(MappedRegion region, UniqueFd socket) : region_(std::move(region)), socket_(std::move(socket)) {}
  shm::MirrorPage& page() const { return *reinterpret_cast<shm::MirrorPage*>(region_.data()); }
  Status AwaitReady(std::chrono::milliseconds limit);

  MappedRegion region_;
  UniqueFd socket_;
  pid_t pid_ = 0;
  uint64_t next_ = 0;  // position
  CUresult error_ = CUDA_SUCCESS;
  std::chrono::steady_clock::time_point last_look_;  // whether the process is there
};

}  // namespace tally::server
