// TALLY_SIM_WAITS=2: launches wait for a call that waits, in all contexts. In a program of its own, because the driver
// reads that once.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class DriverWaitsTest : public DriverTest {
 protected:
  static void SetUpTestSuite() { ::setenv("TALLY_SIM_WAITS", "2", 1); }

  // Launches in `context` until it is told to end.
  struct Launcher {
    explicit Launcher(CUcontext context) : thread([this, context] { Work(context); }) {}
    ~Launcher() {
      ends = true;
      thread.join();
    }
    void Work(CUcontext context) {
      CUmodule module = nullptr;
      CUfunction function = nullptr;
      CUdeviceptr out = 0;
      EXPECT_OK(cuCtxSetCurrent(context));
      EXPECT_OK(cuModuleLoadData(&module, kTestPtx));
      EXPECT_OK(cuModuleGetFunction(&function, module, "count_blocks"));
      EXPECT_OK(cuMemAlloc_v2(&out, 4));
      CUstream stream = nullptr;
      EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      void* parameters[] = {&out};
      for (; !ends; ++num_launches) {
        EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
        EXPECT_OK(cuStreamSynchronize(stream));
      }
    }
    // For 50 ms, within 10 s.
    bool StandsStill() const {
      const auto until = steady_clock::now() + seconds(10);
      while (steady_clock::now() < until) {
        const uint64_t before = num_launches;
        std::this_thread::sleep_for(milliseconds(50));
        if (num_launches == before) return true;
      }
      return false;
    }
    void AwaitMore() const {
      const uint64_t before = num_launches;
      while (num_launches <= before + 1) std::this_thread::yield();
    }

    std::atomic<bool> ends = false;
    std::atomic<uint64_t> num_launches = 0;
    std::thread thread;
  };

  void ExpectThatLaunchesWait(CUcontext where) {
    uint32_t* const flag = NewFlags();
    const CUdeviceptr freed = Allocate(64);
    const CUstream stream = NewStream();
    Launcher launcher(where);
    launcher.AwaitMore();
    ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flag), Address(flag + 1), uint32_t{1}));
    launcher.AwaitMore();
    std::thread waiting([this, freed] {
      EXPECT_OK(cuCtxSetCurrent(context_));
      EXPECT_OK(cuMemFree_v2(freed));
    });
    EXPECT_TRUE(launcher.StandsStill());
    EXPECT_EQ(Peek(flag + 1), 0u);
    Raise(flag);
    waiting.join();
    launcher.AwaitMore();
  }
};

TEST_F(DriverWaitsTest, LaunchesOfTheSameContext) { ExpectThatLaunchesWait(context_); }

TEST_F(DriverWaitsTest, LaunchesOfAnother) {
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  ASSERT_OK(cuCtxSetCurrent(context_));
  ExpectThatLaunchesWait(other);
  EXPECT_OK(cuCtxDestroy_v2(other));
}

}  // namespace
}  // namespace tally::sim_driver
