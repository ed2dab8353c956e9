// The software GPU, and what watches over best-effort kernels, where the machine has no more threads to give. In one
// process, in this order: threads of the software GPU stay once they run.
#include "tests/server/executor/fakes/task_limit.h"

#include <gtest/gtest.h>

#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/high_priority_announcer.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/issue/gated_queues.h"
#include "server/executor/issue/persistent_runs.h"
#include "server/executor/issue/variant_compiler.h"
#include "tests/server/executor/fakes/scripted_watch.h"
#include "tests/server/executor/issue/sim_device.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using fakes::TaskLimit;

constexpr const char* kCount = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 at) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [at];
  mov.u32 %r1, 1;
  red.global.add.u32 [%rd1], %r1;
  ret;
}
)";

TEST(SoftwareGpuAtTheTaskLimit, ContextsAreOutOfMemoryUntilOneThreadOfEachKindRunsAndThenWork) {
  auto loaded = LoadDriver({.choice = control::DriverChoice::kSim, .cuda_path = {}, .sim_path = TALLY_SIM_DRIVER_PATH});
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  const DriverTable& driver = loaded->table;
  constexpr int kKinds = 4;  // what waits for words, copies, host functions, blocks
  CUcontext context = nullptr;
  for (int num_running = 0; num_running < kKinds; ++num_running) {
    const TaskLimit limit(num_running == 0 ? 0 : 1);  // each attempt gets one thread further
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY) << num_running;
    EXPECT_EQ(limit.num_refused(), 1);
  }
  const TaskLimit limit(1);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr cell = 0;
  ASSERT_EQ(driver.cuModuleLoadDataEx(&module, kCount, 0, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuModuleGetFunction(&function, module, "count"), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemAlloc_v2(&cell, 4), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemsetD32Async(cell, 0, 1, stream), CUDA_SUCCESS);
  CUlaunchConfig launch{};
  launch.gridDimX = 100;
  launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  launch.hStream = stream;
  void* parameters[] = {&cell};
  ASSERT_EQ(driver.cuLaunchKernelEx(&launch, function, parameters, nullptr), CUDA_SUCCESS);
  bool was_called = false;
  const auto call = [](void* called) { *static_cast<bool*>(called) = true; };
  ASSERT_EQ(driver.cuLaunchHostFunc(stream, call, &was_called), CUDA_SUCCESS);
  uint32_t count = 0;
  ASSERT_EQ(driver.cuMemcpyDtoHAsync_v2(&count, cell, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(count, 100u);
  EXPECT_TRUE(was_called);
}

class TaskLimitTest : public SimDeviceTest {
 protected:
  const SteadyClock clock_;
  ScriptedWatch watch_;
};

TEST_F(TaskLimitTest, KernelsRunAsTheyAreWhereNothingCanWatchThem) {
  const TaskLimit limit;
  EXPECT_EQ(GatedQueues::Create(
                driver_, *completions_, context_, 0, &watch_, [](CUresult) {}, clock_),
            nullptr);
  EXPECT_EQ(PersistentRuns::Create(
                driver_, *completions_, context_, 0, &watch_, [](CUresult) {}, clock_),
            nullptr);
  EXPECT_GE(limit.num_refused(), 2) << "the software driver may want one more meanwhile";
}

TEST_F(TaskLimitTest, VariantsAreMadeOnceThereIsAThread) {
  VariantCompiler compiler(driver_, "");
  std::atomic<int> num_run = 0;
  {
    const TaskLimit limit;
    compiler.Post([&] { ++num_run; });
    EXPECT_EQ(limit.num_refused(), 1);
  }
  EXPECT_EQ(num_run, 0);
  compiler.Post([&] { ++num_run; });
  Await([&] { return num_run == 2; });
}

// Announced work whose end nobody sees would hold best-effort work back for ever.
TEST_F(TaskLimitTest, WorkThatNobodyCanWatchIsNotAnnounced) {
  const TemporaryDirectory directory;
  auto page = ActivityPage::Open(directory.path() + "/activity");
  ASSERT_TRUE(page) << page.error().ToString();
  auto devices = Devices::Create(driver_);
  ASSERT_TRUE(devices) << devices.error().ToString();
  HighPriorityAnnouncer announcer(driver_, **devices, **page, clock_);
  const CUstream stream = Stream();
  FigureCounters figures;
  {
    const TaskLimit limit;
    announcer.BeforeDispatch(0, {false, false, figures});
    EXPECT_FALSE((*page)->IsBusy(0));
    announcer.AfterDispatch(0, stream);
    EXPECT_FALSE((*page)->IsBusy(0));
  }
  announcer.BeforeDispatch(0, {false, false, figures});
  EXPECT_TRUE((*page)->IsBusy(0));
  announcer.AfterDispatch(0, stream);
  Await([&] { return !(*page)->IsBusy(0); });
}

}  // namespace
}  // namespace tally::server
