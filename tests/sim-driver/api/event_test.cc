#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class EventTest : public DriverTest {};

TEST_F(EventTest, FollowsItsStream) {
  uint32_t* const flags = NewFlags();
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  EXPECT_OK(cuEventQuery(event));  // never recorded: nothing to wait for
  ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flags), Address(&flags[1]), 1U));
  EXPECT_OK(cuEventRecord(event, stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  Raise(flags);
  EXPECT_OK(cuEventSynchronize(event));
  EXPECT_OK(cuEventQuery(event));
  EXPECT_OK(cuEventDestroy_v2(event));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}

TEST_F(EventTest, OrdersStreams) {
  uint32_t* const flags = NewFlags();
  const CUdeviceptr out = Allocate(4);
  const CUstream first = NewStream(), second = NewStream();
  const CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, first, Address(flags), out, 20U));
  EXPECT_OK(cuEventRecord(event, first));
  EXPECT_OK(cuStreamWaitEvent(second, event, 0));
  EXPECT_OK(cuEventDestroy_v2(event));  // while pending
  ASSERT_OK(Launch("increment", 1, 1, second, out, 1U));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(second));
  EXPECT_EQ(21U, Read(out, 1)[0]);
}

TEST_F(EventTest, MeasuresTime) {
  const CUstream stream = NewStream();
  const CUevent start = NewEvent(), end = NewEvent(), untimed = NewEvent(CU_EVENT_DISABLE_TIMING);
  float milliseconds = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_OK(cuEventRecord(start, stream));
  EXPECT_OK(cuLaunchHostFunc(
      stream,
      [](void*) {
        timespec pause{.tv_sec = 0, .tv_nsec = 5'000'000};
        nanosleep(&pause, nullptr);
      },
      nullptr));
  EXPECT_OK(cuEventRecord(end, stream));
  EXPECT_OK(cuEventRecord(untimed, stream));
  EXPECT_OK(cuEventSynchronize(end));
  EXPECT_OK(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 5.0F);
  EXPECT_OK(cuEventElapsedTime_v2(&milliseconds, end, start));
  EXPECT_LE(milliseconds, -5.0F);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(nullptr, start, end));
}

TEST_F(EventTest, BelongsToItsContext) {
  const CUevent event = NewEvent();
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, nullptr));
  // Waiting across contexts is allowed.
  EXPECT_OK(cuStreamWaitEvent(nullptr, event, 0));
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, nullptr, 64));
}

}  // namespace
}  // namespace tally::sim_driver
