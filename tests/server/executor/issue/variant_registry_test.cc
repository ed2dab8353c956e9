#include "server/executor/issue/variant_registry.h"

#include <gtest/gtest.h>

#include "server/executor/driver/devices.h"
#include "tests/server/executor/fakes/scripted_watch.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

using std::chrono::hours;

class VariantRegistryTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    auto devices = Devices::Create(driver_);
    ASSERT_TRUE(devices) << devices.error().ToString();
    devices_ = std::move(*devices);
  }
  std::unique_ptr<VariantRegistry> Make(std::chrono::nanoseconds gates_rest_after, HighPriorityWatch* watch) {
    VariantConfig config;
    config.transforms = control::Transforms::kGate;
    config.is_software = true;
    config.gates_rest_after = gates_rest_after;
    return std::make_unique<VariantRegistry>(driver_, *devices_, watch, clock_, config, [](CUresult) {});
  }

  std::unique_ptr<Devices> devices_;
  const SteadyClock clock_;
  ScriptedWatch watch_;
};

TEST_F(VariantRegistryTest, NothingIsStoppedForNobody) {
  EXPECT_FALSE(Make(hours(0), nullptr)->MayGate(0));
  EXPECT_TRUE(Make(hours(0), &watch_)->MayGate(0));
}

TEST_F(VariantRegistryTest, GatesRestOnceNoHighPriorityWorkHasComeForLong) {
  const auto registry = Make(std::chrono::milliseconds(1), &watch_);  // the watch says that it has been open since 1970
  EXPECT_FALSE(registry->MayGate(0));
  watch_.SetClosed(true);
  EXPECT_TRUE(registry->MayGate(0));
}

// On all devices alike.
class WatchOfAll final : public ScriptedWatch {
 public:
  bool IsHighPriorityPresent(int) override { return true; }
  bool IsClosed(int) override { return true; }
};

TEST_F(VariantRegistryTest, GatesRestWhereContextsAreDescheduled) {
  WatchOfAll watch;
  const auto registry = Make(std::chrono::milliseconds(1), &watch);
  registry->ExpectDescheduling(0, true);
  EXPECT_FALSE(registry->MayGate(0));
  EXPECT_TRUE(registry->MayGate(1));
  EXPECT_EQ(registry->PreemptibilityLeft(0, Preemptibility::kGraph), Preemptibility::kDescheduling);
  EXPECT_EQ(registry->PreemptibilityLeft(1, Preemptibility::kGraph), Preemptibility::kGraph);
  registry->ExpectDescheduling(0, false);
  EXPECT_TRUE(registry->MayGate(0));
}

TEST_F(VariantRegistryTest, GatesThatNeverRestDoNotRestThereEither) {
  const auto registry = Make(hours(0), &watch_);
  registry->ExpectDescheduling(0, true);
  EXPECT_TRUE(registry->MayGate(0));
}

}  // namespace
}  // namespace tally::server
