#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "proto/driver/generated/wire_ops.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

const auto kGraph = reinterpret_cast<CUgraph>(shm::MakeHandle(shm::HandleKind::kGraph, 0, true, 1));

const auto kUntouchedNode = reinterpret_cast<CUgraphNode>(0x5555);

void ScriptNodes(FakeExecutor* executor) {
  ScriptMemory(executor);
  for (const shm::Op op : {shm::Op::kAddCopyNode, shm::Op::kAddFillNode, shm::Op::kAddHostNode}) {
    executor->On(op, [](const FakeRequest& request, FakeReply* reply) {
      reply->Append(shm::MakeHandle(shm::HandleKind::kGraphNode, 0, true, request.op));
    });
  }
}

// Rows are a pitch apart: the last one must lie within the memory, too.
TEST(GraphNodes, AFillOfSeveralRowsMustFitToItsLastRow) {
  FakeExecutor executor;
  ScriptNodes(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         constexpr size_t kBytes = 4096;
                         CUDA_MEMSET_NODE_PARAMS fill{};
                         CUcontext context = nullptr;
                         REQUIRE(SHIM(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&fill.dst, kBytes) == CUDA_SUCCESS);
                         fill.elementSize = 4;
                         fill.width = 32;
                         const auto add = [&](size_t height, size_t pitch) {
                           fill.height = height;
                           fill.pitch = pitch;
                           CUgraphNode node = nullptr;
                           return SHIM(cuGraphAddMemsetNode)(&node, kGraph, nullptr, 0, &fill, context);
                         };
                         REQUIRE(add(1, 0) == CUDA_SUCCESS);
                         REQUIRE(add(2, kBytes - 128) == CUDA_SUCCESS);
                         REQUIRE(add(2, kBytes - 124) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(add(2, kBytes) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(add(5, 1024) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
}

// Pageable bytes go through a buffer of just their length.
TEST(GraphNodes, ACopyFromTheMiddleOfPageableBytesBeginsAtItsBuffer) {
  FakeExecutor executor;
  ScriptNodes(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         std::vector<char> bytes(256);
                         CUcontext context = nullptr;
                         CUDA_MEMCPY3D copy{};
                         REQUIRE(SHIM(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&copy.dstDevice, 256) == CUDA_SUCCESS);
                         copy.srcMemoryType = CU_MEMORYTYPE_HOST;
                         copy.srcHost = bytes.data();
                         copy.srcXInBytes = 128;
                         copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
                         copy.WidthInBytes = 64;
                         copy.Height = copy.Depth = 1;
                         CUgraphNode node = nullptr;
                         REQUIRE(SHIM(cuGraphAddMemcpyNode)(&node, kGraph, nullptr, 0, &copy, context) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

// What an executor of another build, or a broken one, leaves out is not read from behind its reply.
TEST(GraphNodes, AReplyThatEndsTooSoonLeavesTheRestAsItWas) {
  FakeExecutor executor;
  executor.On(kOp_cuGraphGetEdges_v2, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(uint64_t{2});  // edges, of which one and a half come
    reply->Append(uint64_t{17});
    reply->Append(uint32_t{18});
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUgraphNode from[2] = {}, to[2] = {kUntouchedNode, kUntouchedNode};
                         CUgraphEdgeData edges[2] = {};
                         size_t num_edges = 2;
                         REQUIRE(SHIM(cuGraphGetEdges_v2)(kGraph, from, to, edges, &num_edges) == CUDA_SUCCESS);
                         REQUIRE(from[0] == reinterpret_cast<CUgraphNode>(17));
                         REQUIRE(to[0] == kUntouchedNode && to[1] == kUntouchedNode);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
