// Graphs and host functions as the executor serves them: what needs no device that computes.
#include <thread>

#include "proto/driver/generated/wire_ops.h"
#include "tests/server/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

class GraphSessionTest : public ExecutorFixture {
 protected:
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    lane_ = client_->OpenLane();
    ASSERT_NE(lane_, nullptr);
  }
  uint64_t CreateGraph() { return lane_->CallNumber(kOp_cuGraphCreate, Payload().PutWord(0)).Get<uint64_t>(); }

  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedLane> lane_;
};

// The token of the next callback, after acknowledging `finished`; 0 when the session ended.
uint64_t NextCallback(ScriptedLane& lane, uint64_t finished) {
  const Answer answer = lane.Call(Op::kAwaitCallback, Payload().PutWord(finished));
  return answer.arrived ? answer.Get<uint64_t>() : 0;
}

TEST_F(GraphSessionTest, AStreamGoesOnWhenItsHostFunctionIsAcknowledged) {
  auto callbacks = client_->OpenLane();
  lane_->Post(Op::kLaunchHostFunction, Payload().Put(shm::LaunchHostFunction{1, 5, 0, 0}));
  EXPECT_EQ(NextCallback(*callbacks, 0), 5u);
  std::thread acknowledge([&] { EXPECT_EQ(NextCallback(*callbacks, 5), 0u); });
  // Returns only after the acknowledgement has arrived.
  EXPECT_EQ(lane_->Call(Op::kSynchronizeStream, Payload().PutWord(1)).result, 0u);
  client_->Hangup();
  WaitForEnds(1);
  acknowledge.join();
}

TEST_F(GraphSessionTest, ConditionalNodesOwnTheirBodies) {
  const uint64_t graph = CreateGraph();
  const uint64_t other_graph = CreateGraph();
  const auto conditional =
      lane_->Call(Op::kCreateConditional, Payload().Put(shm::CreateConditional{graph, 1, 1})).Get<uint64_t>();
  EXPECT_EQ(conditional, 0x77u);
  const auto add = [&](uint64_t to, const shm::ConditionalNode& node) {
    return lane_->Call(Op::kAddConditionalNode, Payload().Put(shm::GraphNodeTarget{to, 0, 0, 0, 0}).Put(node));
  };
  EXPECT_EQ(add(other_graph, {conditional, 0, 1}).result, CUDA_ERROR_INVALID_VALUE);  // another graph's
  EXPECT_EQ(add(graph, {conditional + 1, 0, 1}).result, CUDA_ERROR_INVALID_VALUE);    // nobody's
  EXPECT_EQ(add(graph, {conditional, 0, 0}).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(graph, {conditional, 0, UINT32_MAX}).result, CUDA_ERROR_INVALID_VALUE);
  const Answer added = add(graph, {conditional, 2, 3});
  ASSERT_EQ(added.result, 0u);
  ASSERT_EQ(added.payload.size(), 4 * sizeof(uint64_t));
  const auto body = added.Get<uint64_t>(16);
  EXPECT_EQ(shm::HandleKindOf(body), shm::HandleKind::kGraph);
  EXPECT_EQ(lane_->CallNumber(kOp_cuGraphGetNodes, Payload().PutWord(0).PutWord(body).PutWord(0)).result, 0u);
  // The node takes its bodies along.
  EXPECT_EQ(lane_->CallNumber(kOp_cuGraphDestroyNode, Payload().PutWord(added.Get<uint64_t>())).result, 0u);
  EXPECT_EQ(lane_->CallNumber(kOp_cuGraphGetNodes, Payload().PutWord(0).PutWord(body).PutWord(0)).result,
            CUDA_ERROR_INVALID_HANDLE);
  // The graph takes its conditional along.
  EXPECT_EQ(lane_->CallNumber(kOp_cuGraphDestroy, Payload().PutWord(graph)).result, 0u);
  EXPECT_EQ(add(other_graph, {conditional, 0, 1}).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphSessionTest, ReferencesToUserObjectsAreCounted) {
  auto callbacks = client_->OpenLane();
  const auto object =
      lane_->Call(Op::kCreateUserObject, Payload().Put(shm::CreateUserObject{42, 2, 1})).Get<uint64_t>();
  const uint64_t graph = CreateGraph();
  const auto count = [&](uint64_t of_graph, uint32_t number, uint32_t flags, bool is_release) {
    return lane_
        ->Call(Op::kCountUserObject,
               Payload().Put(shm::CountUserObject{object, of_graph, number, flags, is_release ? 1u : 0u, 0}))
        .result;
  };
  EXPECT_EQ(count(0, 3, 0, true), CUDA_ERROR_INVALID_VALUE);      // more than there are
  EXPECT_EQ(count(graph, 1, 0, true), CUDA_ERROR_INVALID_VALUE);  // the graph has none
  EXPECT_EQ(count(0, 0, 0, false), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(count(graph, 3, CU_GRAPH_USER_OBJECT_MOVE, false), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(count(graph, 2, CU_GRAPH_USER_OBJECT_MOVE, false), 0u);
  EXPECT_EQ(count(0, 1, 0, true), CUDA_ERROR_INVALID_VALUE);   // all are the graph's now
  EXPECT_EQ(count(0, 1, 0, false), CUDA_ERROR_INVALID_VALUE);  // who has none cannot retain
  EXPECT_EQ(count(graph, 1, 0, true), 0u);
  EXPECT_EQ(count(graph, 1, 0, true), 0u);
  EXPECT_EQ(NextCallback(*callbacks, 0), 42u);
  EXPECT_EQ(count(graph, 1, 0, true), CUDA_ERROR_INVALID_HANDLE);
  // One that is left is released with the session; nobody is told.
  lane_->Call(Op::kCreateUserObject, Payload().Put(shm::CreateUserObject{43, 5, 1}));
  client_->Hangup();
  WaitForEnds(1);
  EXPECT_EQ(driver_.live()["user object"], 0);
}

TEST_F(GraphSessionTest, MemoryOperationsNameOnlyTheSessionsMemory) {
  const uint64_t device = Allocate(*lane_, 64);
  CUstreamBatchMemOpParams op{};
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  op.writeValue.address = device + 60;  // four bytes too far
  const auto post = [&](uint32_t claimed) {
    return lane_->Call(Op::kMemoryOperations, Payload().Put(shm::MemoryOperations{1, claimed, 0}).Put(op));
  };
  EXPECT_EQ(post(1).result, CUDA_ERROR_INVALID_VALUE);
  op.operation = static_cast<CUstreamBatchMemOpType>(99);
  EXPECT_EQ(post(1).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(post(2).arrived);  // more operations than bytes: the session is over
}

TEST_F(GraphSessionTest, AWaitForOneStreamRecordsNoEvent) {
  const uint64_t kernel = LoadKernel(*lane_, "kernel");
  const auto stream = lane_->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{1, 0})).Get<uint64_t>();
  lane_->Post(Op::kLaunch, LaunchOf(kernel, stream));
  EXPECT_EQ(lane_->Call(Op::kSynchronizeStream, Payload().PutWord(stream)).result, 0u);
  lane_->Post(Op::kLaunch, LaunchOf(kernel, stream));
  EXPECT_EQ(lane_->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(driver_.TakeTrace(), (std::vector<std::string>{"launch s1", "launch s1"}));
}

}  // namespace
}  // namespace tally::fakes
