#include "server/executor/issue/transfer.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/executor/issue/launch_accesses.h"
#include "tests/server/executor/issue/listed_memory.h"

namespace tally::server {
namespace {

using scheduler::AccessKind;
using scheduler::Box;

constexpr uint64_t kA = uint64_t{7} << 40, kB = kA + 4096, kHost = uint64_t{8} << 40, kShared = uint64_t{9} << 40;

class TransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The second array adjoins the first.
    memory_.Set({{kA, 4096},
                 {kB, 4096},
                 {kHost, 4096, LaunchMemory::Sort::kHost},
                 {kShared, 4096, LaunchMemory::Sort::kShared}});
  }
  std::string Why(const Transfer& transfer) {
    const char* why = FindAccesses(transfer, memory_, &accesses_);
    return why != nullptr ? why : "";
  }

  ListedMemory memory_;
  LaunchAccesses accesses_;
};

TEST_F(TransferTest, ACopyReadsAndWritesItsRowsAndNothingElse) {
  ASSERT_EQ(Why({.to = kB + 8, .from = kA, .row_bytes = 24, .rows = 3, .to_pitch = 64, .from_pitch = 32}), "");
  ASSERT_EQ(accesses_.accesses.size(), 2u);
  EXPECT_EQ(accesses_.accesses[0].kind, AccessKind::kRead);
  EXPECT_EQ(accesses_.accesses[0].box, *Box::Rows(kA, 24, 3, 32));
  EXPECT_EQ(accesses_.accesses[1].kind, AccessKind::kWrite);
  EXPECT_EQ(accesses_.accesses[1].box, *Box::Rows(kB + 8, 24, 3, 64));
}

TEST_F(TransferTest, AFillWrites) {
  ASSERT_EQ(Why({.to = kA, .from = kHost, .row_bytes = 100, .value = 3, .element_bytes = 4}), "");
  ASSERT_EQ(accesses_.accesses.size(), 1u) << "a source means nothing, nor do accesses of before";
  EXPECT_EQ(accesses_.accesses[0].kind, AccessKind::kWrite);
  EXPECT_EQ(accesses_.accesses[0].box, *Box::Range(kA, 100));
}

TEST_F(TransferTest, MemoryThatOthersSeeIsABarrier) {
  EXPECT_EQ(Why({.to = kA, .from = kHost, .row_bytes = 4}), "host-memory");
  EXPECT_EQ(Why({.to = kHost, .from = kA, .row_bytes = 4}), "host-memory");
  EXPECT_EQ(Why({.to = kShared, .row_bytes = 4, .element_bytes = 1}), "shared-memory");
  EXPECT_EQ(Why({.to = kA + 4000, .from = kB, .row_bytes = 97}), "unknown-memory") << "two allocations";
  EXPECT_EQ(Why({.to = kA + 4000, .from = kB, .row_bytes = 96}), "");
  EXPECT_EQ(Why({.to = kA, .row_bytes = 8, .rows = 2, .to_pitch = UINT64_MAX, .element_bytes = 1}), "unknown-memory");
}

// A graph keeps what it was built with; of one row addresses and the value can be set.
TEST_F(TransferTest, WhatCannotBeSetIsAnotherGeometry) {
  const Transfer line{.to = kA, .from = kB, .row_bytes = 8};
  EXPECT_EQ(GeometryOf(line), GeometryOf({.to = kB, .from = kA, .row_bytes = 8}));
  EXPECT_EQ(GeometryOf({.to = kA, .row_bytes = 8, .value = 1, .element_bytes = 4}),
            GeometryOf({.to = kB, .row_bytes = 8, .value = 2, .element_bytes = 4}));
  const Transfer box{.to = kA, .from = kB, .row_bytes = 8, .rows = 2, .to_pitch = 16, .from_pitch = 32};
  std::set<uint64_t> all = {GeometryOf(line), GeometryOf(box)};
  const auto other = [&](auto change) {
    Transfer transfer = box;
    change(transfer);
    return all.insert(GeometryOf(transfer)).second;
  };
  EXPECT_TRUE(other([](Transfer& t) { t.to += 8; }));
  EXPECT_TRUE(other([](Transfer& t) { t.from += 8; }));
  EXPECT_TRUE(other([](Transfer& t) { t.row_bytes = 16; }));
  EXPECT_TRUE(other([](Transfer& t) { t.rows = 3; }));
  EXPECT_TRUE(other([](Transfer& t) { t.to_pitch = 32; }));
  EXPECT_TRUE(other([](Transfer& t) { t.from_pitch = 16; }));
  EXPECT_TRUE(other([](Transfer& t) { t.element_bytes = 2; }));
  EXPECT_TRUE(other([](Transfer& t) { t.element_bytes = 2, t.value = 9; }));
}

TEST_F(TransferTest, NodesAndCallsAreReadWithTheirOffsets) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = kA, copy.srcPitch = 32, copy.srcHeight = 4, copy.srcXInBytes = 4, copy.srcY = 2, copy.srcZ = 1;
  copy.dstDevice = kB, copy.dstPitch = 64, copy.dstHeight = 4, copy.dstXInBytes = 8, copy.dstY = 1;
  copy.WidthInBytes = 16, copy.Height = 3, copy.Depth = 1;
  EXPECT_EQ(TransferOf(copy), (Transfer{.to = kB + 64 + 8,
                                        .from = kA + 4 * 32 + 2 * 32 + 4,
                                        .row_bytes = 16,
                                        .rows = 3,
                                        .to_pitch = 64,
                                        .from_pitch = 32}));
  copy.Height = 1;
  EXPECT_EQ(TransferOf(copy)->to_pitch, 0u) << "of one row it means nothing";
  copy.Depth = 2;
  EXPECT_FALSE(TransferOf(copy));
  copy.Depth = 1;
  for (const CUmemorytype type : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY}) {
    copy.dstMemoryType = type;
    EXPECT_FALSE(TransferOf(copy));
  }
}

TEST_F(TransferTest, RowsWithoutGapsAreOne) {
  CUDA_MEMSET_NODE_PARAMS fill{.dst = kA, .pitch = 16, .value = 1, .elementSize = 4, .width = 4, .height = 8};
  EXPECT_EQ(TransferOf(fill), (Transfer{.to = kA, .row_bytes = 128, .value = 1, .element_bytes = 4}));
  fill.pitch = 20;
  EXPECT_EQ(TransferOf(fill)->rows, 8u);
  fill.height = 2;
  EXPECT_EQ(TransferOf(fill)->rows, 2u);
  fill.width = 0;
  EXPECT_FALSE(TransferOf(fill));
  fill.width = SIZE_MAX / 4, fill.height = SIZE_MAX;
  EXPECT_FALSE(TransferOf(fill));
}

TEST_F(TransferTest, TheDriverIsToldTheSame) {
  const CUDA_MEMCPY3D line = CopyOf({.to = kA, .from = kB, .row_bytes = 24});
  EXPECT_EQ(line.srcDevice, kB);
  EXPECT_EQ(line.dstDevice, kA);
  EXPECT_EQ(line.WidthInBytes, 24u);
  EXPECT_EQ(line.Height, 1u);
  EXPECT_EQ(line.Depth, 1u);
  EXPECT_EQ(line.srcPitch, 24u);
  const CUDA_MEMCPY3D box = CopyOf({.to = kA, .from = kB, .row_bytes = 8, .rows = 2, .to_pitch = 16, .from_pitch = 32});
  EXPECT_EQ(box.Height, 2u);
  EXPECT_EQ(box.srcPitch, 32u);
  EXPECT_EQ(box.dstPitch, 16u);
  const CUDA_MEMSET_NODE_PARAMS fill =
      FillOf({.to = kA, .row_bytes = 8, .rows = 2, .to_pitch = 16, .value = 5, .element_bytes = 4});
  EXPECT_EQ(fill.dst, kA);
  EXPECT_EQ(fill.width, 2u) << "elements";
  EXPECT_EQ(fill.height, 2u);
  EXPECT_EQ(fill.pitch, 16u);
  EXPECT_EQ(fill.value, 5u);
  EXPECT_EQ(fill.elementSize, 4u);
}

}  // namespace
}  // namespace tally::server
