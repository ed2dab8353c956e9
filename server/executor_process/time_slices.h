// How long the GPU runs this process's contexts at a time when another process wants it, too.
//
// The GPU switches contexts by itself, at any instruction, whatever a kernel is made of; but only once the time slice
// of the context that runs is over (2 ms by default). A best-effort executor with the shortest slice and a
// high-priority one with a long slice make that switch happen as soon as high-priority work arrives.
//
// The slice belongs to a context's channel groups. The resource manager in the kernel takes it from the process that
// owns them, without privilege; libcuda sets its default itself, as the last step of creating a group. So this
// stands between libcuda and ioctl(2) (observed_ioctl.cc), writes the wanted slice into that call, and remembers the
// group, so that the slice can be changed and read back later. Numbers and layouts: NVIDIA's open kernel modules
// (MIT), classes/ctrl headers of class A06C, NVOS54_PARAMETERS, escape 0x2A.
//
// A driver that refuses gets its own call instead: nothing else changes. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tally::server {

class TimeSlices {
 public:
  // As ioctl(2): -1 and errno on failure.
  using Ioctl = int (*)(int fd, unsigned long request, void* argument);

  explicit TimeSlices(Ioctl kernel) : kernel_(kernel) {}
  // The one that this process's ioctl goes through; made on first use, never destroyed.
  static TimeSlices& OfThisProcess();

  // In place of every ioctl of the process. Anything but the setting of a slice goes through untouched.
  int Forward(int fd, unsigned long request, void* argument);

  // Of all channel groups there are and will be. Zero: what the driver gave them. Takes about 0.3 ms per group.
  void Want(std::chrono::microseconds slice);

  struct Report {
    size_t num_groups = 0;
    size_t num_refused = 0;  // which have another slice than the wanted one
    std::chrono::microseconds shortest{0};
    std::chrono::microseconds longest{0};
    bool operator==(const Report&) const = default;
  };
  // As read back from the driver. Sets what has not the wanted slice yet, forgets groups that are gone.
  Report Check();

 private:
  struct Group {
    int fd = -1;
    uint32_t client = 0;
    uint32_t object = 0;
    uint64_t own_us = 0;  // what libcuda gave it; 0: it has not said
  };

  Group& Remember(int fd, uint32_t client, uint32_t object);
  int ForwardSet(int fd, unsigned long request, void* argument, uint64_t own_us);
  bool Set(const Group& group, uint64_t slice_us);
  bool Get(const Group& group, uint64_t* slice_us);
  // Zero: nothing to be set.
  uint64_t WantedFor(const Group& group) const { return wanted_us_ != 0 ? wanted_us_ : group.own_us; }

  const Ioctl kernel_;
  std::mutex mutex_;
  uint64_t wanted_us_ = 0;  // guarded by mutex_, as below
  std::vector<Group> groups_;
};

}  // namespace tally::server
