#include "server/gpu/priority_dispatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/gpu/driver_table.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

// A GPU whose work completes when the test says so. One at a time: the driver's functions take no state of ours.
class Gpu {
 public:
  static DriverTable Table() {
    DriverTable table{};
    table.cuCtxGetCurrent = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    table.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    table.cuEventCreate = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(++num_events);
      return CUDA_SUCCESS;
    };
    table.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    table.cuEventSynchronize = [](CUevent) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [] { return is_done; });
      return CUDA_SUCCESS;
    };
    table.cuEventQuery = [](CUevent) {
      const std::lock_guard lock(mutex);
      return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    return table;
  }
  static void SetDone(bool done) {
    const std::lock_guard lock(mutex);
    is_done = done;
    changed.notify_all();
  }

 private:
  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool is_done = true;
  static inline std::atomic<uintptr_t> num_events{0};
};

class PriorityDispatchTest : public testing::Test {
 protected:
  PriorityDispatchTest() { Gpu::SetDone(true); }
  std::unique_ptr<DispatchGate> NewExecutorsGate() {
    auto page = ActivityPage::Open(directory_ + "/activity");
    EXPECT_TRUE(page) << page.error().ToString();
    return CreatePriorityDispatch(table_, std::move(*page));
  }

  static constexpr DispatchOf kHigh{.device = 0, .is_high_priority = true};
  static constexpr DispatchOf kBestEffort{.device = 0, .is_high_priority = false};
  const DriverTable table_ = Gpu::Table();
  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(PriorityDispatchTest, BestEffortAloneIsNeverHeldBack) {
  auto gate = NewExecutorsGate();
  Gpu::SetDone(false);
  for (int launch = 0; launch < 1000; ++launch) {
    gate->BeforeDispatch(kBestEffort);
    gate->AfterDispatch(kBestEffort, {});
  }
  Gpu::SetDone(true);
}

TEST_F(PriorityDispatchTest, BestEffortWaitsForAnotherExecutorsHighPriorityWork) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  Gpu::SetDone(false);
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  std::atomic<bool> dispatched{false};
  std::thread launcher([&] {
    best_effort->BeforeDispatch(kBestEffort);
    dispatched = true;
    best_effort->AfterDispatch(kBestEffort, {});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(dispatched) << "high-priority work is still on the GPU";
  Gpu::SetDone(true);
  launcher.join();
  EXPECT_TRUE(dispatched);
}

TEST_F(PriorityDispatchTest, BothClassesInOneExecutorKeepTheRule) {
  auto gate = NewExecutorsGate();
  Gpu::SetDone(false);
  gate->BeforeDispatch(kHigh);
  gate->AfterDispatch(kHigh, {});
  gate->BeforeDispatch(kHigh);  // high-priority work never waits
  gate->AfterDispatch(kHigh, {});
  std::thread launcher([&] {
    gate->BeforeDispatch(kBestEffort);
    gate->AfterDispatch(kBestEffort, {});
  });
  Gpu::SetDone(true);
  launcher.join();
}

TEST_F(PriorityDispatchTest, ShutdownEndsTheWait) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  Gpu::SetDone(false);
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  std::thread launcher([&] {
    best_effort->BeforeDispatch(kBestEffort);
    best_effort->AfterDispatch(kBestEffort, {});
  });
  best_effort->Open();
  launcher.join();
  Gpu::SetDone(true);
}

TEST_F(PriorityDispatchTest, AKernelThatWaitsForALaterOneIsNotWaitedForForever) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  best_effort->BeforeDispatch(kBestEffort);
  best_effort->AfterDispatch(kBestEffort, {});
  Gpu::SetDone(false);  // from here on nothing completes: what is in flight waits for what is yet to be launched
  for (int launch = 0; launch < 12; ++launch) {
    best_effort->BeforeDispatch(kBestEffort);
    best_effort->AfterDispatch(kBestEffort, {});
  }
  Gpu::SetDone(true);
}

}  // namespace
}  // namespace tally::server
