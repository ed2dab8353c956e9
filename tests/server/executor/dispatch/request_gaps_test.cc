// Which gaps and requests of a session a PolicyDispatch counts, where the GPU may be held.
#include <gtest/gtest.h>

#include <memory>

#include "server/executor/dispatch/policy_dispatch.h"
#include "server/executor/driver/devices.h"
#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/server/executor/driver/held_gpu.h"
#include "tests/support/still_clock.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;

class RequestGapsTest : public testing::Test {
 protected:
  void SetUp() override {
    ScriptedGpu::Reset();
    HeldGpu::Fill(table_);
    auto page = ActivityPage::Open(directory_.path() + "/activity");
    ASSERT_TRUE(page) << page.error().ToString();
    admission_ = CreatePolicyDispatch(table_, *devices_, std::move(*page), **scheduler::FindPolicy("look-ahead"), {},
                                      clock_, true);
    admission_->AllowHolding(1);
    tenant_ = admission_->AddTenant({});
    ScriptedGpu::Stop();  // nobody sees an end: requests follow one another at once
  }
  void TearDown() override {
    ScriptedGpu::Go();
    tenant_.reset();
    admission_.reset();
  }
  void Launch() {
    DispatchPlace place;
    place.is_high_priority = true;
    place.stream = reinterpret_cast<CUstream>(1);
    place.tenant = tenant_.get();
    const DispatchPass pass = admission_->BeforeDispatch(place, {});
    ASSERT_TRUE(pass.may_go);
    admission_->AfterDispatch(place, pass);
  }
  uint64_t NumGaps() {
    const FigureCounters& figures = tenant_->figures;
    return figures["gaps_by_rule"] + figures["gaps_by_guard"] + figures["gaps_hit"] + figures["gaps_late"];
  }

  const TemporaryDirectory directory_;
  StillClock clock_;
  DriverTable table_ = ScriptedGpu::Table();
  const std::unique_ptr<Devices> devices_ = *Devices::Create(table_);
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<AdmissionTenant> tenant_;
};

TEST_F(RequestGapsTest, ARequestHasOneGapHoweverManyLaunches) {
  for (int request = 0; request < 3; ++request) {
    for (int i = 0; i < 5; ++i) Launch();
    EXPECT_EQ(NumGaps(), static_cast<uint64_t>(request));
    tenant_->OnRequest(microseconds(100));
  }
}

// Until gaps are known nothing would be held, and a request says nothing of holding.
TEST_F(RequestGapsTest, ARequestCountsOnceItsGapsWouldBeHeld) {
  Launch();
  tenant_->OnRequest(microseconds(100));
  EXPECT_EQ(tenant_->figures["requests_gaps_open"], 0u);
  Launch();
  tenant_->OnRequest(microseconds(100));
  EXPECT_EQ(tenant_->figures["requests_gaps_open"], 1u);
  admission_->AllowHolding(0);
  Launch();
  tenant_->OnRequest(microseconds(100));
  EXPECT_EQ(tenant_->figures["requests_gaps_open"], 1u) << "there is nobody to hold it against";
}

}  // namespace
}  // namespace tally::server
