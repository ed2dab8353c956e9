#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class StreamTest : public DriverTest {};

TEST_F(StreamTest, Properties) {
  int least = 9, greatest = 9;
  EXPECT_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(0, least);
  EXPECT_EQ(-5, greatest);
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  unsigned flags = 0;
  CUcontext context = nullptr;
  CUdevice device = -1;
  unsigned long long id = 0, other_id = 0;
  EXPECT_OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(-5, priority);
  EXPECT_OK(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(static_cast<unsigned>(CU_STREAM_NON_BLOCKING), flags);
  EXPECT_OK(cuStreamGetCtx(stream, &context));
  EXPECT_EQ(context_, context);
  EXPECT_OK(cuStreamGetDevice(stream, &device));
  EXPECT_EQ(0, device);
  EXPECT_OK(cuStreamGetId(stream, &id));
  EXPECT_OK(cuStreamGetId(nullptr, &other_id));
  EXPECT_NE(id, other_id);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 8));
}

TEST_F(StreamTest, BogusHandlesAreRefused) {
  for (const uint64_t value : {uint64_t{3}, uint64_t{0x1234}, uint64_t{0x7a11000000000010}, ~uint64_t{0}}) {
    const auto stream = reinterpret_cast<CUstream>(value);
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(reinterpret_cast<CUevent>(value)));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(reinterpret_cast<CUmodule>(value)));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(reinterpret_cast<CUcontext>(value)));
    EXPECT_NE(CUDA_SUCCESS, cuGraphDestroy(reinterpret_cast<CUgraph>(value)));
    EXPECT_NE(CUDA_SUCCESS, cuGraphLaunch(reinterpret_cast<CUgraphExec>(value), nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
              cuLaunchKernel(reinterpret_cast<CUfunction>(value), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  }
  const CUstream stream = NewStream();
  EXPECT_OK(cuStreamDestroy_v2(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
  // A handle of one kind is none of another.
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(reinterpret_cast<CUstream>(NewEvent())));
}

TEST_F(StreamTest, WorkIsAsynchronousAndInOrder) {
  uint32_t* const flags = NewFlags();
  const CUdeviceptr out = Allocate(4);
  const CUstream stream = NewStream();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flags), out, 10U));
  for (int i = 0; i < 5; ++i) ASSERT_OK(Launch("increment", 1, 1, stream, out, 1U));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuStreamQuery(stream));
  EXPECT_EQ(15U, Read(out, 1)[0]);
}

TEST_F(StreamTest, StreamsOverlap) {
  // Each kernel waits for what the other stream's kernel writes: only both at once can end.
  uint32_t* const flags = NewFlags();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(&flags[0]), Address(&flags[1]), 1U));
  ASSERT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(&flags[1]), Address(&flags[2]), 1U));
  Raise(&flags[0]);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(1U, flags[2]);
}

TEST_F(StreamTest, ManyConcurrentSpinningKernelsDoNotStarveOthers) {
  uint32_t* const flags = NewFlags();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(Launch("wait_for_flag", 1, 32, NewStream(), Address(&flags[0]), Address(&flags[1]), 1U));
  }
  const CUstream stream = NewStream();
  const CUdeviceptr out = Allocate(4);
  ASSERT_OK(Launch("fill", 1, 1, stream, out, 3U, 1U));
  EXPECT_OK(cuStreamSynchronize(stream));
  Raise(&flags[0]);
  EXPECT_OK(cuCtxSynchronize());
}

TEST_F(StreamTest, LegacyStreamJoinsBlockingStreams) {
  uint32_t* const flags = NewFlags();
  const CUdeviceptr out = Allocate(4);
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  const CUstream free = NewStream(CU_STREAM_NON_BLOCKING);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, blocking, Address(flags), out, 1U));
  ASSERT_OK(Launch("increment", 1, 1, nullptr, out, 1U));               // waits for `blocking`
  ASSERT_OK(Launch("increment", 1, 1, CU_STREAM_PER_THREAD, out, 1U));  // waits for the legacy stream
  ASSERT_OK(Launch("fill", 1, 1, free, Address(&flags[1]), 4U, 1U));    // waits for nobody
  EXPECT_OK(cuStreamSynchronize(free));
  EXPECT_EQ(4U, flags[1]);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(3U, Read(out, 1)[0]);
}

TEST_F(StreamTest, DestroyedStreamFinishesItsWork) {
  uint32_t* const flags = NewFlags();
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flags), Address(&flags[1]), 8U));
  EXPECT_OK(cuStreamDestroy_v2(stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  Raise(flags);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(8U, flags[1]);
}

TEST_F(StreamTest, HostFunctionsRunInOrder) {
  struct Log {
    std::mutex mutex;
    std::vector<int> seen;
  } log;
  struct Note {
    Log* log;
    int number;
  };
  std::vector<Note> notes;
  for (int i = 0; i < 50; ++i) notes.push_back({&log, i});
  const CUstream stream = NewStream();
  for (Note& note : notes) {
    EXPECT_OK(cuLaunchHostFunc(
        stream,
        [](void* argument) {
          const auto* const one = static_cast<Note*>(argument);
          const std::lock_guard lock(one->log->mutex);
          one->log->seen.push_back(one->number);
        },
        &note));
  }
  EXPECT_OK(cuStreamSynchronize(stream));
  ASSERT_EQ(50U, log.seen.size());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(i, log.seen[static_cast<size_t>(i)]);
}

TEST_F(StreamTest, CallbackIsToldOfAFault) {
  const CUdeviceptr address = Allocate(4);
  EXPECT_OK(cuMemFree_v2(address));
  const CUstream stream = NewStream();
  ASSERT_OK(Launch("store_at", 1, 1, stream, address));
  std::atomic<int> status{-1};
  std::atomic<int> host_function_runs{0};
  // The fault may already have come: then the calls themselves fail.
  const CUresult added = cuStreamAddCallback(
      stream,
      [](CUstream, CUresult result, void* argument) { static_cast<std::atomic<int>*>(argument)->store(result); },
      &status, 0);
  cuLaunchHostFunc(
      stream, [](void* argument) { ++*static_cast<std::atomic<int>*>(argument); }, &host_function_runs);
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  if (added == CUDA_SUCCESS) {
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, status.load());
  }
  EXPECT_EQ(0, host_function_runs.load());
}

// What does not pass does once the value fits.
TEST_F(StreamTest, ValuesAreWaitedForAsTheyCompare) {
  struct Case {
    uint32_t found, wanted;
    unsigned flags;
    bool passes;
  };
  constexpr Case kCases[] = {
      {5, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
      {4, 5, CU_STREAM_WAIT_VALUE_GEQ, false},
      {1, 0xFFFFFFFF, CU_STREAM_WAIT_VALUE_GEQ, true},   // counters wrap around
      {0xFFFFFFFF, 1, CU_STREAM_WAIT_VALUE_GEQ, false},  // likewise
      {6, 5, CU_STREAM_WAIT_VALUE_EQ, false},
      {6, 4, CU_STREAM_WAIT_VALUE_AND, true},
      {6, 1, CU_STREAM_WAIT_VALUE_AND, false},
      {0xFFFF0000, 0x0000FFFE, CU_STREAM_WAIT_VALUE_NOR, true},
      {0xFFFF0000, 0x0000FFFF, CU_STREAM_WAIT_VALUE_NOR, false},
  };
  uint32_t* const flags = NewFlags();
  for (const Case& c : kCases) {
    const CUstream stream = NewStream();
    __atomic_store_n(flags, c.found, __ATOMIC_RELEASE);
    ASSERT_OK(cuStreamWaitValue32_v2(stream, Address(flags), c.wanted, c.flags));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(c.passes ? 20'000 : 30);
    CUresult state = CUDA_ERROR_NOT_READY;
    while (state == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < limit) state = cuStreamQuery(stream);
    EXPECT_EQ(state, c.passes ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY) << c.found << " " << c.wanted << " " << c.flags;
    __atomic_store_n(flags, c.flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : c.wanted, __ATOMIC_RELEASE);
    EXPECT_OK(cuStreamSynchronize(stream));
  }
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyOneAlsoBehindWorkOfTheirOwn) {
  uint32_t* const flags = NewFlags();
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(&flags[0]), Address(&flags[1]), 1U));
  ASSERT_OK(Launch("wait_for_flag", 1, 1, nullptr, Address(&flags[2]), Address(&flags[3]), 1U));
  ASSERT_OK(Launch("fill", 1, 1, stream, Address(&flags[4]), 7U, 1U));
  Raise(&flags[0]);
  while (Peek(&flags[1]) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(0U, Peek(&flags[4]));
  Raise(&flags[2]);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(7U, Peek(&flags[4]));
}

TEST_F(StreamTest, MemoryOperations) {
  uint32_t* const flags = NewFlags();
  const CUstream waiting = NewStream(), writing = NewStream();
  const CUdeviceptr out = Allocate(8);
  EXPECT_OK(cuMemsetD32_v2(out, 0, 2));
  EXPECT_OK(cuCtxSynchronize());  // the streams do not wait for the legacy one
  EXPECT_OK(cuStreamWaitValue32_v2(waiting, Address(flags), 5, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_OK(Launch("increment", 1, 1, waiting, out, 1U));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
  EXPECT_OK(cuStreamWriteValue32_v2(writing, Address(flags), 4, 0));
  EXPECT_OK(cuStreamSynchronize(writing));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
  EXPECT_OK(cuStreamWriteValue32_v2(writing, Address(flags), 7, 0));
  EXPECT_OK(cuStreamSynchronize(waiting));
  EXPECT_EQ(1U, Read(out, 1)[0]);

  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                         .address = Address(flags),
                         .value64 = 1ULL << 40,
                         .flags = 0,
                         .alias = 0};
  batch[1].waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
                        .address = Address(flags),
                        .value64 = 1ULL << 40,
                        .flags = CU_STREAM_WAIT_VALUE_AND,
                        .alias = 0};
  batch[2].writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                         .address = Address(&flags[4]),
                         .value64 = 66,
                         .flags = 0,
                         .alias = 0};
  EXPECT_OK(cuStreamBatchMemOp_v2(waiting, 3, batch, 0));
  EXPECT_OK(cuStreamSynchronize(waiting));
  EXPECT_EQ(66U, flags[4]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(writing, Address(flags) + 2, 7, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(writing, 4096, 7, 0));
}

TEST_F(StreamTest, ThreadsShareOneContext) {
  // Many threads, each with its own stream and buffer; sanitizers watch.
  constexpr int kNumThreads = 8;
  Kernel("increment");
  std::vector<std::thread> threads;
  std::vector<uint32_t> results(kNumThreads);
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([this, t, &results] {
      ASSERT_OK(cuCtxSetCurrent(context_));
      const CUstream stream = NewStream();
      CUdeviceptr address = 0;
      ASSERT_OK(cuMemAllocAsync(&address, 4, stream));
      ASSERT_OK(cuMemsetD32Async(address, 0, 1, stream));
      for (int i = 0; i < 50; ++i) {
        ASSERT_OK(Launch("increment", 1, 1, stream, address, 1U));
        const CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
        ASSERT_OK(cuEventRecord(event, stream));
        ASSERT_OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        ASSERT_OK(cuEventDestroy_v2(event));
      }
      ASSERT_OK(cuMemcpyDtoHAsync_v2(&results[static_cast<size_t>(t)], address, 4, stream));
      ASSERT_OK(cuMemFreeAsync(address, stream));
      ASSERT_OK(cuStreamSynchronize(stream));
      ASSERT_OK(cuStreamDestroy_v2(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint32_t result : results) EXPECT_EQ(50U, result);
}

}  // namespace
}  // namespace tally::sim_driver
