// The GPU channel groups of this process's contexts: how long the GPU runs them at a time, and whether it runs them at
// all.
//
// The GPU switches contexts by itself, at any instruction, whatever a kernel is made of; but only once the *time slice*
// of the context that runs is over (2 ms by default). A best-effort executor with the shortest slice and a
// high-priority one with a long slice make that switch happen as soon as high-priority work arrives. It switches back
// whenever the high-priority context has nothing to run, be it for microseconds. A group that is *descheduled* is not
// on the GPU's list, so nobody switches to it; what it was running stands still, in the middle of any kernel, and goes
// on later.
//
// Slices belong to GPU channel groups, descheduling is done to all GPU channels of a group. The resource manager in the
// kernel takes both from the process that owns them, without privilege; libcuda itself sets a group's slice as the last
// step of creating it. So this stands between libcuda and ioctl(2) (observed_ioctl.cc), writes the wanted slice into
// that call, and remembers what was made, so that it can be changed later. Numbers and layouts: NVIDIA's open kernel
// modules (MIT), class and ctrl headers of classes 2080 and A06C, NVOS00, NVOS54 and NVOS64_PARAMETERS, escapes 0x29 to
// 0x2B.
//
// A driver that refuses gets its own call instead: nothing else changes. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tally::server {

class GpuChannelGroups {
 public:
  // As ioctl(2): -1 and errno on failure.
  using Ioctl = int (*)(int fd, unsigned long request, void* argument);

  explicit GpuChannelGroups(Ioctl kernel) : kernel_(kernel) {}
  // The one that this process's ioctl goes through (observed_ioctl.cc); made on first use, never destroyed.
  static GpuChannelGroups& OfThisProcess();

  // In place of every ioctl of the process. Anything but what makes a group, or sets its slice, goes through untouched.
  int Forward(int fd, unsigned long request, void* argument);

  // Of all GPU channel groups there are and will be. Zero: what the driver gave them. Takes about 0.3 ms for each group
  // that had another.
  void WantTimeSlice(std::chrono::microseconds slice) { Want(slice, {}); }
  // By device. Groups of which is not known on which device they are get the shortest of those that are not zero.
  void WantTimeSlices(std::vector<std::chrono::microseconds> slices);

  struct TimeSlices {
    size_t num_groups = 0;
    size_t num_refused = 0;  // which have another slice than the wanted one
    size_t num_wanted = 0;   // which are to have another than the driver's own
    std::chrono::microseconds shortest{0};
    std::chrono::microseconds longest{0};
    bool operator==(const TimeSlices&) const = default;
  };
  // As read back from the driver. Sets what has not the wanted slice yet, forgets groups that are gone.
  TimeSlices CheckTimeSlices();

  // Whether groups of a device are to have other slices than the driver's own, and all had, as of the last check.
  bool IsTimeSliceSet(int device);

  // Whose groups are made from now on: an ordinal, or none (-1). Who never says has one device, with the ordinal 0.
  // Those made while it is none are of the device on which others of the same driver's object are.
  void SetDevice(int device);

  // Deschedules the groups of a device that run kernels, as many as there are now, or lets them go on. Those that copy
  // are left alone. Returns how many are descheduled then: after letting them go on none, or call again. One that the
  // driver does not deschedule is not asked again. Descheduling takes about 1 ms each, going on 0.3.
  size_t Deschedule(int device, bool is_descheduled);
  // Takes the groups of a device that run kernels off the GPU once, wherever they are in them; they come back by
  // themselves. How many were: descheduled ones are not. About 0.5 ms each.
  size_t Preempt(int device);
  enum class Descheduling : uint8_t { kNoGroups, kPossible, kRefused };
  // Whether such groups can all be descheduled, as far as is known.
  Descheduling DeschedulingOn(int device);

 private:
  struct Group {
    int fd = -1;
    uint32_t client = 0;
    uint32_t object = 0;
    uint64_t own_us = 0;  // what libcuda gave it; 0: it has not said
    bool was_seen_made = false;
    bool is_compute = false;         // of the engine that runs kernels
    int device = 0;                  // ordinal, or none
    uint32_t parent = 0;             // the object of its device
    bool has_wanted_slice = false;   // as of the last check
    uint32_t subdevice = 0;          // the object that controls its GPU channels
    std::vector<uint32_t> channels;  // objects
    bool is_descheduled = false;
    bool is_off = false;         // of a descheduled one: the GPU has put all of it away
    bool may_deschedule = true;  // the driver has not refused
  };
  struct Subdevice {
    uint32_t client;
    uint32_t device;
    uint32_t object;
  };

  // What libcuda has just made, or freed.
  void NoteAllocation(int fd, const void* argument);
  void NoteFree(const void* argument);
  Group* Find(uint32_t client, uint32_t object);
  Group& Remember(int fd, uint32_t client, uint32_t object);
  int ForwardSet(int fd, unsigned long request, void* argument, uint64_t own_us);
  bool Control(int fd, uint32_t client, uint32_t object, uint32_t command, void* parameters, uint32_t parameter_bytes);
  bool Set(const Group& group, uint64_t slice_us);
  bool Get(const Group& group, uint64_t* slice_us);
  void DescheduleGroup(Group& group, bool is_descheduled);
  bool DisableChannels(const Group& group, bool is_disabled);
  bool TakeOff(const Group& group);
  void HaveListReadAgain(const Group& group);
  void Want(std::chrono::microseconds slice, std::vector<std::chrono::microseconds> by_device);
  int DeviceOf(uint32_t client, uint32_t parent) const;
  // Zero: the driver's own.
  uint64_t WantedOn(int device) const;
  // Zero: nothing to be set.
  uint64_t WantedFor(const Group& group) const {
    const uint64_t wanted = WantedOn(group.device);
    return wanted != 0 ? wanted : group.own_us;
  }

  const Ioctl kernel_;
  std::mutex mutex_;
  uint64_t wanted_us_ = 0;                         // guarded by mutex_, as below; on devices that are not in the list
  std::vector<std::chrono::microseconds> wanted_;  // by device
  std::vector<Group> groups_;
  std::vector<Subdevice> subdevices_;
  int device_ = 0;
};

}  // namespace tally::server
