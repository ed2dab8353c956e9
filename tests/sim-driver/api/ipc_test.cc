// Device memory of two processes: IPC handles and exported physical memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "tests/sim-driver/api/driver_fixture.h"
#include "tests/sim-driver/api/peer_process.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kPage = 2 << 20;

class IpcTest : public DriverTest {
 protected:
  CUipcMemHandle Export(CUdeviceptr address) {
    CUipcMemHandle handle{};
    EXPECT_OK(cuIpcGetMemHandle(&handle, address));
    return handle;
  }
  // Waited for: what the other process does is ordered by nothing else.
  void Fill(CUdeviceptr address, uint32_t value, size_t num_words) {
    EXPECT_OK(cuMemsetD32_v2(address, value, num_words));
    EXPECT_OK(cuCtxSynchronize());
  }
  PeerReply PeerOpens(const CUipcMemHandle& handle) {
    return peer_.Ask({.call = PeerCall::kOpen, .a = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, .handle = handle});
  }
  PeerReply PeerReads(uint64_t address) { return peer_.Ask({.call = PeerCall::kRead, .a = address}); }

  PeerProcess peer_;
};

TEST_F(IpcTest, KernelsOfBothProcessesSeeOneMemory) {
  const CUdeviceptr first = Allocate(512), memory = Allocate(4096 + 64);
  Fill(memory, 5, (4096 + 64) / 4);
  Fill(first, 1, 16);
  const PeerReply opened = PeerOpens(Export(memory));
  ASSERT_OK(opened.result);
  EXPECT_EQ(PeerReads(opened.value).value, 5U);
  ASSERT_OK(peer_.Ask({.call = PeerCall::kIncrement, .a = opened.value, .b = (4096 + 64) / 4}).result);
  EXPECT_EQ(Read(memory, (4096 + 64) / 4), std::vector<uint32_t>((4096 + 64) / 4, 6));
  ASSERT_OK(Launch("increment", 1, 32, nullptr, memory, uint32_t{16}));
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(PeerReads(opened.value).value, 7U);
  // Exactly the allocation: neither what lies before it in its page nor behind it.
  EXPECT_EQ(PeerReads(opened.value - 4).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(PeerReads(opened.value + 4096 + 64).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(peer_.Ask({.call = PeerCall::kIncrement, .a = opened.value, .b = (4096 + 64) / 4 + 1}).result,
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_OK(cuMemFree_v2(memory));
}

TEST_F(IpcTest, IsOpenAsOftenAsItWasOpened) {
  const CUdeviceptr memory = Allocate(64);
  const CUipcMemHandle handle = Export(memory);
  const uint64_t address = PeerOpens(handle).value;
  EXPECT_EQ(PeerOpens(handle).value, address);
  EXPECT_EQ(PeerOpens(Export(memory + 32)).value, address);  // of the whole allocation
  for (int i = 0; i < 3; ++i) {
    EXPECT_OK(PeerReads(address).result);
    EXPECT_OK(peer_.Ask({.call = PeerCall::kClose, .a = address}).result);
  }
  EXPECT_EQ(PeerReads(address).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(peer_.Ask({.call = PeerCall::kClose, .a = address}).result, CUDA_ERROR_INVALID_VALUE);
  // Closing is no end of the memory, and what is open is not the opener's to free.
  const uint64_t again = PeerOpens(handle).value;
  EXPECT_EQ(peer_.Ask({.call = PeerCall::kFree, .a = again}).result, CUDA_ERROR_INVALID_VALUE);
  Fill(memory, 3, 1);
  EXPECT_EQ(PeerReads(again).value, 3U);
}

TEST_F(IpcTest, NothingOfTheOpenersSharesItsPages) {
  const CUdeviceptr memory = Allocate(64);
  Fill(memory, 1, 16);
  const uint64_t opened = PeerOpens(Export(memory)).value;
  for (int i = 0; i < 100; ++i) {
    const uint64_t own = peer_.Ask({.call = PeerCall::kAllocate, .a = 512}).value;
    EXPECT_NE(own / kPage, opened / kPage);
    ASSERT_OK(peer_.Ask({.call = PeerCall::kIncrement, .a = own, .b = 128}).result);
  }
  EXPECT_EQ(Read(memory, 16), std::vector<uint32_t>(16, 1));
}

TEST_F(IpcTest, WhatIsFreedCannotBeOpened) {
  const CUdeviceptr memory = Allocate(64);
  const CUipcMemHandle handle = Export(memory);
  ASSERT_OK(cuMemFree_v2(memory));
  EXPECT_EQ(PeerOpens(handle).result, CUDA_ERROR_INVALID_HANDLE);
  // Another allocation takes its record: the old handle still names nothing.
  const CUdeviceptr next = Allocate(64);
  const CUipcMemHandle next_handle = Export(next);
  EXPECT_EQ(PeerOpens(handle).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(PeerOpens(next_handle).result);
  // A context's end is the end of its memory.
  const CUipcMemHandle last_handle = Export(Allocate(64));
  ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(PeerOpens(last_handle).result, CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(IpcTest, MemoryOutlivesItsMakersProcess) {
  const uint64_t theirs = peer_.Ask({.call = PeerCall::kAllocate, .a = 64}).value;
  ASSERT_OK(peer_.Ask({.call = PeerCall::kIncrement, .a = theirs, .b = 16}).result);
  const CUipcMemHandle handle = peer_.Ask({.call = PeerCall::kExport, .a = theirs}).handle;
  CUdeviceptr here = 0;
  ASSERT_OK(cuIpcOpenMemHandle_v2(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  peer_.Kill();
  EXPECT_EQ(Read(here, 16), std::vector<uint32_t>(16, 1));
  EXPECT_OK(cuIpcCloseMemHandle(here));
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(IpcTest, ErrorsAreCudas) {
  const CUdeviceptr memory = Allocate(64);
  CUipcMemHandle handle = Export(memory);
  CUdeviceptr out = 0;
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&out, handle, 0), CUDA_ERROR_INVALID_CONTEXT);  // our own
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&out, handle, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcGetMemHandle(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr managed = 0;
  ASSERT_OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(cuIpcGetMemHandle(&handle, managed), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr pooled = 0;
  ASSERT_OK(cuMemAllocAsync(&pooled, 64, nullptr));
  EXPECT_EQ(cuIpcGetMemHandle(&handle, pooled), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemFreeAsync(pooled, nullptr));
}

// Whatever the 64 bytes are, the opener answers and lives.
TEST_F(IpcTest, HandlesOfRandomBytesNameNothing) {
  const CUdeviceptr memory = Allocate(64);
  const CUipcMemHandle good = Export(memory);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    CUipcMemHandle bad = good;
    // The magic stays in half of them: the fields behind it matter.
    for (int k = 0, n = 1 + static_cast<int>(random() % 4); k < n; ++k) {
      const size_t at = random() % (i % 2 == 0 ? 64 : 28);
      if (i % 4 != 0 && at < 8) continue;
      if (at == 16 || at == 17) continue;  // of the process: the number of one of its threads would do as well
      bad.reserved[at] = static_cast<char>(random());
    }
    if (std::memcmp(bad.reserved, good.reserved, 64) == 0) continue;
    const CUresult result = PeerOpens(bad).result;
    ASSERT_TRUE(result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT)
        << ::testing::PrintToString(bad.reserved) << " is taken for " << ::testing::PrintToString(good.reserved);
  }
  EXPECT_OK(PeerOpens(good).result);
}

TEST_F(IpcTest, AHandleThatNamesAnotherDescriptorOpensNothing) {
  const CUdeviceptr memory = Allocate(64);
  const CUipcMemHandle good = Export(memory);
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  UniqueFd plain(memfd_create("tally-sim-window", MFD_CLOEXEC));  // not sealed
  ASSERT_EQ(ftruncate(plain.get(), 1 << 20), 0);
  auto small = CreateSealedMemfd("tally-sim-window", 4096);
  ASSERT_TRUE(small.has_value());
  for (const int fd : {fds[0], fds[1], plain.get(), small->get(), 0, 9999}) {
    CUipcMemHandle bad = good;
    std::memcpy(bad.reserved + 20, &fd, sizeof fd);
    EXPECT_EQ(PeerOpens(bad).result, CUDA_ERROR_INVALID_HANDLE) << fd;
  }
  close(fds[0]);
  close(fds[1]);
}

TEST_F(IpcTest, RecordsThatLieAreRefused) {
  const CUdeviceptr memory = Allocate(64);
  CUipcMemHandle handle = Export(memory);
  // A file as ours, whose only record names bytes beyond it.
  constexpr uint64_t kWindow = 1 << 20, kTail = 256 << 10;
  auto file = CreateSealedMemfd("tally-sim-window", kWindow + kTail);
  ASSERT_TRUE(file.has_value());
  const int fd = file->get();
  uint64_t token = 0;
  std::memcpy(&token, handle.reserved + 8, sizeof token);
  const uint32_t record = 0;
  std::memcpy(handle.reserved + 20, &fd, sizeof fd);
  std::memcpy(handle.reserved + 24, &record, sizeof record);
  const uint64_t lies[][3] = {
      {kWindow - 64, 65, 0}, {kWindow + 1, 1, 0}, {0, 0, 0}, {0, ~uint64_t{0}, 0}, {~uint64_t{0}, 2, 0}};
  for (const auto& lie : lies) {
    const uint64_t words[] = {token, lie[0], lie[1], lie[2]};
    ASSERT_EQ(pwrite(fd, words, sizeof words, kWindow), static_cast<ssize_t>(sizeof words));
    EXPECT_EQ(PeerOpens(handle).result, CUDA_ERROR_INVALID_HANDLE) << lie[0] << ' ' << lie[1];
  }
  const uint64_t no_device[] = {token, 0, 64, 2};
  ASSERT_EQ(pwrite(fd, no_device, sizeof no_device, kWindow), static_cast<ssize_t>(sizeof no_device));
  EXPECT_EQ(PeerOpens(handle).result, CUDA_ERROR_INVALID_DEVICE);
  const uint64_t truth[] = {token, 64, kWindow - 64, 1};
  ASSERT_EQ(pwrite(fd, truth, sizeof truth, kWindow), static_cast<ssize_t>(sizeof truth));
  EXPECT_OK(PeerOpens(handle).result);
}

TEST_F(IpcTest, TheLazyFlagGivesAccessToAnotherDevice) {
  const CUdeviceptr memory = Allocate(64);
  const CUipcMemHandle handle = Export(memory);
  ASSERT_OK(peer_.Ask({.call = PeerCall::kUseDevice, .a = 1}).result);
  const PeerReply opened = PeerOpens(handle);
  ASSERT_OK(opened.result);
  EXPECT_OK(peer_.Ask({.call = PeerCall::kIncrement, .a = opened.value, .b = 16}).result);
  EXPECT_EQ(Read(memory, 16), std::vector<uint32_t>(16, 1));
}

TEST_F(IpcTest, WithoutItKernelsOfAnotherDeviceFault) {
  const CUipcMemHandle handle = Export(Allocate(64));
  ASSERT_OK(peer_.Ask({.call = PeerCall::kUseDevice, .a = 1}).result);
  const PeerReply opened = peer_.Ask({.call = PeerCall::kOpen, .a = 0, .handle = handle});
  ASSERT_OK(opened.result);
  EXPECT_EQ(peer_.Ask({.call = PeerCall::kIncrement, .a = opened.value, .b = 16}).result, CUDA_ERROR_ILLEGAL_ADDRESS);
}

class ExportedMemoryTest : public IpcTest {
 protected:
  // What the other process made, mapped here at `address`.
  CUdeviceptr MapHere(CUmemGenericAllocationHandle memory, size_t num_bytes) {
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAddressReserve(&address, num_bytes, 0, 0, 0));
    EXPECT_OK(cuMemMap(address, num_bytes, 0, memory, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_OK(cuMemSetAccess(address, num_bytes, &access, 1));
    return address;
  }
  CUresult Import(int fd, CUmemGenericAllocationHandle* memory) {
    return cuMemImportFromShareableHandle(memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
};

TEST_F(ExportedMemoryTest, IsOneMemoryInBothProcessesAndOutlivesItsMaker) {
  const PeerReply created = peer_.Ask({.call = PeerCall::kCreate, .a = 2 * kPage});
  ASSERT_OK(created.result);
  const UniqueFd fd = peer_.TakeFd();
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(Import(fd.get(), &memory));
  CUmemAllocationProp properties{};
  ASSERT_OK(cuMemGetAllocationPropertiesFromHandle(&properties, memory));
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr here = MapHere(memory, 2 * kPage);
  const uint64_t there = peer_.Ask({.call = PeerCall::kReserve, .a = 2 * kPage}).value;
  ASSERT_OK(peer_.Ask({.call = PeerCall::kMap, .a = there, .b = 2 * kPage, .c = created.value}).result);
  Fill(here, 41, 2 * kPage / 4);
  ASSERT_OK(peer_.Ask({.call = PeerCall::kIncrement, .a = there + 2 * kPage - 64, .b = 16}).result);
  EXPECT_EQ(Read(here + 2 * kPage - 64, 16), std::vector<uint32_t>(16, 42));
  peer_.Kill();
  EXPECT_EQ(Read(here + 2 * kPage - 64, 16), std::vector<uint32_t>(16, 42));
  EXPECT_OK(cuMemUnmap(here, 2 * kPage));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(here, 2 * kPage));
}

// What mirrors are made of: different memory, or the same, at one address in two processes.
TEST_F(ExportedMemoryTest, LiesAtOneAddressInBothProcesses) {
  const PeerReply created = peer_.Ask({.call = PeerCall::kCreate, .a = kPage});
  const UniqueFd fd = peer_.TakeFd();
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(Import(fd.get(), &memory));
  const CUdeviceptr here = MapHere(memory, kPage);
  ASSERT_EQ(peer_.Ask({.call = PeerCall::kReserve, .a = kPage, .b = here}).value, here);
  ASSERT_OK(peer_.Ask({.call = PeerCall::kMap, .a = here, .b = kPage, .c = created.value}).result);
  Fill(here, 8, 16);
  EXPECT_EQ(PeerReads(here).value, 8U);
}

TEST_F(ExportedMemoryTest, TheImporterPaysNothing) {
  size_t before = 0, after = 0, total = 0;
  ASSERT_OK(peer_.Ask({.call = PeerCall::kCreate, .a = kPage}).result);
  const UniqueFd fd = peer_.TakeFd();
  Allocate(2 * kPage);  // what is given back that was never taken would be missing from this
  ASSERT_OK(cuMemGetInfo_v2(&before, &total));
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(Import(fd.get(), &memory));
  ASSERT_OK(cuMemRelease(memory));
  ASSERT_OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(before, after);
}

TEST_F(ExportedMemoryTest, WhatWasNotMadeForItIsNotExported) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemCreate(&memory, kPage, &properties, 0));
  int fd = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExportedMemoryTest, FilesThatAreNoneAreRefused) {
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(Import(-1, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(9999, &memory), CUDA_ERROR_INVALID_VALUE);
  UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Import(file.get(), &memory), CUDA_ERROR_INVALID_VALUE);
  // Sealed memory with every label but the right one.
  const PeerReply created = peer_.Ask({.call = PeerCall::kCreate, .a = kPage});
  ASSERT_OK(created.result);
  const UniqueFd good = peer_.TakeFd();
  std::array<uint64_t, 3> label{};
  ASSERT_EQ(pread(good.get(), label.data(), sizeof label, kPage), static_cast<ssize_t>(sizeof label));
  for (size_t word = 0; word < label.size(); ++word) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1} << 63, label[word] + 4096, ~uint64_t{0}}) {
      std::array<uint64_t, 3> wrong = label;
      wrong[word] = value;
      if (wrong == label) continue;
      auto sealed = CreateSealedMemfd("tally-sim-vmm", kPage + sizeof label);
      ASSERT_TRUE(sealed.has_value());
      ASSERT_EQ(pwrite(sealed->get(), wrong.data(), sizeof wrong, kPage), static_cast<ssize_t>(sizeof wrong));
      EXPECT_EQ(Import(sealed->get(), &memory), word == 2 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    }
  }
  // A file that can still shrink under a mapping.
  UniqueFd open_file(memfd_create("tally-sim-vmm", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(open_file.get(), kPage + sizeof label), 0);
  ASSERT_EQ(pwrite(open_file.get(), label.data(), sizeof label, kPage), static_cast<ssize_t>(sizeof label));
  EXPECT_EQ(Import(open_file.get(), &memory), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tally::sim_driver
