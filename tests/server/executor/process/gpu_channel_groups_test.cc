#include "server/executor/process/gpu_channel_groups.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tally::server {
namespace {

using std::chrono::microseconds;

struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
struct Allocation {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t parameter_bytes, flags, status, unused;
};
struct Free {
  uint32_t client, parent, object, status;
};
struct GroupParameters {
  uint32_t error_object, ecc_error_object, address_space, engine;
};
struct DisabledChannels {
  uint8_t is_disabled;
  uint32_t num_channels;
  uint8_t only_scheduling, rewinds;
  uint64_t event;
  uint32_t clients[64], channels[64];
};
struct Preemption {
  uint8_t waits, has_timeout;
  uint32_t timeout_us;
};
constexpr unsigned long kFree = _IOWR('F', 0x29, Free);
constexpr unsigned long kControl = _IOWR('F', 0x2A, Control);
constexpr unsigned long kAllocation = _IOWR('F', 0x2B, Allocation);
constexpr uint32_t kDisableChannels = 0x2080110B;
constexpr uint32_t kSchedule = 0xA06C0101, kSet = 0xA06C0103, kGet = 0xA06C0104, kPreempt = 0xA06C0105;

constexpr uint32_t kDevice = 2, kSubdevice = 3;

// The resource manager, as far as GPU channel groups go.
struct Kernel {
  std::map<uint32_t, uint64_t> slices;                 // by object
  std::optional<uint64_t> only;                        // the one slice that may be set
  std::set<uint32_t> disabled;                         // GPU channels
  size_t num_disabled_at_set = 99;                     // when a slice was set last
  std::vector<std::pair<uint32_t, size_t>> preempted;  // groups, and how many GPU channels were disabled then
  bool refuses_to_disable = false, refuses_to_preempt = false;
  uint32_t stuck = 0;  // a GPU channel that does not go on
  uint32_t fixed = 0;  // one that is not disabled
  int num_calls = 0;
  unsigned long last_request = 0;
};
Kernel* kernel = nullptr;

int Call(int fd, unsigned long request, void* argument) {
  ++kernel->num_calls;
  kernel->last_request = request;
  if (fd != 7) {
    errno = EBADF;
    return -1;
  }
  if (request == kAllocation || request == kFree) return 0;
  if (request != kControl) return 42;
  auto* control = static_cast<Control*>(argument);
  auto* slice = reinterpret_cast<uint64_t*>(control->parameters);
  control->status = 0;
  if (control->command == kDisableChannels) {
    const auto& list = *reinterpret_cast<const DisabledChannels*>(control->parameters);
    if (control->object != kSubdevice || control->parameter_bytes != sizeof(list)) control->status = 0x57;
    if (kernel->refuses_to_disable && list.is_disabled) control->status = 0x1B;
    for (uint32_t i = 0; i < list.num_channels && list.is_disabled; ++i) {
      if (list.channels[i] == kernel->fixed) control->status = 0x1B;
    }
    for (uint32_t i = 0; i < list.num_channels && control->status == 0; ++i) {
      EXPECT_EQ(list.clients[i], 1u);
      if (!list.is_disabled && list.channels[i] == kernel->stuck) {
        control->status = 0x65;
        break;
      }
      if (list.is_disabled) kernel->disabled.insert(list.channels[i]);
      if (!list.is_disabled) kernel->disabled.erase(list.channels[i]);
    }
  } else if (control->command == kSchedule) {
    kernel->slices.try_emplace(control->object, 1024);
  } else if (control->client != 1 || !kernel->slices.contains(control->object)) {
    control->status = 0x57;  // no such object
  } else if (control->command == kSet && kernel->only && *slice != *kernel->only) {
    control->status = 0x1B;  // insufficient permissions
  } else if (control->command == kSet) {
    kernel->slices[control->object] = *slice;
    kernel->num_disabled_at_set = kernel->disabled.size();
  } else if (control->command == kPreempt) {
    const auto& preemption = *reinterpret_cast<const Preemption*>(control->parameters);
    EXPECT_TRUE(preemption.waits && preemption.has_timeout && preemption.timeout_us <= 1'000'000);
    control->status = control->parameter_bytes != sizeof(preemption) ? 0x57 : kernel->refuses_to_preempt ? 0x1B : 0;
    if (control->status == 0) kernel->preempted.emplace_back(control->object, kernel->disabled.size());
  } else if (control->command == kGet) {
    *slice = kernel->slices[control->object];
  }
  return 0;
}

class GpuChannelGroupsTest : public testing::Test {
 protected:
  GpuChannelGroupsTest() { kernel = &kernel_; }
  ~GpuChannelGroupsTest() override { kernel = nullptr; }

  // As libcuda makes a GPU channel group.
  void Schedule(uint32_t object) {
    Control control{1, object, kSchedule, 0, 0, 0, 0xFF};
    EXPECT_EQ(groups_.Forward(7, kControl, &control), 0);
  }
  uint32_t SetOwn(uint32_t object, uint64_t own_us) {
    Control control{1, object, kSet, 0, reinterpret_cast<uint64_t>(&own_us), sizeof(own_us), 0xFF};
    EXPECT_EQ(groups_.Forward(7, kControl, &control), 0);
    EXPECT_EQ(control.parameters, reinterpret_cast<uint64_t>(&own_us));
    return control.status;
  }
  void Make(uint32_t object, uint64_t own_us) {
    Schedule(object);
    EXPECT_EQ(SetOwn(object, own_us), 0u);
  }

  void Allocate(uint32_t parent, uint32_t object, uint32_t object_class, void* parameters = nullptr) {
    Allocation made{1, parent, object, object_class, reinterpret_cast<uint64_t>(parameters), 0, 0, 0, 0, 0};
    EXPECT_EQ(groups_.Forward(7, kAllocation, &made), 0);
  }
  // As libcuda makes one with `count` GPU channels, numbered from ten times its number on. 1: the engine that runs
  // kernels.
  void MakeGroup(uint32_t object, uint32_t engine, uint32_t count) {
    GroupParameters parameters{0, 0, 0, engine};
    Allocate(kDevice, object, 0xA06C, &parameters);
    for (uint32_t i = 0; i < count; ++i) Allocate(object, object * 10 + i, 0xC86F);
    Make(object, 2000);
  }
  void FreeObject(uint32_t object) {
    Free freed{1, 0, object, 0};
    EXPECT_EQ(groups_.Forward(7, kFree, &freed), 0);
  }

  Kernel kernel_;
  GpuChannelGroups groups_{&Call};
};

TEST_F(GpuChannelGroupsTest, WhatIsNoSliceGoesThroughUntouched) {
  int word = 5;
  EXPECT_EQ(groups_.Forward(7, 0x1234, &word), 42);
  EXPECT_EQ(groups_.Forward(7, kControl + 1, nullptr), 42);
  EXPECT_EQ(kernel_.last_request, kControl + 1);
  errno = 0;
  EXPECT_EQ(groups_.Forward(3, 0x1234, &word), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(word, 5);
  EXPECT_EQ(groups_.CheckTimeSlices(), GpuChannelGroups::TimeSlices{});
}

TEST_F(GpuChannelGroupsTest, WithoutAWishTheDriverKeepsItsOwn) {
  Make(10, 2000);
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(groups_.CheckTimeSlices(), (GpuChannelGroups::TimeSlices{1, 0, 0, microseconds(2000), microseconds(2000)}));
}

TEST_F(GpuChannelGroupsTest, TheDriversOwnCallSetsTheWantedSlice) {
  groups_.WantTimeSlice(microseconds(1));
  Make(10, 2000);
  Make(11, 1024);
  EXPECT_EQ(kernel_.slices[10], 1u);
  EXPECT_EQ(kernel_.slices[11], 1u);
  EXPECT_EQ(groups_.CheckTimeSlices(), (GpuChannelGroups::TimeSlices{2, 0, 2, microseconds(1), microseconds(1)}));
}

TEST_F(GpuChannelGroupsTest, AChangedWishReachesGroupsThatExistAndIsTakenBack) {
  Make(10, 2000);
  Make(11, 1024);
  groups_.WantTimeSlice(microseconds(1'000'000));
  EXPECT_EQ(kernel_.slices[10], 1'000'000u);
  EXPECT_EQ(kernel_.slices[11], 1'000'000u);
  groups_.WantTimeSlice(microseconds(0));
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(kernel_.slices[11], 1024u);
}

TEST_F(GpuChannelGroupsTest, AGroupWhoseSliceTheDriverNeverSetGetsItWhenChecked) {
  groups_.WantTimeSlice(microseconds(5));
  Schedule(10);
  EXPECT_EQ(kernel_.slices[10], 1024u);
  EXPECT_EQ(groups_.CheckTimeSlices(), (GpuChannelGroups::TimeSlices{1, 0, 1, microseconds(5), microseconds(5)}));
  groups_.WantTimeSlice(microseconds(0));
  EXPECT_EQ(kernel_.slices[10], 1024u);
}

TEST_F(GpuChannelGroupsTest, WhereItIsRefusedTheDriversOwnCallIsMade) {
  kernel_.only = 2000;
  groups_.WantTimeSlice(microseconds(1));
  Make(10, 2000);
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(groups_.CheckTimeSlices(), (GpuChannelGroups::TimeSlices{1, 1, 1, microseconds(2000), microseconds(2000)}));
}

TEST_F(GpuChannelGroupsTest, GroupsThatAreGoneAreForgotten) {
  groups_.WantTimeSlice(microseconds(1));
  Make(10, 2000);
  Make(11, 2000);
  kernel_.slices.erase(10);
  EXPECT_EQ(groups_.CheckTimeSlices().num_groups, 1u);
  const int before = kernel_.num_calls;
  groups_.WantTimeSlice(microseconds(2));
  EXPECT_EQ(kernel_.num_calls, before + 1);
}

TEST_F(GpuChannelGroupsTest, ASliceOfAnotherLayoutIsNotTouched) {
  groups_.WantTimeSlice(microseconds(1));
  Schedule(10);
  uint64_t words[2] = {2000, 0};
  Control control{1, 10, kSet, 0, reinterpret_cast<uint64_t>(words), sizeof(words), 0xFF};
  EXPECT_EQ(groups_.Forward(7, kControl, &control), 0);
  EXPECT_EQ(kernel_.slices[10], 2000u);
}

using Channels = std::set<uint32_t>;
using Descheduling = GpuChannelGroups::Descheduling;

TEST_F(GpuChannelGroupsTest, ChannelsOfTheGroupThatRunsKernelsAreDescheduledAndGoOn) {
  EXPECT_NE(groups_.DeschedulingOn(0), Descheduling::kPossible);
  Allocate(1, kDevice, 0x80);
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 2);
  MakeGroup(20, 11, 3);      // copies
  Allocate(10, 77, 0x9067);  // no GPU channel
  EXPECT_EQ(groups_.DeschedulingOn(0), Descheduling::kPossible);
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(kernel_.disabled, (Channels{100, 101}));
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(groups_.Deschedule(0, false), 0u);
  EXPECT_EQ(kernel_.disabled, Channels{});
  EXPECT_EQ(groups_.Deschedule(0, false), 0u);
}

// Else the GPU may not turn to them when they go on.
TEST_F(GpuChannelGroupsTest, DescheduledGroupsAreTakenOffTheGpu) {
  Allocate(1, kDevice, 0x80);
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 2);
  MakeGroup(20, 11, 3);  // copies
  groups_.Deschedule(0, true);
  EXPECT_EQ(kernel_.preempted, (std::vector<std::pair<uint32_t, size_t>>{{10, 2}}));
  kernel_.num_disabled_at_set = 99;
  groups_.Deschedule(0, false);
  EXPECT_EQ(kernel_.preempted.size(), 1u);
  EXPECT_EQ(kernel_.num_disabled_at_set, 99u);  // nobody set a slice
}

TEST_F(GpuChannelGroupsTest, GroupsThatRunKernelsArePreemptedUnlessTheyAreDescheduled) {
  Allocate(1, kDevice, 0x80);
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 2);
  MakeGroup(20, 11, 3);  // copies
  groups_.SetDevice(1);
  MakeGroup(30, 1, 1);
  EXPECT_EQ(groups_.Preempt(0), 1u);
  EXPECT_EQ(kernel_.preempted, (std::vector<std::pair<uint32_t, size_t>>{{10, 0}}));
  EXPECT_EQ(groups_.Preempt(2), 0u);
  groups_.Deschedule(0, true);
  kernel_.preempted.clear();
  EXPECT_EQ(groups_.Preempt(0), 0u);
  EXPECT_TRUE(kernel_.preempted.empty());
}

TEST_F(GpuChannelGroupsTest, WhereThatIsRefusedTheirSliceIsSetAgainWhenTheyGoOn) {
  Allocate(1, kDevice, 0x80);
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 2);
  kernel_.refuses_to_preempt = true;
  for (const uint64_t wanted_us : {0, 1}) {
    groups_.WantTimeSlice(microseconds(wanted_us));
    groups_.Deschedule(0, true);
    kernel_.num_disabled_at_set = 99;
    kernel_.slices[10] = 5;
    groups_.Deschedule(0, false);
    EXPECT_EQ(kernel_.num_disabled_at_set, 0u);
    EXPECT_EQ(kernel_.slices[10], wanted_us == 0 ? 2000 : wanted_us);
  }
}

TEST_F(GpuChannelGroupsTest, MoreChannelsThanOneCallTakes) {
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 150);
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(kernel_.disabled.size(), 150u);
}

// The first call takes its 64, and the second is refused: those of the first would hang their program.
TEST_F(GpuChannelGroupsTest, WhatIsRefusedHalfWayGoesOnAsAWhole) {
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 150);
  kernel_.fixed = 100 + 64;
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
  EXPECT_EQ(kernel_.disabled, Channels{});
}

TEST_F(GpuChannelGroupsTest, WhereItIsRefusedNobodyIsDescheduledOrAskedAgain) {
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 2);
  kernel_.refuses_to_disable = true;
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
  EXPECT_NE(groups_.DeschedulingOn(0), Descheduling::kPossible);
  const int before = kernel_.num_calls;
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
  EXPECT_EQ(kernel_.num_calls, before);
}

TEST_F(GpuChannelGroupsTest, WhatDoesNotGoOnCountsUntilItDoes) {
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 3);
  Schedule(10);
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  kernel_.stuck = 101;
  EXPECT_EQ(groups_.Deschedule(0, false), 1u);
  EXPECT_EQ(kernel_.disabled, Channels{101}) << "it does not keep the others";
  EXPECT_EQ(groups_.Deschedule(0, true), 1u) << "it still is";
  kernel_.stuck = 0;
  EXPECT_EQ(groups_.Deschedule(0, false), 0u);
  EXPECT_EQ(kernel_.disabled, Channels{});
}

TEST_F(GpuChannelGroupsTest, WithoutItsSubdeviceAGroupIsNotDescheduled) {
  MakeGroup(10, 1, 2);
  EXPECT_NE(groups_.DeschedulingOn(0), Descheduling::kPossible);
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
  EXPECT_EQ(kernel_.disabled, Channels{});
}

TEST_F(GpuChannelGroupsTest, FreedChannelsAndGroupsAreForgottenAndTheirHandlesUsedAgain) {
  Allocate(kDevice, kSubdevice, 0x2080);
  MakeGroup(10, 1, 3);
  FreeObject(101);
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(kernel_.disabled, (Channels{100, 102}));
  FreeObject(10);
  EXPECT_EQ(groups_.Deschedule(0, false), 0u);
  kernel_.disabled.clear();
  MakeGroup(10, 1, 1);
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(kernel_.disabled, (Channels{100}));
  FreeObject(1);  // the client, with all it had
  EXPECT_NE(groups_.DeschedulingOn(0), Descheduling::kPossible);
}

TEST_F(GpuChannelGroupsTest, GroupsBelongToTheDeviceWhoseContextWasBeingMade) {
  Allocate(kDevice, kSubdevice, 0x2080);
  groups_.SetDevice(3);
  MakeGroup(10, 1, 1);
  groups_.SetDevice(5);
  MakeGroup(20, 1, 1);
  groups_.SetDevice(-1);
  GroupParameters parameters{0, 0, 0, 1};
  Allocate(4, 30, 0xA06C, &parameters);  // on a device that none of those is on
  EXPECT_EQ(groups_.DeschedulingOn(0), Descheduling::kNoGroups);
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
  EXPECT_EQ(groups_.Deschedule(5, true), 1u);
  EXPECT_EQ(kernel_.disabled, (Channels{200}));
  EXPECT_EQ(groups_.Deschedule(3, true), 1u);
  EXPECT_EQ(groups_.Deschedule(5, false), 0u);
  EXPECT_EQ(kernel_.disabled, (Channels{100}));
}

TEST_F(GpuChannelGroupsTest, WhatCannotBeDescheduledOnOneDeviceCanOnTheOther) {
  Allocate(kDevice, kSubdevice, 0x2080);
  groups_.SetDevice(0);
  MakeGroup(10, 1, 2);
  groups_.SetDevice(1);
  MakeGroup(20, 1, 2);
  kernel_.fixed = 201;
  EXPECT_EQ(groups_.Deschedule(0, true), 1u);
  EXPECT_EQ(groups_.Deschedule(1, true), 0u);
  EXPECT_EQ(kernel_.disabled, (Channels{100, 101})) << "nothing of the other is left half off";
  EXPECT_EQ(groups_.DeschedulingOn(0), Descheduling::kPossible);
  EXPECT_EQ(groups_.DeschedulingOn(1), Descheduling::kRefused);
  EXPECT_EQ(groups_.Deschedule(1, false), 0u);
  EXPECT_EQ(kernel_.disabled, (Channels{100, 101})) << "letting the other go on is not letting this one";
  EXPECT_EQ(groups_.Deschedule(0, false), 0u);
  EXPECT_EQ(kernel_.disabled, Channels{});
}

TEST_F(GpuChannelGroupsTest, EachDeviceHasItsOwnTimeSlice) {
  groups_.SetDevice(0);
  MakeGroup(10, 1, 1);
  groups_.SetDevice(1);
  MakeGroup(20, 1, 1);
  MakeGroup(30, 11, 1);  // copies
  EXPECT_FALSE(groups_.IsTimeSliceSet(0));
  groups_.WantTimeSlices({microseconds(0), microseconds(7)});
  EXPECT_EQ(kernel_.slices, (std::map<uint32_t, uint64_t>{{10, 2000}, {20, 7}, {30, 7}}));
  EXPECT_EQ(groups_.CheckTimeSlices(), (GpuChannelGroups::TimeSlices{3, 0, 2, microseconds(7), microseconds(2000)}));
  EXPECT_FALSE(groups_.IsTimeSliceSet(0)) << "there is none to be set";
  EXPECT_TRUE(groups_.IsTimeSliceSet(1));
  EXPECT_FALSE(groups_.IsTimeSliceSet(2));
  MakeGroup(40, 1, 1);
  EXPECT_EQ(kernel_.slices[40], 7u);
  groups_.WantTimeSlices({microseconds(5), microseconds(0)});
  EXPECT_EQ(kernel_.slices, (std::map<uint32_t, uint64_t>{{10, 5}, {20, 2000}, {30, 2000}, {40, 2000}}));
}

TEST_F(GpuChannelGroupsTest, ARefusalOnOneDeviceIsNoneOnTheOther) {
  groups_.SetDevice(0);
  MakeGroup(10, 1, 1);
  groups_.SetDevice(1);
  MakeGroup(20, 1, 1);
  groups_.WantTimeSlices({microseconds(5), microseconds(7)});
  kernel_.only = 5;  // nobody may set another
  kernel_.slices[20] = 9;
  EXPECT_EQ(groups_.CheckTimeSlices().num_refused, 1u);
  EXPECT_TRUE(groups_.IsTimeSliceSet(0));
  EXPECT_FALSE(groups_.IsTimeSliceSet(1));
}

TEST_F(GpuChannelGroupsTest, AnUnchangedTimeSliceIsNotSetAgain) {
  groups_.SetDevice(0);
  MakeGroup(10, 1, 1);
  groups_.SetDevice(1);
  MakeGroup(20, 1, 1);
  groups_.WantTimeSlices({microseconds(5), microseconds(7)});
  const int before = kernel_.num_calls;
  groups_.WantTimeSlices({microseconds(5), microseconds(8)});
  EXPECT_EQ(kernel_.num_calls, before + 1) << "to set one has the GPU begin anew with all that are there";
}

TEST_F(GpuChannelGroupsTest, WhoseDeviceIsNotKnownHasTheShortestTimeSlice) {
  groups_.SetDevice(-1);
  MakeGroup(10, 1, 1);
  groups_.WantTimeSlices({microseconds(0), microseconds(9), microseconds(7)});
  EXPECT_EQ(kernel_.slices[10], 7u);
  groups_.WantTimeSlices({microseconds(0), microseconds(0)});
  EXPECT_EQ(kernel_.slices[10], 2000u);
}

TEST_F(GpuChannelGroupsTest, AGroupThatIsMadeLaterIsOfTheDeviceOfItsSiblings) {
  constexpr uint32_t kOther = 4, kOthersSubdevice = 5;
  Allocate(kDevice, kSubdevice, 0x2080);
  Allocate(kOther, kOthersSubdevice, 0x2080);
  const auto make_on = [&](uint32_t device, uint32_t object) {
    GroupParameters parameters{0, 0, 0, 1};
    Allocate(device, object, 0xA06C, &parameters);
    Make(object, 2000);
  };
  groups_.SetDevice(3);
  make_on(kDevice, 10);
  groups_.SetDevice(5);
  make_on(kOther, 20);
  groups_.SetDevice(-1);
  make_on(kOther, 30);
  make_on(6, 40);  // nobody knows
  std::vector<microseconds> slices(6, microseconds(50));
  slices[3] = microseconds(13);
  slices[5] = microseconds(15);
  groups_.WantTimeSlices(slices);
  EXPECT_EQ(kernel_.slices, (std::map<uint32_t, uint64_t>{{10, 13}, {20, 15}, {30, 15}, {40, 13}}));
}

TEST_F(GpuChannelGroupsTest, GroupsThatWereMadeInAWayThatIsNotKnownCannotBeDescheduled) {
  EXPECT_EQ(groups_.DeschedulingOn(0), Descheduling::kNoGroups);
  Make(10, 2000);  // put on the list, but nobody saw what it is of
  EXPECT_EQ(groups_.DeschedulingOn(0), Descheduling::kRefused);
  EXPECT_EQ(groups_.Deschedule(0, true), 0u);
}

TEST_F(GpuChannelGroupsTest, AnAllocationThatFailedIsNone) {
  Allocate(kDevice, kSubdevice, 0x2080);
  GroupParameters parameters{0, 0, 0, 1};
  Allocation failed{1, kDevice, 10, 0xA06C, reinterpret_cast<uint64_t>(&parameters), 0, 0, 0, 0x1B, 0};
  EXPECT_EQ(groups_.Forward(7, kAllocation, &failed), 0);
  EXPECT_NE(groups_.DeschedulingOn(0), Descheduling::kPossible);
}

}  // namespace
}  // namespace tally::server
