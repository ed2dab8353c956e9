#include "server/gpu/gap_guard.h"

#include <gtest/gtest.h>

#include "tests/server/variants/sim_device.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class GapGuardTest : public SimDeviceTest {
 protected:
  CUresult Finish() { return driver_.cuCtxSynchronize(); }
  ManualClock clock_;
};

TEST_F(GapGuardTest, IsNotThereUntilItIsEnabled) {
  GapGuard guard(driver_);
  guard.Keep(clock_);
  EXPECT_EQ(guard.num_launched(), 0u);
  guard.Enable(true);
  guard.Keep(clock_);
  EXPECT_EQ(guard.num_launched(), 1u);
  guard.Lift();
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
}

TEST_F(GapGuardTest, IsRenewedHalfWayThroughItsLife) {
  GapGuard guard(driver_);
  guard.Enable(true);
  guard.Keep(clock_);
  clock_.Advance(GapGuard::kLongestLife / 2 - milliseconds(1));
  guard.Keep(clock_);
  EXPECT_EQ(guard.num_launched(), 1u);
  clock_.Advance(milliseconds(1));
  guard.Keep(clock_);
  EXPECT_EQ(guard.num_launched(), 2u);
  guard.Lift();
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
}

TEST_F(GapGuardTest, EndsByItselfIfNobodyLiftsIt) {
  GapGuard guard(driver_);
  guard.Enable(true);
  const auto since = steady_clock::now();
  guard.Keep(clock_);
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
  EXPECT_GE(steady_clock::now() - since, GapGuard::kLongestLife);
}

TEST_F(GapGuardTest, AfterALiftTheNextOneIsNew) {
  GapGuard guard(driver_);
  guard.Enable(true);
  for (uint32_t i = 1; i <= 20; ++i) {
    guard.Keep(clock_);
    EXPECT_EQ(guard.num_launched(), i);
    guard.Lift();
    guard.Lift();
  }
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
}

TEST_F(GapGuardTest, DoesWithoutWhereItCannotBeLaunched) {
  driver_.cuMemHostAlloc = [](void**, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  GapGuard guard(driver_);
  guard.Enable(true);
  guard.Keep(clock_);
  clock_.Advance(milliseconds(100));
  guard.Keep(clock_);
  guard.Lift();
  EXPECT_EQ(guard.num_launched(), 0u);
}

}  // namespace
}  // namespace tally::server
