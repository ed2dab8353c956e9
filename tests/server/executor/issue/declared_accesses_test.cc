#include "server/executor/issue/declared_accesses.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/executor/issue/listed_memory.h"

namespace tally::server {
namespace {

using shm::DeclaredBox;

constexpr uint64_t kOwn = uint64_t{7} << 40;
constexpr uint64_t kHosts = uint64_t{8} << 40;
constexpr uint64_t kShared = uint64_t{9} << 40;

class DeclaredAccessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The second array adjoins the first.
    memory_.Set({{kOwn, 4096},
                 {kOwn + 4096, 4096},
                 {kHosts, 4096, LaunchMemory::Sort::kHost},
                 {kShared, 4096, LaunchMemory::Sort::kShared}});
  }
  // Why it is a barrier; "": it is none.
  std::string Why(std::vector<DeclaredBox> reads, const std::vector<DeclaredBox>& writes = {}) {
    PendingLaunch launch;
    launch.flags = shm::kLaunchDeclared;
    launch.num_declared_reads = static_cast<uint32_t>(reads.size());
    launch.declared = std::move(reads);
    launch.declared.insert(launch.declared.end(), writes.begin(), writes.end());
    const char* why = FindDeclared(launch, memory_, &accesses_);
    return why != nullptr ? why : "";
  }

  ListedMemory memory_;
  LaunchAccesses accesses_;
};

TEST_F(DeclaredAccessesTest, BoxesAreReadAndWrittenAsSaid) {
  ASSERT_EQ(Why({{kOwn, 64, 1, 0}}, {{kOwn + 128, 16, 4, 256}, {kOwn, 64, 1, 0}}), "");
  ASSERT_EQ(accesses_.accesses.size(), 3u);
  EXPECT_EQ(accesses_.extent, scheduler::Extent::kSaid);
  EXPECT_EQ(accesses_.barrier, nullptr);
  EXPECT_EQ(accesses_.accesses[0].kind, scheduler::AccessKind::kRead);
  EXPECT_EQ(accesses_.accesses[0].box, *scheduler::Box::Range(kOwn, 64));
  EXPECT_EQ(accesses_.accesses[1].kind, scheduler::AccessKind::kWrite);
  EXPECT_EQ(accesses_.accesses[1].box, *scheduler::Box::Rows(kOwn + 128, 16, 4, 256));
  ASSERT_EQ(Why({{kOwn, 64, 1, 0}}), "");
  EXPECT_EQ(accesses_.accesses.size(), 1u) << "those of the launch before are gone";
}

TEST_F(DeclaredAccessesTest, NothingIsNothingWhereverItIs) {
  EXPECT_EQ(Why({{0, 0, 1, 0}, {kHosts, 64, 0, 0}, {UINT64_MAX, 0, UINT64_MAX, UINT64_MAX}}), "");
  EXPECT_TRUE(accesses_.accesses.empty());
}

TEST_F(DeclaredAccessesTest, MemoryMustBeOneAllocationOfTheSessions) {
  EXPECT_EQ(Why({{kOwn, 4096, 1, 0}}), "");
  EXPECT_EQ(Why({}, {{kOwn + 4095, 1, 1, 0}}), "");
  EXPECT_EQ(Why({{kOwn, 4097, 1, 0}}), "unknown-memory") << "two allocations, whatever lies behind the first";
  EXPECT_EQ(Why({{kOwn + 4096, 4097, 1, 0}}), "unknown-memory") << "its last byte is nobody's";
  EXPECT_EQ(Why({{kOwn - 1, 2, 1, 0}}), "unknown-memory");
  EXPECT_EQ(Why({{0, 8, 1, 0}}), "unknown-memory");
  EXPECT_EQ(Why({{kOwn, 8, 1, 0}}, {{kOwn, 8, 3, 4096}}), "unknown-memory") << "one of several";
  memory_.Set({});
  EXPECT_EQ(Why({{kOwn, 64, 1, 0}}), "unknown-memory") << "it was freed";
}

TEST_F(DeclaredAccessesTest, BoxesThatWrapAreNeverSmaller) {
  for (const DeclaredBox& box : {DeclaredBox{kOwn, UINT64_MAX, 1, 0}, DeclaredBox{kOwn, 8, UINT64_MAX, 8},
                                 DeclaredBox{kOwn, 8, 3, uint64_t{1} << 63}, DeclaredBox{UINT64_MAX, 2, 1, 0},
                                 DeclaredBox{kOwn, 8, 2, UINT64_MAX - 7}}) {
    EXPECT_EQ(Why({box}), "unknown-memory");
    EXPECT_EQ(Why({}, {box}), "unknown-memory");
  }
}

TEST_F(DeclaredAccessesTest, RowsThatOverlapAreTheRangeAroundThem) {
  ASSERT_EQ(Why({}, {{kOwn, 64, 3, 8}, {kOwn, 64, 3, 0}}), "");
  EXPECT_EQ(accesses_.accesses[0].box, *scheduler::Box::Range(kOwn, 80));
  EXPECT_EQ(accesses_.accesses[1].box, *scheduler::Box::Range(kOwn, 64));
}

TEST_F(DeclaredAccessesTest, WhatOthersMaySeeIsABarrier) {
  EXPECT_EQ(Why({{kHosts, 64, 1, 0}}), "host-memory");
  EXPECT_EQ(Why({{kOwn, 64, 1, 0}}, {{kShared, 64, 1, 0}}), "shared-memory");
}

TEST_F(DeclaredAccessesTest, OpaqueIsABarrierWhateverElseIsSaid) {
  PendingLaunch launch;
  launch.flags = shm::kLaunchDeclared | shm::kLaunchOpaque;
  EXPECT_STREQ(FindDeclared(launch, memory_, &accesses_), "declared");
  launch.flags = shm::kLaunchOpaque;
  EXPECT_STREQ(FindDeclared(launch, memory_, &accesses_), "declared");
}

}  // namespace
}  // namespace tally::server
