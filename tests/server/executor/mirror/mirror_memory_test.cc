#include "server/executor/mirror/mirror_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/server/executor/mirror/mirror_world.h"

namespace tally::server {
namespace {

constexpr CUdeviceptr kHomes = 0x500000000000;

// A driver that grants whatever address is asked for, and notes what stands where.
struct Driver {
  static DriverTable Table() {
    DriverTable table{};
    table.cuMemAddressReserve = [](CUdeviceptr* address, size_t num_bytes, size_t, CUdeviceptr hint,
                                   unsigned long long) {
      *address = hint != 0 ? hint : 0x400000000000;
      reserved[*address] = num_bytes;
      return CUDA_SUCCESS;
    };
    table.cuMemAddressFree = [](CUdeviceptr address, size_t) { return reserved.erase(address), CUDA_SUCCESS; };
    table.cuMemCreate = [](CUmemGenericAllocationHandle* memory, size_t, const CUmemAllocationProp*,
                           unsigned long long) { return *memory = ++num_memories, CUDA_SUCCESS; };
    table.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* memory, void*, CUmemAllocationHandleType) {
      return *memory = ++num_memories, CUDA_SUCCESS;
    };
    table.cuMemExportToShareableHandle = [](void* fd, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                            unsigned long long) {
      return *static_cast<int*>(fd) = ::open("/dev/null", O_RDONLY | O_CLOEXEC), CUDA_SUCCESS;
    };
    table.cuMemRelease = [](CUmemGenericAllocationHandle) { return --num_memories, CUDA_SUCCESS; };
    table.cuMemMap = [](CUdeviceptr address, size_t num_bytes, size_t, CUmemGenericAllocationHandle,
                        unsigned long long) { return mapped[address] = num_bytes, CUDA_SUCCESS; };
    table.cuMemUnmap = [](CUdeviceptr address, size_t) { return mapped.erase(address), CUDA_SUCCESS; };
    table.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; };
    return table;
  }
  static inline std::map<CUdeviceptr, size_t> reserved, mapped;
  static inline uint64_t num_memories;
};

class MirrorMemoryTest : public testing::Test {
 protected:
  MirrorMemoryTest() {
    Driver::reserved.clear();
    Driver::mapped.clear();
    Driver::num_memories = 0;
    for (uint32_t number : {0u, 1u}) {
      shm::MirrorCommand command = MirrorWorld::Command(shm::MirrorCommandKind::kReserve, number, 0, 2 * kGranule);
      command.address = kHomes + number * 2 * kGranule;
      EXPECT_EQ(memory_->Reserve(command), CUDA_SUCCESS);
    }
  }
  static shm::MirrorCommand Piece(uint32_t allocation, uint64_t offset, uint32_t gpu = shm::kMirrorSelf) {
    shm::MirrorCommand command = MirrorWorld::Command(shm::MirrorCommandKind::kMapOwn, allocation, offset, kGranule);
    command.gpu = gpu;
    return command;
  }
  // Rows of 64 bytes, 128 apart.
  static shm::MirrorCommand Box(uint32_t allocation, uint64_t offset, uint64_t rows, uint32_t gpu = 2) {
    shm::MirrorCommand command = Piece(allocation, offset, gpu);
    command.row_bytes = 64;
    command.pitch = 128;
    command.rows = rows;
    return command;
  }
  CUresult MapOther(uint32_t allocation, uint64_t offset, uint32_t gpu) {
    return memory_->MapOther(Piece(allocation, offset, gpu), 7);
  }

  const DriverTable table_ = Driver::Table();
  std::unique_ptr<MirrorMemory> memory_ = std::make_unique<MirrorMemory>(table_, 1);
};

// Behind an allocation there may be another one of the same program: no GPU would fault.
TEST_F(MirrorMemoryTest, BoxesThatLeaveTheirAllocationAreNowhere) {
  ASSERT_EQ(MapOther(0, 0, 2), CUDA_SUCCESS);
  const CUdeviceptr others = *memory_->InOther(Box(0, 0, 1));
  for (uint64_t rows = 1; rows <= 3; ++rows) {
    const uint64_t last = 2 * kGranule - 128 * (rows - 1) - 64;
    EXPECT_EQ(memory_->InOwn(Box(0, last, rows)), kHomes + last);
    EXPECT_EQ(memory_->InOther(Box(0, last, rows)), others + last);
    EXPECT_FALSE(memory_->InOwn(Box(0, last + 1, rows)));
    EXPECT_FALSE(memory_->InOther(Box(0, last + 1, rows)));
  }
  EXPECT_FALSE(memory_->InOwn(Box(2, 0, 1))) << "no such allocation";
  EXPECT_FALSE(memory_->InOther(Box(0, 0, 1, 3))) << "none of that GPU's memory is here";
  EXPECT_FALSE(memory_->InOther(Box(1, 0, 1))) << "nor of this allocation";
}

TEST_F(MirrorMemoryTest, PiecesThatLeaveTheirAllocationAreNotMapped) {
  UniqueFd exported;
  for (const uint64_t offset : {2 * kGranule, kGranule + 1, UINT64_MAX - kGranule + 1}) {
    EXPECT_EQ(memory_->MapOwn(Piece(0, offset), &exported), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(memory_->MapShared(Piece(0, offset), 7), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(MapOther(0, offset, 2), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_TRUE(Driver::mapped.empty());
  EXPECT_EQ(Driver::num_memories, 0u);
}

// Where home never takes anything: what it allocates later has to have its addresses here, too.
TEST_F(MirrorMemoryTest, MemoryOfOtherGpusLiesApart) {
  constexpr AddressArena::Range kApart = AddressArena::kApart[0];
  std::map<CUdeviceptr, CUdeviceptr> ranges;
  for (uint32_t allocation : {0u, 1u}) {
    for (uint32_t gpu : {0u, 2u, 3u}) {
      ASSERT_EQ(MapOther(allocation, kGranule, gpu), CUDA_SUCCESS);
      const CUdeviceptr at = *memory_->InOther(Box(allocation, 0, 1, gpu));
      EXPECT_TRUE(kApart.Contains(at, 2 * kGranule));
      EXPECT_TRUE(Driver::mapped.contains(at + kGranule));
      ranges[at] = at + 2 * kGranule;
    }
  }
  ASSERT_EQ(ranges.size(), 6u);
  for (auto range = ranges.begin(), next = std::next(range); next != ranges.end(); range = next++) {
    EXPECT_LE(range->second, next->first);
  }
}

TEST_F(MirrorMemoryTest, NothingIsLeftAtItsEnd) {
  UniqueFd exported;
  ASSERT_EQ(memory_->MapOwn(Piece(0, 0), &exported), CUDA_SUCCESS);
  EXPECT_TRUE(exported.valid());
  ASSERT_EQ(memory_->MapShared(Piece(1, kGranule), 7), CUDA_SUCCESS);
  ASSERT_EQ(MapOther(0, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(Driver::mapped.size(), 3u);
  EXPECT_EQ(memory_->Unmap(Piece(0, kGranule)), CUDA_ERROR_INVALID_VALUE) << "nothing is there";
  EXPECT_EQ(memory_->Unmap(Piece(0, 0)), CUDA_SUCCESS);
  EXPECT_EQ(Driver::mapped.size(), 2u);
  memory_.reset();
  EXPECT_TRUE(Driver::mapped.empty());
  EXPECT_TRUE(Driver::reserved.empty());
  EXPECT_EQ(Driver::num_memories, 0u);
}

}  // namespace
}  // namespace tally::server
