#include <fstream>
#include <string>
#include <vector>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kPage = 2 << 20;

class VirtualMemoryTest : public DriverTest {
 protected:
  VirtualMemoryTest() {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  }
  CUresult Open(CUdeviceptr address, size_t num_bytes, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, flags};
    return cuMemSetAccess(address, num_bytes, &access, 1);
  }
  CUmemAllocationProp properties_{};
};

TEST_F(VirtualMemoryTest, GrowsInPlace) {
  size_t granularity = 0;
  EXPECT_OK(cuMemGetAllocationGranularity(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(kPage, granularity);
  CUdeviceptr base = 0;
  ASSERT_OK(cuMemAddressReserve(&base, 4 * kPage, 0, 0, 0));
  CUmemGenericAllocationHandle first = 0, second = 0;
  ASSERT_OK(cuMemCreate(&first, kPage, &properties_, 0));
  ASSERT_OK(cuMemCreate(&second, kPage, &properties_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(base, 1, 16));  // nothing there yet
  ASSERT_OK(cuMemMap(base, kPage, 0, first, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(base, 1, 16));  // no access yet
  EXPECT_OK(Open(base, kPage));
  ASSERT_OK(cuMemMap(base + kPage, kPage, 0, second, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + kPage, kPage, 0, second, 0));
  EXPECT_OK(Open(base + kPage, kPage));
  // One memset and one kernel over both.
  EXPECT_OK(cuMemsetD32_v2(base, 6, 2 * kPage / 4));
  const uint32_t count = 8;
  EXPECT_OK(Launch("increment", 1, 32, nullptr, base + kPage - 16, count));
  EXPECT_EQ(std::vector<uint32_t>(count, 7), Read(base + kPage - 16, count));
  EXPECT_OK(cuMemRelease(first));
  EXPECT_OK(cuMemRelease(second));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 4 * kPage));  // still mapped
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, kPage / 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + kPage / 2, kPage));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 5 * kPage));
  EXPECT_OK(cuMemUnmap(base, 2 * kPage));
  EXPECT_OK(cuMemUnmap(base, kPage));  // a hole
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + 4 * kPage, kPage));
  EXPECT_OK(cuMemAddressFree(base, 4 * kPage));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first));
}

TEST_F(VirtualMemoryTest, OneMemoryAtTwoAddresses) {
  CUdeviceptr a = 0, b = 0;
  ASSERT_OK(cuMemAddressReserve(&a, kPage, 0, 0, 0));
  ASSERT_OK(cuMemAddressReserve(&b, kPage, 0, 0, 0));
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemCreate(&memory, kPage, &properties_, 0));
  ASSERT_OK(cuMemMap(a, kPage, 0, memory, 0));
  ASSERT_OK(cuMemMap(b, kPage, 0, memory, 0));
  EXPECT_OK(Open(a, kPage));
  EXPECT_OK(Open(b, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_OK(cuMemsetD32_v2(a, 99, 1));
  EXPECT_EQ(99U, Read(b, 1)[0]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(b, 98, 1));
  unsigned long long access = 0;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  EXPECT_OK(cuMemGetAccess(&access, &here, b));
  EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READ), access);
  CUmemGenericAllocationHandle again = 0;
  EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(a)));
  EXPECT_EQ(memory, again);
  EXPECT_OK(cuMemRelease(again));
  EXPECT_OK(cuMemUnmap(a, kPage));
  EXPECT_EQ(99U, Read(b, 1)[0]);
  EXPECT_OK(cuMemUnmap(b, kPage));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(a, kPage));
  EXPECT_OK(cuMemAddressFree(b, kPage));
}

TEST_F(VirtualMemoryTest, AHintIsFollowedWhereItIsFree) {
  CUdeviceptr base = 0, same = 0, other = 0;
  ASSERT_OK(cuMemAddressReserve(&base, 2 * kPage, 0, 0, 0));
  // Taken, cut or touched: elsewhere, as natively.
  for (const CUdeviceptr hint : {base, base + kPage, base - kPage, base + 3 * kPage / 2}) {
    ASSERT_OK(cuMemAddressReserve(&other, 2 * kPage, 0, hint, 0));
    EXPECT_NE(other, hint);
    EXPECT_TRUE(other >= base + 2 * kPage || other + 2 * kPage <= base);
    EXPECT_OK(cuMemAddressFree(other, 2 * kPage));
  }
  EXPECT_OK(cuMemAddressFree(base, 2 * kPage));
  ASSERT_OK(cuMemAddressReserve(&same, 4 * kPage, 0, base, 0));
  EXPECT_EQ(same, base);
  EXPECT_OK(cuMemAddressFree(same, 4 * kPage));
  // Far behind everything, with ordinary memory right before and behind it.
  const CUdeviceptr far = base + (CUdeviceptr{1} << 32);
  ASSERT_OK(cuMemAddressReserve(&same, kPage, 0, far, 0));
  EXPECT_EQ(same, far);
  EXPECT_OK(cuMemAddressFree(same, kPage));
  // No place of device memory.
  ASSERT_OK(cuMemAddressReserve(&other, kPage, 0, CUdeviceptr{1} << 62, 0));
  EXPECT_LT(other, CUdeviceptr{1} << 48);
  EXPECT_OK(cuMemAddressFree(other, kPage));
}

TEST_F(VirtualMemoryTest, AReservationByHintIsNobodyElses) {
  const CUdeviceptr next = Allocate(512);
  const CUdeviceptr ahead = (next / kPage + 2) * kPage;
  CUdeviceptr base = 0;
  ASSERT_OK(cuMemAddressReserve(&base, kPage, 0, ahead, 0));
  ASSERT_EQ(base, ahead);
  // Ordinary memory goes round it.
  for (int i = 0; i < 24; ++i) {
    const CUdeviceptr memory = Allocate(kPage / 4);
    EXPECT_TRUE(memory + kPage / 4 <= base || memory >= base + kPage) << std::hex << memory;
  }
  EXPECT_OK(cuMemAddressFree(base, kPage));
}

TEST_F(VirtualMemoryTest, BadArguments) {
  CUdeviceptr base = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&base, 100, 0, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&base, 0, 0, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&base, kPage, 3, 0, 0));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&base, size_t{1} << 60, 0, 0, 0));
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, 5, &properties_, 0));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&memory, size_t{1} << 50, &properties_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemMap(0, kPage, 0, 77, 0));
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&memory, kPage, &properties_, 0));
}

int NumMappingsOfThisProcess() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// A process may have some 65,000 mappings; an executor serves more sessions than that.
TEST_F(VirtualMemoryTest, WhatComesAndGoesLeavesNoMapping) {
  constexpr int kCycles = 300;
  const CUdeviceptr stays = Allocate(512);
  int before = 0;
  for (int i = 0; i < kCycles; ++i) {
    if (i == kCycles / 10) before = NumMappingsOfThisProcess();  // by now the driver has all threads that it needs
    // Of all sizes, touched, with something alive between that is freed later.
    const CUdeviceptr large = Allocate(kPage), small = Allocate(512);
    CUdeviceptr base = 0, behind = 0;
    ASSERT_OK(cuMemAddressReserve(&base, 2 * kPage, 0, 0, 0));
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_OK(cuMemCreate(&memory, kPage, &properties_, 0));
    ASSERT_OK(cuMemMap(base, kPage, 0, memory, 0));
    ASSERT_OK(Open(base, kPage));
    behind = Allocate(3 * kPage / 2);
    for (const CUdeviceptr touched : {large, small, base, behind}) ASSERT_OK(cuMemsetD32_v2(touched, 7, 128));
    ASSERT_OK(cuMemUnmap(base, kPage));
    ASSERT_OK(cuMemRelease(memory));
    ASSERT_OK(cuMemAddressFree(base, 2 * kPage));
    for (const CUdeviceptr freed : {behind, large, small}) ASSERT_OK(cuMemFree_v2(freed));
  }
  EXPECT_LE(NumMappingsOfThisProcess(), before + 10) << "after " << kCycles << " times";
  EXPECT_OK(cuMemFree_v2(stays));
}

// As an executor does for the next session: memory that was given back is zeros, whoever gets its addresses.
TEST_F(VirtualMemoryTest, AddressesOfAReservationAreOrdinaryMemoryAgain) {
  CUdeviceptr base = 0;
  ASSERT_OK(cuMemAddressReserve(&base, kPage, 0, 0, 0));
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemCreate(&memory, kPage, &properties_, 0));
  ASSERT_OK(cuMemMap(base, kPage, 0, memory, 0));
  ASSERT_OK(Open(base, kPage));
  ASSERT_OK(cuMemsetD32_v2(base, 7, 16));
  ASSERT_OK(cuMemUnmap(base, kPage));
  // The memory itself is still there, but not at this address.
  EXPECT_EQ(std::vector<uint32_t>(16, 0), std::vector<uint32_t>(reinterpret_cast<const uint32_t*>(base),
                                                                reinterpret_cast<const uint32_t*>(base) + 16));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(base, 7, 16));
  ASSERT_OK(cuMemRelease(memory));
  ASSERT_OK(cuMemAddressFree(base, kPage));
}

}  // namespace
}  // namespace tally::sim_driver
