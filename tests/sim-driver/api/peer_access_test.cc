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
