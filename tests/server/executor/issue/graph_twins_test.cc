#include "server/executor/issue/graph_twins.h"

#include <chrono>
#include <optional>
#include <thread>

#include "tests/server/executor/issue/graph_edges_fixture.h"
#include "tests/server/executor/issue/listed_memory.h"

namespace tally::server {
namespace {

class GraphTwinsTest : public GraphEdgesTest {
 protected:
  void SetUp() override {
    GraphEdgesTest::SetUp();
    twins_.emplace(driver_, GraphTwins::Limits{.nodes = &budget_, .are_measured = false});
    ChangeMemory(1);
    for (const Step& step : steps_in_order_) Add(step);
    ASSERT_EQ(driver_.cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
    twins_->OnInstantiated(graph_, exec_, 0);
  }
  void TearDown() override {
    twins_.reset();
    driver_.cuGraphExecDestroy(exec_);
    GraphEdgesTest::TearDown();
  }

  CUresult LaunchOn(CUstream stream) {
    return twins_->Launch(exec_, {stream, *completions_, map_}, [&](CUgraphNode node, MemoryAnswers& answers) {
      // The clone has nodes of its own, in the same order.
      ++num_asked_;
      CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
      EXPECT_EQ(driver_.cuGraphKernelNodeGetParams_v2(node, &parameters), CUDA_SUCCESS);
      const auto buffer = [&](int i) { return *static_cast<CUdeviceptr*>(parameters.kernelParams[i]); };
      if (!is_known_) return scheduler::GraphNodeAccesses();
      for (const int i : {0, 1}) answers.SortWithin(map_, buffer(i), buffer(i) + kWords * 4);
      const auto access = [&](CUdeviceptr address, scheduler::AccessKind kind) {
        return scheduler::Access{*scheduler::Box::Range(address, kWords * 4), kind};
      };
      return scheduler::GraphNodeAccesses{.extent = scheduler::Extent::kSaid,
                                          .accesses = {access(buffer(0), scheduler::AccessKind::kReadWrite),
                                                       access(buffer(1), scheduler::AccessKind::kRead)}};
    });
  }
  // Of the buffers; then whatever depends on it says something else.
  void ChangeMemory(uint64_t bytes_more) {
    std::vector<ListedMemory::Piece> pieces;
    const auto sort = ++num_changes_ % 2 == 0 ? LaunchMemory::Sort::kShared : LaunchMemory::Sort::kPlain;
    for (const CUdeviceptr buffer : memory_) pieces.push_back({buffer, kWords * 4 + bytes_more, sort});
    map_.Set(std::move(pieces));
  }
  void ChangeMemory() { ChangeMemory(0); }
  void Launch() { LaunchAndExpect(stream_.real); }
  void LaunchAndExpect(CUstream stream) {
    ASSERT_EQ(LaunchOn(stream), CUDA_SUCCESS);
    for (const Step& step : steps_in_order_) Expect(step);
  }
  uint64_t num_twin_launches() const { return twins_->counts().twin_launches; }
  // What the program asks for when it changes a node of its executable.
  void ChangeAddend(size_t i, uint32_t addend) {
    steps_in_order_[i].addend = addend;
    PendingLaunch launch = LaunchOf(steps_in_order_[i]);
    DriverArguments arguments(launch);
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
    twins_->OnChanged(exec_);
    ASSERT_EQ(driver_.cuGraphExecKernelNodeSetParams_v2(exec_, nodes_[i], &parameters), CUDA_SUCCESS);
  }

  std::vector<Step> steps_in_order_ = {{0, 1, 7}, {2, 3, 8}, {4, 0, 9}, {5, 2, 10}};
  std::optional<GraphTwins> twins_;
  CUgraphExec exec_ = nullptr;
  ListedMemory map_;
  int num_changes_ = 0;
  NodeBudget budget_;
  bool is_known_ = true;
};

TEST_F(GraphTwinsTest, TheTwinIsLaunchedWithTheSameBits) {
  for (int i = 0; i < 5; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 5u);
  EXPECT_EQ(num_asked_, 4);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, TheProgramsGraphMayChangeOrGo) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  ASSERT_EQ(driver_.cuGraphKernelNodeGetParams_v2(nodes_[0], &parameters), CUDA_SUCCESS);
  parameters.gridDimX = 1;
  ASSERT_EQ(driver_.cuGraphKernelNodeSetParams_v2(nodes_[0], &parameters), CUDA_SUCCESS);
  Launch();
  ASSERT_EQ(driver_.cuGraphDestroy(graph_), CUDA_SUCCESS);
  Launch();
  EXPECT_EQ(num_twin_launches(), 2u);
  ExpectMemory();
  ASSERT_EQ(driver_.cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
}

TEST_F(GraphTwinsTest, KernelsThatAreNotKnownYetAreAskedAboutLater) {
  is_known_ = false;
  for (int i = 0; i < 7; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 0u);
  is_known_ = true;
  for (int i = 7; i < 10; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 3u);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, NotForEver) {
  is_known_ = false;
  for (int i = 0; i < GraphTwins::kMostTries; ++i) {
    EXPECT_EQ(twins_->size(), 1u);
    ChangeMemory();  // of no matter while there is no twin
    Launch();
    is_known_ = true;
    ChangeMemory();
    for (int k = 0; k < 8 && num_asked_ < 4 * (i + 1); ++k) Launch();
  }
  for (int i = 0; i < 2; ++i) {
    ChangeMemory();
    Launch();
  }
  EXPECT_EQ(twins_->size(), 0u);
  EXPECT_EQ(WatchedDriver::num_executables, 1) << "the program's";
  EXPECT_LE(num_asked_, 4 * GraphTwins::kMostTries);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, AChangedNodeIsOneOfTheProgramsExecutable) {
  Launch();
  ChangeAddend(1, 1000);
  for (int i = 0; i < 20; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 1u);
  EXPECT_EQ(WatchedDriver::num_executables, 1);
  EXPECT_EQ(twins_->size(), 0u);
  ExpectMemory();
}

// What was memory of one sort may be memory of another, larger one by now.
TEST_F(GraphTwinsTest, ATwinIsOfTheMemoryThatThereWas) {
  Launch();
  ChangeMemory();
  is_known_ = false;
  Launch();
  EXPECT_EQ(num_twin_launches(), 1u);
  EXPECT_EQ(WatchedDriver::num_executables, 1);
  is_known_ = true;
  for (int i = 0; i < 20; ++i) Launch();
  const uint64_t before = num_twin_launches();
  EXPECT_GT(before, 1u);
  ChangeMemory();
  Launch();
  EXPECT_EQ(num_twin_launches(), before + 1) << "made anew at once";
  EXPECT_EQ(twins_->counts().twins_made, 3u);
  ExpectMemory();
}

// As launches of one executable do not.
TEST_F(GraphTwinsTest, LaunchesOfTwinAndOriginalDoNotOverlap) {
  const CUstream other = Stream();
  const auto blocked_by = [&](CUstream stream) {
    const CUdeviceptr word = ZeroedMemory(4);
    EXPECT_EQ(driver_.cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    return word;
  };
  const auto release = [&](CUdeviceptr word) {
    EXPECT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  };
  // The original, then the twin.
  is_known_ = false;
  for (int i = 0; i < 6; ++i) Launch();
  CUdeviceptr word = blocked_by(stream_.real);
  Launch();
  is_known_ = true;
  LaunchAndExpect(other);
  EXPECT_EQ(num_twin_launches(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(HasEnded(other));
  release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(other), CUDA_SUCCESS);
  ExpectMemory();
  // The twin, then the original.
  word = blocked_by(stream_.real);
  Launch();
  EXPECT_EQ(num_twin_launches(), 2u);
  ChangeAddend(0, 99);
  LaunchAndExpect(other);
  EXPECT_EQ(num_twin_launches(), 2u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(HasEnded(other));
  release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(other), CUDA_SUCCESS);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, WhatTheDriverRefusesOfATwinNobodyLearns) {
  WatchedDriver::refuse_instantiation = CUDA_ERROR_OUT_OF_MEMORY;
  Launch();
  EXPECT_EQ(num_twin_launches(), 0u);
  for (int i = 0; i < 7; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 1u);
  WatchedDriver::refuse_graph_launch = CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < 9; ++i) Launch();
  EXPECT_EQ(num_twin_launches(), 1u);
  EXPECT_EQ(twins_->size(), 0u);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, ALostContextIsReported) {
  Launch();
  WatchedDriver::refuse_graph_launch = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(LaunchOn(stream_.real), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(GraphTwinsTest, ErrorsOfTheProgramsExecutableAreItsOwn) {
  is_known_ = false;
  WatchedDriver::refuse_graph_launch = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(LaunchOn(stream_.real), CUDA_ERROR_INVALID_VALUE);
  Launch();
  ExpectMemory();
}

TEST_F(GraphTwinsTest, NoTwinIsMadeOnceKernelsMayBeGone) {
  twins_->OnUnload();
  for (int i = 0; i < 9; ++i) Launch();
  EXPECT_EQ(num_asked_, 0);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, NoCloneIsLeft) {
  static int num_clones;
  num_clones = 1;
  driver_.cuGraphClone = [](CUgraph* clone, CUgraph graph) {
    ++num_clones;
    return WatchedDriver::real.cuGraphClone(clone, graph);
  };
  driver_.cuGraphDestroy = [](CUgraph graph) {
    --num_clones;
    return WatchedDriver::real.cuGraphDestroy(graph);
  };
  for (int i = 0; i < 3; ++i, ChangeMemory()) Launch();
  EXPECT_EQ(twins_->counts().twins_made, 3u);
  EXPECT_EQ(num_clones, 1) << "what later twins are made of";
  twins_->OnDestroyed(exec_);
  EXPECT_EQ(num_clones, 0);
}

// Programs allocate between launches, mostly elsewhere.
TEST_F(GraphTwinsTest, MemoryThatChangesElsewhereIsOfNoMatter) {
  for (int i = 0; i < 5; ++i) {
    Launch();
    num_changes_ = 0;
    ChangeMemory(1);  // a generation further, but says what it said
  }
  EXPECT_EQ(twins_->counts().twins_made, 1u);
  EXPECT_EQ(num_twin_launches(), 5u);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, NodesAreKeptWithinABudgetAndGivenBack) {
  EXPECT_EQ(budget_.num_left(), NodeBudget::kMostNodes - 4);
  Launch();
  EXPECT_EQ(budget_.num_left(), NodeBudget::kMostNodes - 8);
  {
    const NodeShare others = budget_.Take(budget_.num_left() - 3);
    ChangeMemory();
    Launch();
    EXPECT_EQ(num_twin_launches(), 2u) << "what the twin that went had is enough for the next";
    CUgraphExec exec = nullptr;
    ASSERT_EQ(driver_.cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
    twins_->OnInstantiated(graph_, exec, 0);
    EXPECT_EQ(twins_->size(), 1u) << "without a clone there is no twin";
    driver_.cuGraphExecDestroy(exec);
  }
  twins_->OnDestroyed(exec_);
  EXPECT_EQ(budget_.num_left(), NodeBudget::kMostNodes);
  ExpectMemory();
}

// Twins and originals that take what time they are told.
class MeasuredGraphTwinsTest : public GraphTwinsTest {
 protected:
  static constexpr uint64_t kUses = 20;

  void SetUp() override {
    GraphTwinsTest::SetUp();
    twins_.emplace(driver_, GraphTwins::Limits{.nodes = &budget_, .uses_between_looks = kUses});
    twins_->OnInstantiated(graph_, exec_, 0);
    own_ = exec_;
    own_ns_ = 1000;
    driver_.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
      WatchedDriver::now_ns += exec == own_ ? own_ns_ : twin_ns_;
      return WatchedDriver::real.cuGraphLaunch(exec, stream);
    };
  }
  void LaunchAndAwait(int count) {
    for (int i = 0; i < count; ++i) {
      Launch();
      ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
    }
  }

  static inline CUgraphExec own_;
  static inline int64_t own_ns_, twin_ns_;
};

TEST_F(MeasuredGraphTwinsTest, ATwinThatIsNotFasterIsNotLaunched) {
  twin_ns_ = 960;
  LaunchAndAwait(5);
  EXPECT_EQ(num_twin_launches(), 3u) << "in turns, while both are timed";
  LaunchAndAwait(2);
  // At the eighth launch the twin is made anew, and measured again.
  LaunchAndAwait(1 + 9 + 10);
  EXPECT_EQ(num_twin_launches(), 4u + 5);
  EXPECT_EQ(twins_->counts().twins_slower, 10u);
  ExpectMemory();
}

TEST_F(MeasuredGraphTwinsTest, AFasterOneIsAndWhatBecomesSlowerIsNot) {
  twin_ns_ = 500;
  LaunchAndAwait(7);
  LaunchAndAwait(1 + 9);
  const uint64_t before = num_twin_launches();
  LaunchAndAwait(kUses);
  EXPECT_EQ(num_twin_launches(), before + kUses);
  EXPECT_EQ(twins_->counts().durations.in_order, std::chrono::nanoseconds(1000 * kUses));
  EXPECT_EQ(twins_->counts().durations.as_issued, std::chrono::nanoseconds(500 * kUses));
  twin_ns_ = 2000;
  LaunchAndAwait(10);
  const uint64_t after = num_twin_launches();
  EXPECT_EQ(after, before + kUses + 5);
  LaunchAndAwait(5);
  EXPECT_EQ(num_twin_launches(), after);
  ExpectMemory();
}

TEST_F(MeasuredGraphTwinsTest, WhatIsChangedInTheMiddleOfALookIsTheProgramsOwn) {
  twin_ns_ = 500;
  LaunchAndAwait(3);
  ChangeAddend(1, 1000);
  LaunchAndAwait(10);
  EXPECT_EQ(num_twin_launches(), 2u);
  EXPECT_EQ(twins_->size(), 0u);
  ExpectMemory();
}

TEST_F(GraphTwinsTest, GoesWithTheProgramsExecutable) {
  Launch();
  EXPECT_EQ(WatchedDriver::num_executables, 2);
  twins_->OnDestroyed(exec_);
  EXPECT_EQ(WatchedDriver::num_executables, 1);
  EXPECT_EQ(twins_->size(), 0u);
  ExpectMemory();
}

}  // namespace
}  // namespace tally::server
