// Two software devices: a kernel may touch the other's memory once its context has asked. In a program of its own,
// because the number of devices is fixed when the driver starts.
#include <cstdlib>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class PeerAccessTest : public DriverTest {
 protected:
  static void SetUpTestSuite() { ::setenv("TALLY_SIM_DEVICES", "2", 1); }
  void SetUp() override {
    DriverTest::SetUp();
    memory_ = Allocate(64);
    ASSERT_OK(cuMemsetD32_v2(memory_, 5, 16));
    ASSERT_OK(cuCtxSynchronize());
    ASSERT_OK(cuDevicePrimaryCtxRetain(&other_, 1));
    ASSERT_OK(cuCtxSetCurrent(other_));
  }
  void TearDown() override {
    cuDevicePrimaryCtxReset_v2(1);
    DriverTest::TearDown();
  }
  CUresult IncrementFromOther() {
    if (const CUresult r = Launch("increment", 1, 32, nullptr, memory_, uint32_t{16}); r != CUDA_SUCCESS) return r;
    return cuCtxSynchronize();
  }

  CUcontext other_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(PeerAccessTest, IsRefusedUntilEnabled) {
  int can = 0;
  ASSERT_OK(cuDeviceCanAccessPeer(&can, 1, 0));
  EXPECT_EQ(can, 1);
  ASSERT_OK(cuDeviceCanAccessPeer(&can, 1, 1));
  EXPECT_EQ(can, 0);
  EXPECT_EQ(IncrementFromOther(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(PeerAccessTest, WorksOnceEnabledAndSaysSo) {
  EXPECT_EQ(cuCtxDisablePeerAccess(context_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  ASSERT_OK(cuCtxEnablePeerAccess(context_, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_OK(IncrementFromOther());
  EXPECT_EQ(Read(memory_, 16), std::vector<uint32_t>(16, 6));
  ASSERT_OK(cuCtxDisablePeerAccess(context_));
  EXPECT_EQ(IncrementFromOther(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Of mappings: each device has what cuMemSetAccess gave to it, whatever peers are enabled.
class MappedAccessTest : public PeerAccessTest {
 protected:
  static constexpr size_t kPage = 2 << 20;
  void SetUp() override {
    PeerAccessTest::SetUp();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    ASSERT_OK(cuMemCreate(&physical_, kPage, &properties, 0));
    ASSERT_OK(cuMemAddressReserve(&memory_, kPage, 0, 0, 0));
    ASSERT_OK(cuMemMap(memory_, kPage, 0, physical_, 0));
  }
  void TearDown() override {
    EXPECT_OK(cuMemUnmap(memory_, kPage));
    EXPECT_OK(cuMemAddressFree(memory_, kPage));
    EXPECT_OK(cuMemRelease(physical_));
    PeerAccessTest::TearDown();
  }
  void Give(int device, CUmemAccess_flags flags) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
    EXPECT_OK(cuMemSetAccess(memory_, kPage, &access, 1));
  }
  unsigned long long Access(int device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    unsigned long long access = 99;
    EXPECT_OK(cuMemGetAccess(&access, &location, memory_));
    return access;
  }
  CUmemGenericAllocationHandle physical_ = 0;
};

TEST_F(MappedAccessTest, IsTheDevicesOwn) {
  Give(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Access(1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_OK(cuMemsetD32_v2(memory_, 1, 0));
  EXPECT_EQ(IncrementFromOther(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MappedAccessTest, MayBeReadingOnly) {
  Give(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  Give(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(Access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Access(1), CU_MEM_ACCESS_FLAGS_PROT_READ);
  const CUdeviceptr own = Allocate(4);
  ASSERT_OK(Launch("copy_word", 1, 1, nullptr, own, memory_));
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(IncrementFromOther(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MappedAccessTest, CanBeTakenAwayAgain) {
  Give(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_OK(IncrementFromOther());
  Give(0, CU_MEM_ACCESS_FLAGS_PROT_READ);  // changes nothing for device 1
  ASSERT_OK(IncrementFromOther());
  EXPECT_EQ(Read(memory_, 1)[0], 2U);
  Give(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(IncrementFromOther(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(PeerAccessTest, FillsNeedItToo) {
  EXPECT_EQ(cuMemsetD32_v2(memory_, 7, 16), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuCtxEnablePeerAccess(context_, 0));
  ASSERT_OK(cuMemsetD32_v2(memory_, 7, 16));
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(Read(memory_, 16), std::vector<uint32_t>(16, 7));
}

TEST_F(PeerAccessTest, CopiesNeedNoAccess) {
  CUdeviceptr here = Allocate(64);
  ASSERT_OK(cuMemcpyDtoD_v2(here, memory_, 64));
  EXPECT_EQ(Read(here, 16), std::vector<uint32_t>(16, 5));
}

}  // namespace
}  // namespace tally::sim_driver
