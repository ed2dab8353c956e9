// The rules of captures that the client keeps by itself.
#include <gtest/gtest.h>

#include <thread>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

void ScriptCaptures(FakeExecutor* executor) {
  ScriptStreams(executor);
  ScriptMemory(executor);
  executor->On(shm::Op::kCaptureState, [](const FakeRequest&, FakeReply* reply) {
    shm::CaptureState state{};
    state.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    reply->Append(state);
  });
  executor->On(shm::Op::kEndCapture, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kGraph, 0, true, 1));
  });
}

CUresult BeginCapture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  return SHIM(cuStreamBeginCapture_v2)(stream, mode);
}

// It would have to wait for the stream, which runs nothing: what was captured lacks the copy.
TEST(Capture, ARefusedBlockingCopyOfPageableMemorySpoilsIt) {
  FakeExecutor executor;
  ScriptCaptures(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr memory = 0;
                         char bytes[64] = {};
                         CUgraph graph = nullptr;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, sizeof(bytes)) == CUDA_SUCCESS);
                         const auto up = SHIM_VARIANT(cuMemcpyHtoD_v2, "_ptds");
                         const auto down = SHIM_VARIANT(cuMemcpyDtoH_v2, "_ptds");
                         for (const bool is_up : {true, false}) {
                           REQUIRE(BeginCapture(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
                           REQUIRE((is_up ? up(memory, bytes, sizeof(bytes)) : down(bytes, memory, sizeof(bytes))) ==
                                   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                           REQUIRE(SHIM(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &graph) ==
                                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                           REQUIRE(graph == nullptr);
                         }
                         REQUIRE(up(memory, bytes, sizeof(bytes)) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

// One word stands for the per-thread streams of all threads.
TEST(Capture, ThreadsCaptureTheirPerThreadStreamsApart) {
  FakeExecutor executor;
  ScriptCaptures(&executor);
  EXPECT_EQ(
      RunInChild(executor.socket_path(),
                 [] {
                   if (Begin() != 0) return 1;
                   CUgraph graph = nullptr;
                   REQUIRE(BeginCapture(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
                   const auto other = [] {
                     if (Begin() != 0) return 1;
                     CUgraph own = nullptr;
                     REQUIRE(BeginCapture(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
                     REQUIRE(SHIM(cuStreamSynchronize)(CU_STREAM_PER_THREAD) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                     REQUIRE(SHIM(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &own) ==
                             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                     return 0;
                   };
                   int failed = 1;
                   std::thread([&] { failed = other(); }).join();
                   REQUIRE(failed == 0);
                   REQUIRE(SHIM(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS);
                   REQUIRE(graph != nullptr);
                   return 0;
                 }),
      0);
}

TEST(Capture, EndsWithItsStream) {
  FakeExecutor executor;
  ScriptCaptures(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         CUdeviceptr memory = 0;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         REQUIRE(BeginCapture(stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                         REQUIRE(SHIM(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

TEST(Capture, OnlyItsThreadEndsIt) {
  FakeExecutor executor;
  ScriptCaptures(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         const auto end_elsewhere = [&](CUstreamCaptureMode mode) {
                           if (BeginCapture(stream, mode) != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
                           CUresult result = CUDA_ERROR_UNKNOWN;
                           std::thread([&] {
                             CUgraph graph = nullptr;
                             if (Begin() == 0) result = SHIM(cuStreamEndCapture)(stream, &graph);
                           }).join();
                           return result;
                         };
                         CUgraph graph = nullptr;
                         for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
                           REQUIRE(end_elsewhere(mode) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
                           REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
                         }
                         REQUIRE(end_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, UnsafeCallSpoilsAGlobalCapture) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  executor.On(shm::Op::kCreateStream, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kStream, 0, true, 1));
  });
  executor.On(shm::Op::kEndCapture, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kGraph, 0, true, 1));
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         CUdeviceptr memory = 0;
                         CUgraph graph = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                         REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                         REQUIRE(graph == nullptr);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS && graph != nullptr);
                         return 0;
                       }),
            0);
}

// Who asks for what a stream depends on, but not for the edges' data, is told if there are such.
TEST(Capture, EdgesWithDataAreNotLeftOutSilently) {
  for (const bool has_data : {false, true}) {
    FakeExecutor executor;
    ScriptCaptures(&executor);
    executor.On(shm::Op::kCaptureState, [&](const FakeRequest&, FakeReply* reply) {
      shm::CaptureState state{};
      state.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
      state.num_dependencies = 1;
      reply->Append(state);
      reply->Append(uint64_t{0x1234});
      CUgraphEdgeData edge{};
      edge.type = has_data ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
      reply->Append(edge);
    });
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [&] {
                           if (Begin() != 0) return 1;
                           CUstream stream = nullptr;
                           REQUIRE(SHIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
                           REQUIRE(BeginCapture(stream) == CUDA_SUCCESS);
                           CUstreamCaptureStatus status{};
                           const CUgraphNode* nodes = nullptr;
                           const CUgraphEdgeData* edges = nullptr;
                           size_t count = 0;
                           const auto ask = SHIM(cuStreamGetCaptureInfo_v3);
                           REQUIRE(ask(stream, &status, nullptr, nullptr, &nodes, nullptr, &count) ==
                                   (has_data ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS));
                           REQUIRE(ask(stream, &status, nullptr, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS);
                           REQUIRE(ask(stream, &status, nullptr, nullptr, &nodes, &edges, &count) == CUDA_SUCCESS);
                           REQUIRE(count == 1 && nodes[0] == reinterpret_cast<CUgraphNode>(0x1234));
                           REQUIRE((edges[0].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) == has_data);
                           return 0;
                         }),
              0)
        << has_data;
  }
}

}  // namespace
}  // namespace tally::client_shim
