#include "server/executor_process/time_slices.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <map>
#include <optional>

namespace tally::server {
namespace {

using std::chrono::microseconds;

struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
constexpr unsigned long kControl = _IOWR('F', 0x2A, Control);
constexpr uint32_t kSchedule = 0xA06C0101, kSet = 0xA06C0103, kGet = 0xA06C0104;

// The resource manager, as far as channel groups go.
struct Kernel {
  std::map<uint32_t, uint64_t> slices;  // by object
  std::optional<uint64_t> only;         // the one slice that may be set
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
  if (request != kControl) return 42;
  auto* control = static_cast<Control*>(argument);
  auto* slice = reinterpret_cast<uint64_t*>(control->parameters);
  control->status = 0;
  if (control->command == kSchedule) {
    kernel->slices.try_emplace(control->object, 1024);
  } else if (control->client != 1 || !kernel->slices.contains(control->object)) {
    control->status = 0x57;  // no such object
  } else if (control->command == kSet && kernel->only && *slice != *kernel->only) {
    control->status = 0x1B;  // insufficient permissions
  } else if (control->command == kSet) {
    kernel->slices[control->object] = *slice;
  } else if (control->command == kGet) {
    *slice = kernel->slices[control->object];
  }
  return 0;
}

class TimeSlicesTest : public testing::Test {
 protected:
  TimeSlicesTest() { kernel = &kernel_; }
  ~TimeSlicesTest() override { kernel = nullptr; }

  // As libcuda makes a channel group.
  void Schedule(uint32_t object) {
    Control control{1, object, kSchedule, 0, 0, 0, 0xFF};
    EXPECT_EQ(slices_.Forward(7, kControl, &control), 0);
  }
  uint32_t SetOwn(uint32_t object, uint64_t own_us) {
    Control control{1, object, kSet, 0, reinterpret_cast<uint64_t>(&own_us), sizeof(own_us), 0xFF};
    EXPECT_EQ(slices_.Forward(7, kControl, &control), 0);
    EXPECT_EQ(control.parameters, reinterpret_cast<uint64_t>(&own_us));
    return control.status;
  }
  void Make(uint32_t object, uint64_t own_us) {
    Schedule(object);
    EXPECT_EQ(SetOwn(object, own_us), 0u);
  }

  Kernel kernel_;
  TimeSlices slices_{&Call};
};

TEST_F(TimeSlicesTest, WhatIsNoSliceGoesThroughUntouched) {
  int word = 5;
  EXPECT_EQ(slices_.Forward(7, 0x1234, &word), 42);
  EXPECT_EQ(slices_.Forward(7, kControl + 1, nullptr), 42);
  EXPECT_EQ(kernel_.last_request, kControl + 1);
  errno = 0;
  EXPECT_EQ(slices_.Forward(3, 0x1234, &word), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(word, 5);
  EXPECT_EQ(slices_.Check(), TimeSlices::Report{});
}

TEST_F(TimeSlicesTest, WithoutAWishTheDriverKeepsItsOwn) {
  Make(10, 2000);
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(slices_.Check(), (TimeSlices::Report{1, 0, microseconds(2000), microseconds(2000)}));
}

TEST_F(TimeSlicesTest, TheDriversOwnCallSetsTheWantedSlice) {
  slices_.Want(microseconds(1));
  Make(10, 2000);
  Make(11, 1024);
  EXPECT_EQ(kernel_.slices[10], 1u);
  EXPECT_EQ(kernel_.slices[11], 1u);
  EXPECT_EQ(slices_.Check(), (TimeSlices::Report{2, 0, microseconds(1), microseconds(1)}));
}

TEST_F(TimeSlicesTest, AChangedWishReachesGroupsThatExistAndIsTakenBack) {
  Make(10, 2000);
  Make(11, 1024);
  slices_.Want(microseconds(1'000'000));
  EXPECT_EQ(kernel_.slices[10], 1'000'000u);
  EXPECT_EQ(kernel_.slices[11], 1'000'000u);
  slices_.Want(microseconds(0));
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(kernel_.slices[11], 1024u);
}

TEST_F(TimeSlicesTest, AGroupWhoseSliceTheDriverNeverSetGetsItWhenChecked) {
  slices_.Want(microseconds(5));
  Schedule(10);
  EXPECT_EQ(kernel_.slices[10], 1024u);
  EXPECT_EQ(slices_.Check(), (TimeSlices::Report{1, 0, microseconds(5), microseconds(5)}));
  slices_.Want(microseconds(0));
  EXPECT_EQ(kernel_.slices[10], 1024u);
}

TEST_F(TimeSlicesTest, WhereItIsRefusedTheDriversOwnCallIsMade) {
  kernel_.only = 2000;
  slices_.Want(microseconds(1));
  Make(10, 2000);
  EXPECT_EQ(kernel_.slices[10], 2000u);
  EXPECT_EQ(slices_.Check(), (TimeSlices::Report{1, 1, microseconds(2000), microseconds(2000)}));
}

TEST_F(TimeSlicesTest, GroupsThatAreGoneAreForgotten) {
  slices_.Want(microseconds(1));
  Make(10, 2000);
  Make(11, 2000);
  kernel_.slices.erase(10);
  EXPECT_EQ(slices_.Check().num_groups, 1u);
  const int before = kernel_.num_calls;
  slices_.Want(microseconds(2));
  EXPECT_EQ(kernel_.num_calls, before + 1);
}

TEST_F(TimeSlicesTest, ASliceOfAnotherLayoutIsNotTouched) {
  slices_.Want(microseconds(1));
  Schedule(10);
  uint64_t words[2] = {2000, 0};
  Control control{1, 10, kSet, 0, reinterpret_cast<uint64_t>(words), sizeof(words), 0xFF};
  EXPECT_EQ(slices_.Forward(7, kControl, &control), 0);
  EXPECT_EQ(kernel_.slices[10], 2000u);
}

}  // namespace
}  // namespace tally::server
