#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class CaptureTest : public DriverTest {
 protected:
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  size_t NumNodes(CUgraph graph) {
    size_t count = 0;
    EXPECT_OK(cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
};

TEST_F(CaptureTest, RecordsInsteadOfRunning) {
  const CUdeviceptr out = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(out, 5, 1));
  EXPECT_OK(cuCtxSynchronize());
  Kernel("increment");
  const CUstream stream = NewStream();
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureStatus status{};
  EXPECT_OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_OK(cuMemsetD32Async(out, 100, 1, stream));
  EXPECT_OK(Launch("increment", 1, 1, stream, out, 1U));
  EXPECT_OK(Launch("increment", 1, 1, stream, out, 1U));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(stream, &graph));
  EXPECT_OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  EXPECT_EQ(5U, Read(out, 1)[0]);
  EXPECT_EQ(3U, NumNodes(graph));
  const CUgraphExec exec = Instantiate(graph);
  EXPECT_OK(cuGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) EXPECT_OK(cuGraphLaunch(exec, stream));
  EXPECT_OK(Launch("increment", 1, 1, stream, out, 1U));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(103U, Read(out, 1)[0]);
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(CaptureTest, ForkAndJoin) {
  const CUdeviceptr a = Allocate(4), b = Allocate(4);
  Kernel("fill");
  const CUstream origin = NewStream(), side = NewStream();
  const CUevent fork = NewEvent(), join = NewEvent();
  ASSERT_OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_OK(Launch("fill", 1, 1, origin, a, 1U, 1U));
  EXPECT_OK(cuEventRecord(fork, origin));
  EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
  CUstreamCaptureStatus status{};
  EXPECT_OK(cuStreamIsCapturing(side, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_OK(Launch("copy_word", 1, 1, side, b, a));
  EXPECT_OK(Launch("increment", 1, 1, side, b, 1U));
  EXPECT_OK(cuEventRecord(join, side));
  EXPECT_EQ(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
  EXPECT_OK(cuStreamWaitEvent(origin, join, 0));
  EXPECT_OK(Launch("increment", 1, 1, origin, b, 1U));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(origin, &graph));
  size_t edges = 0, roots = 0;
  EXPECT_OK(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(4U, edges);  // a -> copy -> increment -> last, a -> last
  EXPECT_OK(cuGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT_EQ(1U, roots);
  EXPECT_OK(cuStreamIsCapturing(side, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  EXPECT_OK(cuGraphLaunch(Instantiate(graph), origin));
  EXPECT_OK(cuStreamSynchronize(origin));
  EXPECT_EQ(3U, Read(b, 1)[0]);
}

TEST_F(CaptureTest, UnjoinedWorkIsAnError) {
  const CUdeviceptr a = Allocate(4);
  Kernel("fill");
  const CUstream origin = NewStream(), side = NewStream();
  const CUevent fork = NewEvent();
  ASSERT_OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuEventRecord(fork, origin));
  EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
  EXPECT_OK(Launch("fill", 1, 1, side, a, 1U, 1U));
  CUgraph graph = reinterpret_cast<CUgraph>(1);
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_OK(Launch("fill", 1, 1, side, a, 1U, 1U));
  EXPECT_OK(cuStreamSynchronize(side));
}

TEST_F(CaptureTest, CallsThatSpoilIt) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  const auto spoilt_by = [&](auto call, CUresult expected) {
    EXPECT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(expected, call());
    CUstreamCaptureStatus status{};
    EXPECT_OK(cuStreamIsCapturing(stream, &status));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(0, 0, 0, stream));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT_EQ(nullptr, graph);
  };
  spoilt_by([&] { return cuStreamSynchronize(stream); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  spoilt_by([&] { return cuStreamQuery(stream); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  spoilt_by([] { return cuCtxSynchronize(); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  spoilt_by(
      [] {
        CUdeviceptr address = 0;
        return cuMemAlloc_v2(&address, 4);
      },
      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_OK(cuStreamSynchronize(stream));
}

TEST_F(CaptureTest, LegacyStreamIsImplicit) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  const CUdeviceptr out = Allocate(4);
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status{};
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(nullptr, &status));
  EXPECT_OK(cuStreamIsCapturing(blocking, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(out, 0, 1, nullptr));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  // Beside a non-blocking one it is no problem.
  const CUstream free = NewStream();
  ASSERT_OK(cuStreamBeginCapture_v2(free, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemsetD32Async(out, 0, 1, nullptr));
  EXPECT_OK(cuStreamEndCapture(free, &graph));
  // But it cannot join.
  CUevent event = nullptr;
  ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuStreamBeginCapture_v2(free, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuEventRecord(event, free));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamWaitEvent(nullptr, event, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(free, &graph));
  EXPECT_OK(cuEventDestroy_v2(event));
}

TEST_F(CaptureTest, ModesAndThreads) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  // Relaxed: allocation is allowed.
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemAlloc_v2(&address, 4));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  // Thread-local: other threads may.
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([this, stream] {
    EXPECT_OK(cuCtxSetCurrent(context_));
    CUdeviceptr other = 0;
    EXPECT_OK(cuMemAlloc_v2(&other, 4));
    CUgraph none = nullptr;
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(stream, &none));
  }).join();
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  // A thread may say that it knows what it does.
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  EXPECT_OK(cuMemAlloc_v2(&address, 4));
  EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
}

TEST_F(CaptureTest, DependenciesFromOutside) {
  const CUstream stream = NewStream(), other = NewStream();
  const CUevent outside = NewEvent();
  CUgraph graph = nullptr;
  EXPECT_OK(cuEventRecord(outside, other));
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, outside, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  // Two captures do not merge.
  const CUevent event = NewEvent();
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuEventRecord(event, stream));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(other, event, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other, &graph));
  // Ending where it did not begin.
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuEventRecord(event, stream));
  EXPECT_OK(cuStreamWaitEvent(other, event, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
}

TEST_F(CaptureTest, InfoAndDependencies) {
  const CUstream stream = NewStream();
  const CUdeviceptr out = Allocate(4);
  Kernel("fill");
  CUgraph own = nullptr, seen = nullptr, ended = nullptr;
  ASSERT_OK(cuGraphCreate(&own, 0));
  CUgraphNode first = nullptr;
  ASSERT_OK(cuGraphAddEmptyNode(&first, own, nullptr, 0));
  ASSERT_OK(cuStreamBeginCaptureToGraph(stream, own, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  EXPECT_OK(cuStreamGetCaptureInfo_v3(stream, &status, &id, &seen, &dependencies, &edges, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_NE(0U, id);
  EXPECT_EQ(own, seen);
  ASSERT_EQ(1U, count);
  EXPECT_EQ(first, dependencies[0]);
  EXPECT_OK(Launch("fill", 1, 1, stream, out, 8U, 1U));
  EXPECT_OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &seen, &dependencies, &count));
  ASSERT_EQ(1U, count);
  CUgraphNode kernel = dependencies[0];
  EXPECT_NE(first, kernel);
  EXPECT_OK(cuStreamUpdateCaptureDependencies(stream, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  EXPECT_OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &seen, &dependencies, &count));
  EXPECT_EQ(2U, count);
  EXPECT_OK(cuStreamUpdateCaptureDependencies_v2(stream, &kernel, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  EXPECT_OK(cuStreamEndCapture(stream, &ended));
  EXPECT_EQ(own, ended);
  EXPECT_EQ(2U, NumNodes(own));
}

TEST_F(CaptureTest, StreamOrderedMemory) {
  const CUstream stream = NewStream();
  const CUdeviceptr out = Allocate(4);
  Kernel("fill");
  ASSERT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr scratch = 0;
  ASSERT_OK(cuMemAllocAsync(&scratch, 4, stream));
  EXPECT_OK(Launch("fill", 1, 1, stream, scratch, 31U, 1U));
  EXPECT_OK(cuMemcpyDtoDAsync_v2(out, scratch, 4, stream));
  EXPECT_OK(cuMemFreeAsync(scratch, stream));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(stream, &graph));
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(cuMemsetD32Async(out, 0, 1, stream));
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(31U, Read(out, 1)[0]);
  }
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
  // With the last graph the memory is gone.
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(scratch, 0, 1));
}

}  // namespace
}  // namespace tally::sim_driver
