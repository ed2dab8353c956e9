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
  const TimePoint now_ = SteadyClock().Now();
};

TEST_F(GapGuardTest, IsNotThereUntilItIsEnabled) {
  GapGuard guard(driver_);
  guard.Keep(now_);
  EXPECT_EQ(guard.num_launched(), 0u);
  guard.Enable(true);
  guard.Keep(now_);
  EXPECT_EQ(guard.num_launched(), 1u);
  guard.Lift();
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
}

TEST_F(GapGuardTest, IsRenewedHalfWayThroughItsLife) {
  GapGuard guard(driver_);
  guard.Enable(true);
  guard.Keep(now_);
  guard.Keep(now_ + GapGuard::kLongestLife / 2 - milliseconds(1));
  EXPECT_EQ(guard.num_launched(), 1u);
  guard.Keep(now_ + GapGuard::kLongestLife / 2);
  EXPECT_EQ(guard.num_launched(), 2u);
  guard.Lift();
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
}

TEST_F(GapGuardTest, EndsByItselfIfNobodyLiftsIt) {
  GapGuard guard(driver_);
  guard.Enable(true);
  const auto since = steady_clock::now();
  guard.Keep(now_);
  EXPECT_EQ(Finish(), CUDA_SUCCESS);
  EXPECT_GE(steady_clock::now() - since, GapGuard::kLongestLife);
}

TEST_F(GapGuardTest, AfterALiftTheNextOneIsNew) {
  GapGuard guard(driver_);
  guard.Enable(true);
  for (uint32_t i = 1; i <= 20; ++i) {
    guard.Keep(now_);
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
  guard.Keep(now_);
  guard.Keep(now_ + milliseconds(100));
  guard.Lift();
  EXPECT_EQ(guard.num_launched(), 0u);
}

}  // namespace
}  // namespace tally::server
