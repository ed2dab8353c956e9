// TALLY_SIM_SHUFFLE and TALLY_SIM_REUSE_ADDRESSES: an edge that is missing shows, one that is there never does, and
// whatever CUDA lets end ends.
#include <cstdlib>
#include <functional>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

constexpr int kRuns = 60;

class ShuffledOrderTest : public DriverTest {
 protected:
  // Before the first context of the process.
  static void SetUpTestSuite() {
    ::setenv("TALLY_SIM_SHUFFLE", "7", 1);
    ::setenv("TALLY_SIM_REUSE_ADDRESSES", "1", 1);
  }

  CUgraphNode Add(CUgraph graph, const char* kernel, std::vector<void*> parameters, std::vector<CUgraphNode> after) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = Kernel(kernel);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters.data();
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  CUgraphNode Fill(CUgraph graph, CUdeviceptr out, uint32_t value, std::vector<CUgraphNode> after = {}) {
    uint32_t n = 1;
    return Add(graph, "fill", {&out, &value, &n}, std::move(after));
  }
  CUgraphNode CopyWord(CUgraph graph, CUdeviceptr out, CUdeviceptr in, std::vector<CUgraphNode> after = {}) {
    return Add(graph, "copy_word", {&out, &in}, std::move(after));
  }

  // How many of kRuns leave something else than `expected` in the word. `issue` is asynchronous.
  int CountWrong(CUdeviceptr word, uint32_t expected, const std::function<void()>& issue) {
    int num_wrong = 0;
    for (int i = 0; i < kRuns; ++i) {
      EXPECT_OK(cuMemsetD32_v2(word_, 0, kWords));
      EXPECT_OK(cuCtxSynchronize());
      issue();
      EXPECT_OK(cuCtxSynchronize());
      num_wrong += Read(word, 1)[0] == expected ? 0 : 1;
    }
    return num_wrong;
  }
  int CountWrongOf(CUgraph graph, CUdeviceptr word, uint32_t expected) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return CountWrong(word, expected, [&] { EXPECT_OK(cuGraphLaunch(exec, nullptr)); });
  }
  CUgraph NewGraph() {
    word_ = Allocate(kWords * 4);
    CUgraph graph = nullptr;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    return graph;
  }
  CUdeviceptr Word(uint32_t index) const { return word_ + index * 4; }

  static constexpr uint32_t kWords = 64;
  CUdeviceptr word_ = 0;
};

TEST_F(ShuffledOrderTest, ReadBeforeWrite) {
  const CUgraph graph = NewGraph(), whole = NewGraph();
  Fill(graph, Word(0), 5);
  CopyWord(graph, Word(1), Word(0));
  const int num_wrong = CountWrongOf(graph, Word(1), 5);
  EXPECT_GT(num_wrong, 0);
  EXPECT_LT(num_wrong, kRuns);
  CopyWord(whole, Word(1), Word(0), {Fill(whole, Word(0), 5)});
  EXPECT_EQ(0, CountWrongOf(whole, Word(1), 5));
}

TEST_F(ShuffledOrderTest, WriteBeforeRead) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = Fill(graph, Word(0), 5);
  CopyWord(graph, Word(1), Word(0), {first});
  Fill(graph, Word(0), 6, {first});
  EXPECT_GT(CountWrongOf(graph, Word(1), 5), 0);
}

TEST_F(ShuffledOrderTest, WritesInTheWrongOrder) {
  const CUgraph graph = NewGraph();
  Fill(graph, Word(0), 5);
  Fill(graph, Word(0), 6);
  EXPECT_GT(CountWrongOf(graph, Word(0), 6), 0);
}

TEST_F(ShuffledOrderTest, WriterIsLateForTheEndOfALongChain) {
  const CUgraph graph = NewGraph();
  Fill(graph, Word(0), 5);
  CUgraphNode last = Fill(graph, Word(2), 1);
  for (uint32_t i = 2; i < 12; ++i) last = CopyWord(graph, Word(i + 1), Word(i), {last});
  CopyWord(graph, Word(1), Word(0), {last});
  // On a busy machine a chain may take longer than anything is late for.
  int num_wrong = 0;
  for (int tries = 0; tries < 10 && num_wrong == 0; ++tries) num_wrong = CountWrongOf(graph, Word(1), 5);
  EXPECT_GT(num_wrong, 0);
}

TEST_F(ShuffledOrderTest, CopiesAndFillsAreDrawnToo) {
  const CUgraph graph = NewGraph();
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = Word(0);
  set.value = 5;
  set.elementSize = 4;
  set.width = set.height = 1;
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = Word(0);
  box.dstDevice = Word(1);
  box.WidthInBytes = 4;
  box.Height = box.Depth = 1;
  CUgraphNode memset = nullptr, copy = nullptr;
  ASSERT_OK(cuGraphAddMemsetNode(&memset, graph, nullptr, 0, &set, context_));
  ASSERT_OK(cuGraphAddMemcpyNode(&copy, graph, nullptr, 0, &box, context_));
  EXPECT_GT(CountWrongOf(graph, Word(1), 5), 0);
}

TEST_F(ShuffledOrderTest, StreamsThatNobodyJoined) {
  NewGraph();
  const CUstream one = NewStream(), other = NewStream();
  const CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  const auto issue = [&](bool joins) {
    EXPECT_OK(Launch("fill", 1, 1, one, Word(0), 5U, 1U));
    EXPECT_OK(cuEventRecord(event, one));
    if (joins) {
      EXPECT_OK(cuStreamWaitEvent(other, event, 0));
    }
    EXPECT_OK(Launch("copy_word", 1, 1, other, Word(1), Word(0)));
  };
  EXPECT_GT(CountWrong(Word(1), 5, [&] { issue(false); }), 0);
  EXPECT_EQ(0, CountWrong(Word(1), 5, [&] { issue(true); }));
}

TEST_F(ShuffledOrderTest, OneStreamStaysInOrder) {
  NewGraph();
  EXPECT_EQ(0, CountWrong(Word(1), 7, [&] {
              EXPECT_OK(Launch("fill", 1, 1, nullptr, Word(0), 5U, 1U));
              EXPECT_OK(Launch("increment", 1, 1, nullptr, Word(0), 1U));
              EXPECT_OK(cuMemcpyDtoDAsync_v2(Word(1), Word(0), 4, nullptr));
              EXPECT_OK(Launch("increment", 1, 1, nullptr, Word(1), 1U));
              EXPECT_OK(Launch("fill", 1, 1, nullptr, Word(0), 9U, 1U));
            }));
}

TEST_F(ShuffledOrderTest, FreedAddressesComeAgain) {
  const CUdeviceptr first = Allocate(4096), second = Allocate(4096);
  EXPECT_OK(cuMemFree_v2(first));
  EXPECT_EQ(first, Allocate(4096));
  EXPECT_OK(cuMemFree_v2(second));
  EXPECT_EQ(second, Allocate(8192));
}

TEST_F(ShuffledOrderTest, KernelsThatWaitForOneAnotherEnd) {
  uint32_t* const flags = NewFlags();
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(&flags[i]), Address(&flags[i + 1]), 1U));
  }
  Raise(&flags[0]);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(1U, Peek(&flags[8]));
}

TEST_F(ShuffledOrderTest, WorkBesideAKernelThatWaitsForTheHostEnds) {
  uint32_t* const flags = NewFlags();
  const CUstream stream = NewStream();
  NewGraph();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(&flags[0]), Address(&flags[1]), 1U));
  for (int i = 0; i < 20; ++i) EXPECT_OK(Launch("increment", 1, 1, stream, Word(0), 1U));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(0U, Peek(&flags[1]));
  Raise(&flags[0]);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(20U, Read(Word(0), 1)[0]);
}

}  // namespace
}  // namespace tally::sim_driver
