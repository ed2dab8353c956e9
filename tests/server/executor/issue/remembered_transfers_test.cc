// Copies and fills of a batch as nodes of its graph.
#include "tests/server/executor/issue/remembered_graphs_fixture.h"

namespace tally::server {
namespace {

class RememberedTransfersTest : public RememberedGraphsTest {
 protected:
  void SetUp() override {
    RememberedGraphsTest::SetUp();
    num_set_ = 0;
    refuse_set_ = CUDA_SUCCESS;
    driver_.cuGraphExecMemcpyNodeSetParams = [](CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                                CUcontext context) {
      ++num_set_;
      // As a GPU's driver does.
      if (copy->Height > 1) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult r = std::exchange(refuse_set_, CUDA_SUCCESS); r != CUDA_SUCCESS) return r;
      return WatchedDriver::real.cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
    };
    driver_.cuGraphExecMemsetNodeSetParams = [](CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* fill,
                                                CUcontext context) {
      ++num_set_;
      if (fill->height > 1) return CUDA_ERROR_INVALID_VALUE;
      return WatchedDriver::real.cuGraphExecMemsetNodeSetParams(exec, node, fill, context);
    };
  }

  Transfer Copy(size_t to, size_t from, size_t first = 0, size_t num = kWords) const {
    return {.to = memory_[to] + first * 4, .from = memory_[from] + first * 4, .row_bytes = num * 4};
  }
  Transfer Fill(size_t to, uint32_t value) const {
    return {.to = memory_[to], .row_bytes = kWords * 4, .value = value, .element_bytes = 4};
  }
  Transfer Tile(size_t to, size_t from) const {
    return {.to = memory_[to], .from = memory_[from], .row_bytes = 16, .rows = 3, .to_pitch = 64, .from_pitch = 32};
  }
  void Add(Batch& batch, const Transfer& transfer) {
    PendingLaunch launch;
    launch.transfer = transfer;
    launch.owner = &owner_;
    launch.stream = &stream_;
    std::vector<scheduler::Access> accesses = {
        {*scheduler::Box::Rows(transfer.to, transfer.row_bytes, transfer.rows, transfer.to_pitch),
         scheduler::AccessKind::kWrite}};
    if (!transfer.is_fill()) {
      accesses.push_back({*scheduler::Box::Rows(transfer.from, transfer.row_bytes, transfer.rows, transfer.from_pitch),
                          scheduler::AccessKind::kRead});
    }
    batch.shape.Add(*window_.Admit(accesses), 2, GeometryOf(transfer));
    batch.launches.push_back(std::move(launch));
  }
  void Add(Batch& batch, const Step& step) {
    batch.shape.Add(*window_.Admit(std::vector{AccessOf(step.out, scheduler::AccessKind::kReadWrite),
                                               AccessOf(step.in, scheduler::AccessKind::kRead)}),
                    1, 1);
    batch.launches.push_back(LaunchOf(step));
    Expect(step);
  }
  void Run(Batch& batch) {
    ASSERT_EQ(graphs_->Issue(batch.shape, batch.launches,
                             [&](PendingLaunch& launch) {
                               return launch.is_transfer() ? Make(launch.transfer) : LaunchOriginal(launch);
                             }),
              CUDA_SUCCESS);
    while (window_.pending() != 0) window_.Complete(scheduler::FirstOf(window_.pending()));
  }
  CUresult Make(const Transfer& t) {
    if (t.is_fill()) return driver_.cuMemsetD32Async(t.to, t.value, t.row_bytes / 4, stream_.real);
    const CUDA_MEMCPY3D copy = CopyOf(t);
    return driver_.cuMemcpy3DAsync_v2(&copy, stream_.real);
  }

  static inline int num_set_;
  static inline CUresult refuse_set_;
  scheduler::Window window_;
};

TEST_F(RememberedTransfersTest, CopiesAndFillsAreNodes) {
  for (uint32_t use = 0; use < 5; ++use) {
    Batch batch;
    const size_t a = use % 3, b = 3 + use % 2;
    Add(batch, Fill(a, use));
    std::ranges::fill(expected_[a], use);
    Add(batch, Step{.out = 5, .in = a, .addend = use});
    Add(batch, Copy(b, 5, 2, kWords - 4));
    std::copy(expected_[5].begin() + 2, expected_[5].end() - 2, expected_[b].begin() + 2);
    Add(batch, Step{.out = 5, .in = b, .addend = 1});
    Add(batch, Step{.out = 7, .in = 8, .addend = use});
    Run(batch);
  }
  EXPECT_EQ(counts().graph_launches, 4u);
  EXPECT_EQ(counts().shapes_built, 1u);
  EXPECT_GE(num_set_, 6);
  ExpectMemory();
}

TEST_F(RememberedTransfersTest, WhatIsAsItWasIsNotSet) {
  for (uint32_t use = 0; use < 4; ++use) {
    Batch batch;
    Add(batch, Fill(0, 7));
    Add(batch, Copy(1, 0));
    Add(batch, Tile(2, 0));
    Run(batch);
  }
  EXPECT_EQ(counts().graph_launches, 3u);
  EXPECT_EQ(num_set_, 0);
}

// The driver does not take other numbers for them.
TEST_F(RememberedTransfersTest, BoxesWithOtherNumbersAreOtherShapes) {
  for (uint32_t use = 0; use < 6; ++use) {
    Batch batch;
    Add(batch, Fill(0, use));
    Add(batch, Tile(1 + use % 2, 0));
    Run(batch);
  }
  EXPECT_EQ(counts().shapes_built, 2u);
  EXPECT_EQ(counts().shapes_refused, 0u);
  EXPECT_EQ(counts().graph_launches, 4u);
}

TEST_F(RememberedTransfersTest, WhatTheDriverDoesNotSetIsMadeInOrder) {
  for (uint32_t use = 0; use < 4; ++use) {
    Batch batch;
    Add(batch, Fill(0, use));
    std::ranges::fill(expected_[0], use);
    Add(batch, Copy(1 + use, 0));
    std::ranges::fill(expected_[1 + use], use);
    if (use == 2) refuse_set_ = CUDA_ERROR_INVALID_VALUE;
    Run(batch);
  }
  EXPECT_EQ(counts().graph_launches, 1u);
  EXPECT_EQ(counts().shapes_refused, 1u);
  ExpectMemory();
}

TEST_F(RememberedTransfersTest, AKernelThatGoesLeavesGraphsWithoutItAlone) {
  for (int use = 0; use < 2; ++use) {
    Batch batch;
    Add(batch, Fill(0, 7));
    Add(batch, Copy(1, 0));
    Run(batch);
  }
  graphs_->Forget(kernel_);
  EXPECT_EQ(WatchedDriver::num_executables, 1);
}

TEST_F(RememberedTransfersTest, ADriverWithoutSuchNodesIsNoTrouble) {
  driver_.cuGraphAddMemsetNode = nullptr;
  for (uint32_t use = 0; use < 3; ++use) {
    Batch batch;
    Add(batch, Fill(0, use));
    Add(batch, Step{.out = 1, .in = 2});
    Run(batch);
  }
  std::ranges::fill(expected_[0], 2);
  EXPECT_EQ(counts().graph_launches, 0u);
  ExpectMemory();
}

}  // namespace
}  // namespace tally::server
