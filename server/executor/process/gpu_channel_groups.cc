#include "server/executor/process/gpu_channel_groups.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tally::server {
namespace {

// NVOS54_PARAMETERS: a control call to an object of the resource manager.
struct RmControl {
  uint32_t client;
  uint32_t object;
  uint32_t command;
  uint32_t flags;
  uint64_t parameters;  // address of them
  uint32_t parameter_bytes;
  uint32_t status;  // out; 0 is success
};
static_assert(sizeof(RmControl) == 32);

// NVOS64_PARAMETERS: a new object of the resource manager.
struct RmAllocation {
  uint32_t client;
  uint32_t parent;
  uint32_t object;
  uint32_t object_class;
  uint64_t parameters;  // address of them
  uint64_t rights;
  uint32_t parameter_bytes;
  uint32_t flags;
  uint32_t status;  // out
  uint32_t unused;
};
static_assert(sizeof(RmAllocation) == 48);

// NVOS00_PARAMETERS: the end of an object, and of all below it.
struct RmFree {
  uint32_t client;
  uint32_t parent;
  uint32_t object;
  uint32_t status;  // out
};
static_assert(sizeof(RmFree) == 16);

// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, as far as it matters here.
struct ChannelGroupParameters {
  uint32_t error_object;
  uint32_t ecc_error_object;
  uint32_t address_space;
  uint32_t engine;
};

// NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS.
constexpr size_t kMostChannels = 64;
struct DisabledChannels {
  uint8_t is_disabled;
  uint32_t num_channels;
  uint8_t only_scheduling;  // whether they may run until the GPU turns to another context by itself
  uint8_t rewinds;
  uint64_t event;
  uint32_t clients[kMostChannels];
  uint32_t channels[kMostChannels];
};
static_assert(sizeof(DisabledChannels) == 536);

// NVA06C_CTRL_PREEMPT_PARAMS.
struct Preemption {
  uint8_t waits;
  uint8_t has_timeout;
  uint32_t timeout_us;
};
static_assert(sizeof(Preemption) == 8);
constexpr uint32_t kLongestPreemptionUs = 10'000;

constexpr unsigned long kFreeRequest = _IOWR('F', 0x29, RmFree);
constexpr unsigned long kControlRequest = _IOWR('F', 0x2A, RmControl);
constexpr unsigned long kAllocationRequest = _IOWR('F', 0x2B, RmAllocation);
constexpr uint32_t kSubdeviceClass = 0x2080;
constexpr uint32_t kChannelGroupClass = 0xA06C;
// GPU channels have a class for each generation: C36F of Volta, C86F of Hopper, C96F and CA6F of Blackwell.
constexpr bool IsChannelClass(uint32_t object_class) { return (object_class & 0xF0FF) == 0xC06F; }
// NV2080_ENGINE_TYPE_GR0 and the seven behind it: what runs kernels.
constexpr uint32_t kFirstComputeEngine = 1;
constexpr uint32_t kLastComputeEngine = 8;
// Controls. The parameter of those for slices is one u64, microseconds.
constexpr uint32_t kDisableChannels = 0x2080110B;
constexpr uint32_t kGpfifoSchedule = 0xA06C0101;
constexpr uint32_t kSetTimeSlice = 0xA06C0103;
constexpr uint32_t kGetTimeSlice = 0xA06C0104;
constexpr uint32_t kPreempt = 0xA06C0105;

}  // namespace

int GpuChannelGroups::Forward(int fd, unsigned long request, void* argument) {
  const auto* control = request == kControlRequest ? static_cast<const RmControl*>(argument) : nullptr;
  if (control != nullptr && control->command == kSetTimeSlice && control->parameter_bytes == sizeof(uint64_t) &&
      control->parameters != 0) {
    return ForwardSet(fd, request, argument, *reinterpret_cast<const uint64_t*>(control->parameters));
  }
  const int result = kernel_(fd, request, argument);
  if (result != 0 || argument == nullptr) return result;
  if (control != nullptr && control->command == kGpfifoSchedule && control->status == 0) {
    const std::lock_guard lock(mutex_);
    Remember(fd, control->client, control->object);
  }
  if (request == kAllocationRequest) NoteAllocation(fd, argument);
  if (request == kFreeRequest) NoteFree(argument);
  return result;
}

void GpuChannelGroups::NoteAllocation(int fd, const void* argument) {
  const auto& made = *static_cast<const RmAllocation*>(argument);
  if (made.status != 0) return;
  const std::lock_guard lock(mutex_);
  if (made.object_class == kSubdeviceClass) {
    subdevices_.push_back({made.client, made.parent, made.object});
  } else if (IsChannelClass(made.object_class)) {
    if (Group* group = Find(made.client, made.parent)) group->channels.push_back(made.object);
  } else if (made.object_class == kChannelGroupClass && made.parameters != 0) {
    const uint32_t engine = reinterpret_cast<const ChannelGroupParameters*>(made.parameters)->engine;
    if (Group* old = Find(made.client, made.object)) *old = {};  // handles are used again
    Group& group = Remember(fd, made.client, made.object);
    group.was_seen_made = true;
    group.device = device_ >= 0 ? device_ : DeviceOf(made.client, made.parent);
    group.parent = made.parent;
    group.is_compute = engine >= kFirstComputeEngine && engine <= kLastComputeEngine;
    for (const Subdevice& subdevice : subdevices_) {
      if (subdevice.client == made.client && subdevice.device == made.parent) group.subdevice = subdevice.object;
    }
  }
}

void GpuChannelGroups::NoteFree(const void* argument) {
  const auto& freed = *static_cast<const RmFree*>(argument);
  if (freed.status != 0) return;
  const std::lock_guard lock(mutex_);
  const auto is_freed = [&](uint32_t client, uint32_t object) {
    return client == freed.client && (object == freed.object || freed.object == freed.client);
  };
  std::erase_if(subdevices_, [&](const Subdevice& subdevice) {
    return is_freed(subdevice.client, subdevice.object) || is_freed(subdevice.client, subdevice.device);
  });
  std::erase_if(groups_, [&](Group& group) {
    if (group.client == freed.client) std::erase(group.channels, freed.object);
    return is_freed(group.client, group.object);
  });
}

int GpuChannelGroups::ForwardSet(int fd, unsigned long request, void* argument, uint64_t own_us) {
  auto* control = static_cast<RmControl*>(argument);
  const std::lock_guard lock(mutex_);
  Group& group = Remember(fd, control->client, control->object);
  group.own_us = own_us;
  if (const uint64_t wanted = WantedOn(group.device); wanted != 0 && Set(group, wanted)) {
    control->status = 0;
    return 0;
  }
  return kernel_(fd, request, argument);
}

void GpuChannelGroups::WantTimeSlices(std::vector<std::chrono::microseconds> slices) {
  std::chrono::microseconds shortest{0};
  for (const std::chrono::microseconds slice : slices) {
    if (slice.count() != 0 && (shortest.count() == 0 || slice < shortest)) shortest = slice;
  }
  Want(shortest, std::move(slices));
}

void GpuChannelGroups::Want(std::chrono::microseconds slice, std::vector<std::chrono::microseconds> by_device) {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> before;
  for (const Group& group : groups_) before.push_back(WantedFor(group));
  wanted_us_ = static_cast<uint64_t>(slice.count());
  wanted_ = std::move(by_device);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const uint64_t wanted = WantedFor(groups_[i]);
    if (wanted != 0 && wanted != before[i]) Set(groups_[i], wanted);
  }
}

uint64_t GpuChannelGroups::WantedOn(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= wanted_.size()) return wanted_us_;
  return static_cast<uint64_t>(wanted_[static_cast<size_t>(device)].count());
}

bool GpuChannelGroups::IsTimeSliceSet(int device) {
  const std::lock_guard lock(mutex_);
  if (WantedOn(device) == 0) return false;
  const auto is_there = [&](const Group& group) { return group.device == device; };
  return std::ranges::any_of(groups_, is_there) &&
         std::ranges::all_of(groups_, [&](const Group& group) { return !is_there(group) || group.has_wanted_slice; });
}

GpuChannelGroups::TimeSlices GpuChannelGroups::CheckTimeSlices() {
  const std::lock_guard lock(mutex_);
  TimeSlices report;
  std::erase_if(groups_, [&](Group& group) {
    uint64_t slice_us = 0;
    if (!Get(group, &slice_us)) return !group.is_descheduled;
    if (group.own_us == 0) group.own_us = slice_us;
    const uint64_t wanted = WantedFor(group);
    if (slice_us != wanted && Set(group, wanted)) Get(group, &slice_us);
    const std::chrono::microseconds slice(slice_us);
    report.shortest = report.num_groups == 0 ? slice : std::min(report.shortest, slice);
    report.longest = std::max(report.longest, slice);
    ++report.num_groups;
    group.has_wanted_slice = slice_us == wanted;
    if (slice_us != wanted) ++report.num_refused;
    if (WantedOn(group.device) != 0) ++report.num_wanted;
    return false;
  });
  return report;
}

size_t GpuChannelGroups::Deschedule(int device, bool is_descheduled) {
  const std::lock_guard lock(mutex_);
  size_t num_descheduled = 0;
  for (Group& group : groups_) {
    if (!group.is_compute || group.device != device) continue;
    DescheduleGroup(group, is_descheduled);
    if (group.is_descheduled) ++num_descheduled;
  }
  return num_descheduled;
}

size_t GpuChannelGroups::Preempt(int device) {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return group.is_compute && group.device == device && !group.is_descheduled && TakeOff(group);
  }));
}

void GpuChannelGroups::DescheduleGroup(Group& group, bool is_descheduled) {
  if (group.is_descheduled == is_descheduled || (is_descheduled && !group.may_deschedule)) return;
  if (DisableChannels(group, is_descheduled)) {
    group.is_descheduled = is_descheduled;
    if (is_descheduled) group.is_off = TakeOff(group);
    if (!is_descheduled && !group.is_off) HaveListReadAgain(group);
  } else if (is_descheduled) {
    group.may_deschedule = false;
    DisableChannels(group, false);  // some of them may be
  } else if (uint64_t slice_us = 0; !Get(group, &slice_us)) {
    group.is_descheduled = false;  // it is no more
  }
}

void GpuChannelGroups::SetDevice(int device) {
  const std::lock_guard lock(mutex_);
  device_ = device;
}

GpuChannelGroups::Descheduling GpuChannelGroups::DeschedulingOn(int device) {
  const std::lock_guard lock(mutex_);
  // A driver may make some groups in a way that is not known; of the others each says what it is for.
  const bool was_none_seen =
      std::none_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.was_seen_made; });
  Descheduling found = was_none_seen && !groups_.empty() ? Descheduling::kRefused : Descheduling::kNoGroups;
  for (const Group& group : groups_) {
    if (!group.is_compute || group.device != device) continue;
    if (!group.may_deschedule || group.subdevice == 0 || group.channels.empty()) return Descheduling::kRefused;
    found = Descheduling::kPossible;
  }
  return found;
}

int GpuChannelGroups::DeviceOf(uint32_t client, uint32_t parent) const {
  const auto sibling = std::ranges::find_if(groups_, [&](const Group& group) {
    return group.client == client && group.parent == parent && group.was_seen_made && group.device >= 0;
  });
  return sibling == groups_.end() ? -1 : sibling->device;
}

GpuChannelGroups::Group* GpuChannelGroups::Find(uint32_t client, uint32_t object) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& group) { return group.client == client && group.object == object; });
  return found == groups_.end() ? nullptr : &*found;
}

GpuChannelGroups::Group& GpuChannelGroups::Remember(int fd, uint32_t client, uint32_t object) {
  Group* group = Find(client, object);
  if (group == nullptr) group = &groups_.emplace_back();
  group->fd = fd;
  group->client = client;
  group->object = object;
  return *group;
}

bool GpuChannelGroups::Control(int fd, uint32_t client, uint32_t object, uint32_t command, void* parameters,
                               uint32_t parameter_bytes) {
  RmControl control{client, object, command, 0, reinterpret_cast<uint64_t>(parameters), parameter_bytes, 0};
  return kernel_(fd, kControlRequest, &control) == 0 && control.status == 0;
}

bool GpuChannelGroups::Set(const Group& group, uint64_t slice_us) {
  return Control(group.fd, group.client, group.object, kSetTimeSlice, &slice_us, sizeof(slice_us));
}

bool GpuChannelGroups::Get(const Group& group, uint64_t* slice_us) {
  return Control(group.fd, group.client, group.object, kGetTimeSlice, slice_us, sizeof(*slice_us));
}

bool GpuChannelGroups::DisableChannels(const Group& group, bool is_disabled) {
  if (group.subdevice == 0 || group.channels.empty()) return false;
  bool is_done = true;
  for (size_t first = 0; first < group.channels.size(); first += kMostChannels) {
    const size_t count = std::min(kMostChannels, group.channels.size() - first);
    DisabledChannels parameters{};
    parameters.is_disabled = is_disabled ? 1 : 0;
    // The call need not see to it that they do not run: that holds up high-priority work longer than TakeOff does.
    parameters.only_scheduling = 1;
    parameters.num_channels = static_cast<uint32_t>(count);
    std::fill_n(parameters.clients, count, group.client);
    std::copy_n(group.channels.begin() + static_cast<std::ptrdiff_t>(first), count, parameters.channels);
    const auto ask = [&] {
      return Control(group.fd, group.client, group.subdevice, kDisableChannels, &parameters, sizeof(parameters));
    };
    if (ask()) continue;
    is_done = false;
    if (is_disabled) break;
    // One that is no more keeps those behind it from going on.
    parameters.num_channels = 1;
    for (size_t i = first; i < first + count; ++i) {
      parameters.channels[0] = group.channels[i];
      ask();
    }
  }
  return is_done;
}

// GPU channels that are disabled while they run may stay on the GPU in part, until it turns to another group. When they
// are enabled it does not turn to them by itself then, whatever they still have to do: on an H200 with nobody else
// there 34 deschedulings of 40 ended so, and the next request of others waited 0.37 ms instead of 0.23. None does once
// the group has been preempted (docs/driver-waits.md). That they are disabled comes first: a group that may be
// scheduled comes back at once.
bool GpuChannelGroups::TakeOff(const Group& group) {
  Preemption preemption{.waits = 1, .has_timeout = 1, .timeout_us = kLongestPreemptionUs};
  return Control(group.fd, group.client, group.object, kPreempt, &preemption, sizeof(preemption));
}

// Where it was not preempted. A group's slice stands in the list that the GPU goes through; to write it, be it with
// what it was, has the GPU begin with the list anew. High-priority work that comes just then waits for up to 0.5 ms.
void GpuChannelGroups::HaveListReadAgain(const Group& group) {
  uint64_t slice_us = WantedFor(group);
  if (slice_us != 0 || Get(group, &slice_us)) Set(group, slice_us);
}

}  // namespace tally::server
