// Clients that do with graphs what no shim would let through: every handle is tried at every place, also after its
// object is gone. The fake driver notes what a real one would not survive.
#include <random>

#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

using Words = std::vector<uint64_t>;

Payload ArrayOf(Payload payload, const Words& words) {
  payload.PutWord(words.size());
  for (const uint64_t word : words) payload.PutWord(word);
  return payload.PutWord(words.size());
}

Payload Target(uint64_t graph, const Words& after = {}, uint64_t exec = 0, uint64_t node = 0) {
  Payload payload;
  payload.Put(shm::GraphNodeTarget{graph, exec, node, static_cast<uint32_t>(after.size()), 0});
  for (const uint64_t word : after) payload.PutWord(word);
  return payload;
}

class HostileGraphsTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override { config.limits.handles_per_kind = 4096; }
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    channel_ = client_->OpenChannel();
  }
  // The session ends: nothing of it may be left, and nothing may have gone wrong on the way.
  void ExpectNothingLeft(size_t num_sessions = 1) {
    client_->Hangup();
    WaitForEnds(num_sessions);
    EXPECT_EQ(driver_.graphs().misuses(), std::vector<std::string>());
    const auto live = driver_.live();
    for (const char* kind : {"graph", "graph node", "graph exec", "graph memory", "user object"}) {
      EXPECT_FALSE(live.contains(kind)) << kind;
    }
    EXPECT_FALSE(executor_->faulted());
  }

  uint64_t NewGraph() { return channel_->CallNumber(kOp_cuGraphCreate, Payload().PutWord(0)).Get<uint64_t>(); }
  Answer AddEmpty(uint64_t graph, const Words& after = {}) {
    return channel_->CallNumber(kOp_cuGraphAddEmptyNode, ArrayOf(Payload().PutWord(graph), after));
  }
  Answer Move(uint64_t parent, uint64_t child, const Words& after = {}) {
    return channel_->Call(Op::kAddMovedGraphNode, Target(parent, after).Put(shm::MovedGraphNode{child, 0, 0}));
  }
  Answer AddChild(uint64_t parent, uint64_t child) {
    return channel_->CallNumber(kOp_cuGraphAddChildGraphNode, ArrayOf(Payload().PutWord(parent), {}).PutWord(child));
  }
  Answer ChildOf(uint64_t node) { return channel_->CallNumber(kOp_cuGraphChildGraphNodeGetGraph, Words1(node)); }
  Answer NumNodes(uint64_t graph) {
    return channel_->CallNumber(kOp_cuGraphGetNodes, Payload().PutWord(0).PutWord(graph).PutWord(0));
  }
  Answer Destroy(uint64_t graph) { return channel_->CallNumber(kOp_cuGraphDestroy, Words1(graph)); }
  Answer DestroyNode(uint64_t node) { return channel_->CallNumber(kOp_cuGraphDestroyNode, Words1(node)); }
  Answer Instantiate(uint64_t graph) {
    return channel_->Call(Op::kInstantiate, Payload().Put(shm::Instantiate{graph, 0, 0}));
  }
  Answer AddMemory(uint64_t graph, const Words& after = {}) {
    return channel_->Call(Op::kAddAllocationNode, Target(graph, after).Put(shm::AllocationNode{4096, 0, 0, 0, 0}));
  }
  Answer AddFree(uint64_t graph, uint64_t address, const Words& after = {}) {
    return channel_->CallNumber(kOp_cuGraphAddMemFreeNode, ArrayOf(Payload().PutWord(graph), after).PutWord(address));
  }
  Answer Count(uint64_t object, uint64_t graph, uint32_t count, bool is_release, uint32_t flags = 0) {
    return channel_->Call(Op::kCountUserObject,
                          Payload().Put(shm::CountUserObject{object, graph, count, flags, is_release ? 1u : 0u, 0}));
  }
  uint64_t NewStream() {
    shm::CreateStream request{};
    request.flags = CU_STREAM_NON_BLOCKING;
    return channel_->Call(Op::kCreateStream, Payload().Put(request)).Get<uint64_t>();
  }
  static Payload Words1(uint64_t word) { return Payload().PutWord(word); }

  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
};

TEST_F(HostileGraphsTest, AMovedGraphBelongsToItsNode) {
  const uint64_t parent = NewGraph(), child = NewGraph(), other = NewGraph();
  const uint64_t inside = AddEmpty(child).Get<uint64_t>();
  EXPECT_EQ(Move(parent, parent).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Move(parent, other + 16).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Move(parent, child, {inside}).result, CUDA_ERROR_INVALID_VALUE);  // a dependency elsewhere: it stays
  const Answer moved = Move(parent, child);
  ASSERT_EQ(moved.result, CUDA_SUCCESS);
  const auto node = moved.Get<uint64_t>();
  // Handles stay; what the program may do with the graph does not.
  EXPECT_EQ(ChildOf(node).Get<uint64_t>(), child);
  EXPECT_EQ(AddEmpty(child, {inside}).result, CUDA_SUCCESS);
  EXPECT_EQ(Move(parent, child).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Move(other, child).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Move(child, parent).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AddChild(other, child).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Instantiate(child).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Destroy(child).result, CUDA_ERROR_INVALID_VALUE);
  const auto exec = Instantiate(parent).Get<shm::Instantiated>().exec;
  EXPECT_EQ(channel_->Call(Op::kUpdateExec, Payload().PutWord(exec).PutWord(child)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      channel_->CallNumber(kOp_cuGraphExecChildGraphNodeSetParams, Payload().PutWord(exec).PutWord(node).PutWord(child))
          .result,
      CUDA_ERROR_INVALID_VALUE);
  // Another session knows none of them.
  auto stranger = Connect();
  auto strange_channel = stranger->OpenChannel();
  std::swap(channel_, strange_channel);
  EXPECT_EQ(Move(NewGraph(), other).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(NumNodes(child).result, CUDA_ERROR_INVALID_HANDLE);
  std::swap(channel_, strange_channel);
  stranger->Hangup();

  EXPECT_EQ(Destroy(parent).result, CUDA_SUCCESS);
  EXPECT_EQ(NumNodes(child).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ChildOf(node).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(DestroyNode(inside).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Move(other, child).result, CUDA_ERROR_INVALID_HANDLE);
  ExpectNothingLeft(2);
}

TEST_F(HostileGraphsTest, ClonedChildrenAndBodiesAreNotTheProgramsToEnd) {
  const uint64_t parent = NewGraph(), original = NewGraph(), other = NewGraph();
  AddEmpty(original);
  const auto node = AddChild(parent, original).Get<uint64_t>();
  const auto clone = ChildOf(node).Get<uint64_t>();
  EXPECT_NE(clone, original);
  const auto conditional =
      channel_->Call(Op::kCreateConditional, Payload().Put(shm::CreateConditional{parent, 0, 0})).Get<uint64_t>();
  const auto add_bodies = [&](uint64_t graph, uint64_t number, uint32_t count) {
    return channel_->Call(Op::kAddConditionalNode, Target(graph).Put(shm::ConditionalNode{number, 0, count}));
  };
  EXPECT_EQ(add_bodies(other, conditional, 1).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add_bodies(parent, conditional + 1, 1).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add_bodies(parent, conditional, 0).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add_bodies(parent, conditional, UINT32_MAX).result, CUDA_ERROR_INVALID_VALUE);
  const Answer bodies = add_bodies(parent, conditional, 2);
  ASSERT_EQ(bodies.result, CUDA_SUCCESS);
  for (const uint64_t inner : {clone, bodies.Get<uint64_t>(8), bodies.Get<uint64_t>(16)}) {
    EXPECT_EQ(Destroy(inner).result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Move(other, inner).result, CUDA_ERROR_INVALID_VALUE);
  }
  // They go with their nodes, not before.
  const uint64_t inside = AddEmpty(bodies.Get<uint64_t>(8)).Get<uint64_t>();
  EXPECT_EQ(DestroyNode(bodies.Get<uint64_t>()).result, CUDA_SUCCESS);
  EXPECT_EQ(DestroyNode(inside).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(NumNodes(bodies.Get<uint64_t>(16)).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(NumNodes(clone).result, CUDA_SUCCESS);
  ExpectNothingLeft();
}

TEST_F(HostileGraphsTest, NestingHasNoBottom) {
  constexpr int kDepth = 500;
  const uint64_t top = NewGraph();
  Words graphs{top}, nodes;
  for (int i = 0; i < kDepth; ++i) {
    const uint64_t next = NewGraph();
    nodes.push_back(Move(graphs.back(), next).Get<uint64_t>());
    graphs.push_back(next);
  }
  EXPECT_EQ(Move(graphs.back(), top).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Destroy(top).result, CUDA_SUCCESS);
  for (const uint64_t graph : graphs) EXPECT_EQ(NumNodes(graph).result, CUDA_ERROR_INVALID_HANDLE);
  for (const uint64_t node : nodes) EXPECT_EQ(DestroyNode(node).result, CUDA_ERROR_INVALID_HANDLE);
  ExpectNothingLeft();
}

TEST_F(HostileGraphsTest, GraphsBeingCapturedIntoStay) {
  const uint64_t stream = NewStream(), parent = NewGraph(), child = NewGraph();
  const uint64_t inside = AddEmpty(child).Get<uint64_t>();
  const auto node = Move(parent, child).Get<uint64_t>();
  ASSERT_EQ(channel_->Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, child, 0, 0, 0, 0})).result,
            CUDA_SUCCESS);
  EXPECT_EQ(Destroy(parent).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DestroyNode(node).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DestroyNode(inside).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Move(NewGraph(), parent).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(channel_->Call(Op::kEndCapture, Words1(stream)).Get<uint64_t>(), child);
  EXPECT_EQ(DestroyNode(inside).result, CUDA_SUCCESS);
  // The graph of a capture that made one, named before its end.
  ASSERT_EQ(channel_->Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result,
            CUDA_SUCCESS);
  const auto captured = channel_->Call(Op::kCaptureState, Words1(stream)).Get<shm::CaptureState>().graph;
  EXPECT_EQ(Destroy(captured).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Move(parent, captured).result, CUDA_ERROR_INVALID_VALUE);
  ExpectNothingLeft();  // still capturing
}

TEST_F(HostileGraphsTest, MemoryOfGraphsIsKnownUntilTheDriverFreesIt) {
  const uint64_t graph = NewGraph(), other = NewGraph(), foreign = AddEmpty(other).Get<uint64_t>();
  const auto address = AddMemory(graph).Get<uint64_t>(8);
  ASSERT_NE(address, 0u);
  // A free that fails frees nothing.
  EXPECT_EQ(AddFree(graph, address, {foreign}).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AddFree(graph, address + (1 << 20)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Destroy(graph).result, CUDA_SUCCESS);
  EXPECT_EQ(AddFree(other, address).result, CUDA_SUCCESS);
  // That of a moved graph is there as long as an executable of its parent.
  const uint64_t parent = NewGraph(), child = NewGraph();
  const Answer memory = AddMemory(child);
  EXPECT_EQ(AddFree(child, memory.Get<uint64_t>(8), {memory.Get<uint64_t>()}).result, CUDA_SUCCESS);
  EXPECT_EQ(Move(parent, child).result, CUDA_SUCCESS);
  EXPECT_EQ(AddMemory(child).result, CUDA_ERROR_NOT_SUPPORTED);
  const auto exec = Instantiate(parent).Get<shm::Instantiated>().exec;
  EXPECT_EQ(Destroy(parent).result, CUDA_SUCCESS);
  EXPECT_EQ(AddFree(other, memory.Get<uint64_t>(8)).result, CUDA_SUCCESS);
  EXPECT_EQ(channel_->CallNumber(kOp_cuGraphExecDestroy, Words1(exec)).result, CUDA_SUCCESS);
  EXPECT_EQ(AddFree(other, memory.Get<uint64_t>(8)).result, CUDA_ERROR_INVALID_VALUE);
  ExpectNothingLeft();
}

TEST_F(HostileGraphsTest, ReferencesToUserObjectsAreCounted) {
  const auto create = [&](uint32_t count) {
    return channel_->Call(Op::kCreateUserObject, Payload().Put(shm::CreateUserObject{1, count, 1}));
  };
  EXPECT_EQ(create(0).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(UINT32_MAX).result, CUDA_ERROR_INVALID_VALUE);
  const auto object = create(2).Get<uint64_t>();
  const uint64_t graph = NewGraph(), child = NewGraph();
  EXPECT_EQ(Count(object, 0, 3, true).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Count(object, graph, 1, true).result, CUDA_ERROR_INVALID_VALUE);
  for (const uint32_t many : {0u, shm::kMaxUserReferences, uint32_t{INT32_MAX}, UINT32_MAX}) {
    EXPECT_EQ(Count(object, 0, many, false).result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Count(object, graph, many, false).result, CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(Count(object, child, 1, false, CU_GRAPH_USER_OBJECT_MOVE).result, CUDA_SUCCESS);
  EXPECT_EQ(Count(object, 0, 1, true).result, CUDA_SUCCESS);
  EXPECT_EQ(Count(object, 0, 1, true).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Count(object, graph, 1, false).result, CUDA_ERROR_INVALID_VALUE);  // who has none cannot know that it is
  // The last reference goes with the graph that moved.
  EXPECT_EQ(Move(graph, child).result, CUDA_SUCCESS);
  EXPECT_EQ(Destroy(graph).result, CUDA_SUCCESS);
  EXPECT_EQ(Count(object, 0, 1, true).result, CUDA_ERROR_INVALID_HANDLE);
  ExpectNothingLeft();
}

// What a client knows and can get wrong, by kind; stale names stay.
struct Known {
  Words graphs, nodes, execs, objects, conditionals, streams, addresses;
};

class RandomGraphs {
 public:
  RandomGraphs(uint64_t seed, ScriptedChannel& channel, Known& known)
      : random_(seed), channel_(channel), known_(known) {}

  // One request; what it made is known afterwards.
  void Step() {
    switch (random_() % 28) {
      case 0:
        return Learn(known_.graphs, Wire(kOp_cuGraphCreate, Payload().PutWord(0)));
      case 1:
        return Learn(known_.graphs, Wire(kOp_cuGraphClone, Payload().PutWord(Graph())));
      case 2:
        return Learn(known_.nodes, Wire(kOp_cuGraphAddEmptyNode, ArrayOf(Payload().PutWord(Graph()), After())));
      case 3:
        return Learn(known_.nodes,
                     Wire(kOp_cuGraphAddChildGraphNode, ArrayOf(Payload().PutWord(Graph()), After()).PutWord(Graph())));
      case 4:
      case 5:
      case 6: {
        const Words after = After();
        Payload payload = Target(Graph(), after);
        const bool has_edges = random_() % 2 == 0;
        payload.Put(shm::MovedGraphNode{Graph(), has_edges ? 1u : 0u, 0});
        for (size_t i = 0; has_edges && i < after.size(); ++i) payload.PutWord(random_() % 3 == 0 ? random_() : 0);
        if (random_() % 64 == 0) payload.PutWord(random_());
        return Learn(known_.nodes, Hand(Op::kAddMovedGraphNode, payload));
      }
      case 7:
      case 8:
        return Learn(known_.graphs, Wire(kOp_cuGraphChildGraphNodeGetGraph, Payload().PutWord(Node())));
      case 9:
        Wire(kOp_cuGraphDestroy, Payload().PutWord(Graph()));
        return;
      case 10:
        Wire(kOp_cuGraphDestroyNode, Payload().PutWord(Node()));
        return;
      case 11:
        return LearnAll(known_.nodes, Wire(kOp_cuGraphGetNodes, Payload().PutWord(8).PutWord(Graph()).PutWord(1)), 8);
      case 12:
        return Learn(known_.execs, Hand(Op::kInstantiate, Payload().Put(shm::Instantiate{Graph(), 0, 0})));
      case 13:
        Wire(kOp_cuGraphExecDestroy, Payload().PutWord(Pick(known_.execs)));
        return;
      case 14:
        return LearnAll(known_.nodes, Hand(Op::kUpdateExec, Payload().PutWord(Pick(known_.execs)).PutWord(Graph())), 8);
      case 15:
        Wire(kOp_cuGraphExecChildGraphNodeSetParams,
             Payload().PutWord(Pick(known_.execs)).PutWord(Node()).PutWord(Graph()));
        return;
      case 16: {
        const Answer made = Hand(
            Op::kAddAllocationNode,
            Target(Graph(), After()).Put(shm::AllocationNode{random_() % 8192, random_() % 2, random_() % 2, 0, 0}));
        Learn(known_.nodes, made);
        if (made.result == CUDA_SUCCESS) known_.addresses.push_back(made.Get<uint64_t>(8));
        return;
      }
      case 17:
        return Learn(known_.nodes, Wire(kOp_cuGraphAddMemFreeNode,
                                        ArrayOf(Payload().PutWord(Graph()), After()).PutWord(Pick(known_.addresses))));
      case 18:
        return Learn(known_.conditionals,
                     Hand(Op::kCreateConditional, Payload().Put(shm::CreateConditional{Graph(), 0, 0})));
      case 19: {
        const auto bodies = static_cast<uint32_t>(random_() % 4);
        const Answer made =
            Hand(Op::kAddConditionalNode,
                 Target(Graph(), After()).Put(shm::ConditionalNode{Pick(known_.conditionals), 0, bodies}));
        Learn(known_.nodes, made);
        return LearnAll(known_.graphs, made, 8);
      }
      case 20:
        return Learn(known_.objects, Hand(Op::kCreateUserObject, Payload().Put(shm::CreateUserObject{
                                                                     1, static_cast<uint32_t>(random_() % 4), 1})));
      case 21: {
        shm::CountUserObject count{Pick(known_.objects),
                                   random_() % 2 == 0 ? Graph() : 0,
                                   SmallCount(),
                                   static_cast<uint32_t>(random_() % 2),
                                   static_cast<uint32_t>(random_() % 2),
                                   0};
        Hand(Op::kCountUserObject, Payload().Put(count));
        return;
      }
      case 22: {
        const Words after = After();
        Payload payload;
        payload.Put(shm::BeginCapture{Pick(known_.streams), random_() % 2 == 0 ? Graph() : 0, 0, 0,
                                      static_cast<uint32_t>(after.size()), 0});
        for (const uint64_t word : after) payload.PutWord(word);
        Hand(Op::kBeginCapture, payload);
        return;
      }
      case 23: {
        const Answer state = Hand(Op::kCaptureState, Payload().PutWord(Pick(known_.streams)));
        if (state.result == CUDA_SUCCESS && state.Get<shm::CaptureState>().graph != 0) {
          known_.graphs.push_back(state.Get<shm::CaptureState>().graph);
          LearnAll(known_.nodes, state, sizeof(shm::CaptureState));
        }
        return;
      }
      case 24:
        return Learn(known_.graphs, Hand(Op::kEndCapture, Payload().PutWord(Pick(known_.streams))));
      case 25:
        // What was made in a context goes with it, but never a piece of a graph of another.
        if (is_other_open_) {
          channel_.Call(Op::kCloseContext, Payload().Put(shm::CloseContext{kOtherContext, 0}));
        } else {
          channel_.Call(Op::kOpenContext, Payload().Put(shm::OpenContext{kOtherContext, 0, 0, 0}));
        }
        is_other_open_ = !is_other_open_;
        return;
      case 26: {
        Payload payload = Payload().PutWord(Graph());
        const Words from = After();
        payload.PutWord(from.size());
        for (const uint64_t word : from) payload.PutWord(word);
        payload.PutWord(from.size());
        for (size_t i = 0; i < from.size(); ++i) payload.PutWord(Node());
        payload.PutWord(1).PutWord(from.size());
        for (size_t i = 0; i < from.size(); ++i) payload.PutWord(random_());
        Wire(kOp_cuGraphAddDependencies_v2, payload.PutWord(from.size()));
        return;
      }
      default: {
        // Operations in memory, in a node or in its change.
        CUstreamBatchMemOpParams op{};
        op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        op.writeValue.address = Pick(known_.addresses);
        op.writeValue.alias = random_();
        const auto count = static_cast<uint32_t>(random_() % 64 == 0 ? random_() : random_() % 3);
        Payload payload = random_() % 2 == 0 ? Target(Graph(), After())
                                             : Target(0, {}, random_() % 2 == 0 ? Pick(known_.execs) : 0, Node());
        payload.Put(shm::MemoryOperations{0, count, 0});
        for (uint32_t i = 0; i < std::min(count, 3u); ++i) payload.Put(op);
        const bool is_new = random_() % 2 == 0;
        const Answer made = Hand(is_new ? Op::kAddMemoryOperationsNode : Op::kSetMemoryOperationsNode, payload);
        if (is_new) Learn(known_.nodes, made);
        return;
      }
    }
  }

 private:
  static constexpr uint32_t kOtherContext = 64;

  uint64_t Pick(const Words& words) {
    if (words.empty() || random_() % 32 == 0) return random_() % 2 == 0 ? 0 : random_();
    return words[random_() % words.size()];
  }
  uint64_t Graph() { return Pick(known_.graphs); }
  uint64_t Node() { return Pick(known_.nodes); }
  Words After() {
    Words after(random_() % 4 == 0 ? random_() % 3 : 0);
    for (uint64_t& word : after) word = Node();
    return after;
  }
  uint32_t SmallCount() { return static_cast<uint32_t>(random_() % 8 == 0 ? random_() : random_() % 3); }

  Answer Wire(uint16_t op, const Payload& payload) {
    return channel_.CallNumber(op, payload, is_other_open_ && random_() % 2 == 0 ? kOtherContext : 0);
  }
  Answer Hand(Op op, const Payload& payload) { return Wire(static_cast<uint16_t>(op), payload); }
  void Learn(Words& words, const Answer& answer) {
    if (answer.result == CUDA_SUCCESS && answer.payload.size() >= 8) words.push_back(answer.Get<uint64_t>());
  }
  void LearnAll(Words& words, const Answer& answer, size_t offset) {
    for (; offset + 8 <= answer.payload.size(); offset += 8) {
      if (const auto word = answer.Get<uint64_t>(offset); word != 0) words.push_back(word);
    }
  }

  std::mt19937_64 random_;
  ScriptedChannel& channel_;
  Known& known_;
  bool is_other_open_ = false;
};

TEST_F(HostileGraphsTest, EveryHandleAtEveryPlace) {
  constexpr uint64_t kSessions = 60;
  size_t num_done = 0;
  for (uint64_t seed = 0; seed < kSessions; ++seed) {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    Known known;
    for (int i = 0; i < 2; ++i) {
      shm::CreateStream request{};
      request.flags = CU_STREAM_NON_BLOCKING;
      known.streams.push_back(channel->Call(Op::kCreateStream, Payload().Put(request)).Get<uint64_t>());
    }
    RandomGraphs steps(seed, *channel, known);
    for (int i = 0; i < 300 && !client->IsOver(); ++i, ++num_done) steps.Step();
    client->Hangup();
  }
  EXPECT_GT(num_done, kSessions * 20);  // sessions live long enough to get somewhere
  WaitForEnds(kSessions);
  ExpectNothingLeft(kSessions + 1);
}

}  // namespace
}  // namespace tally::fakes
