// WindowGraph: launches of one shape as an executable graph, which is launched again with other parameters.
//
//     launches    [0]  [1]  [2]  [3]         one node each, in their order: of a kernel, a copy or a fill
//     edges        +---------->+   |         the shape's: what is not connected may run side by side
//                       +----------+
//
// The executable has a copy of all parameters, made when they are set. Another one is here, to see what has changed:
// nodes that are as they were cost a comparison, others about a microsecond. The kernel, its grid, block and shared
// memory are compared as well, so what a node runs is always what its launch says; only the edges are the shape's.
//
// Its kernels must stay loaded as long as it exists. Guarded by the session's sequencer; the stream's context must be
// current wherever the driver is asked, and for the destructor some context.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/window/shape.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/node_budget.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

class WindowGraph {
 public:
  // Node i runs launch i. An error has left nothing behind.
  static CUresult Build(const DriverTable& driver, std::span<const scheduler::WindowShape::Node> nodes,
                        std::span<PendingLaunch> launches, CUstream stream, std::unique_ptr<WindowGraph>* built);
  // At any time: "If the executable graph is in-flight, it will not be terminated, but rather freed asynchronously on
  // completion" (cuGraphExecDestroy in cuda.h).
  ~WindowGraph();
  WindowGraph(const WindowGraph&) = delete;
  WindowGraph& operator=(const WindowGraph&) = delete;

  // From now on launch i is what node i runs; launches made so far are as they were ("already enqueued or running
  // launches of hGraphExec are not affected", cuGraphExecKernelNodeSetParams). Adds to `num_updates` how many nodes had
  // to be told. After an error nobody knows what it runs: destroy it.
  CUresult Set(std::span<PendingLaunch> launches, uint64_t* num_updates);
  CUresult Launch(CUstream stream) { return driver_.cuGraphLaunch(exec_, stream); }

  // To be given back with it.
  void Keep(NodeShare share) { share_ = std::move(share); }
  // What Build and Set can take. All else is launched by itself.
  static bool CanHold(const PendingLaunch& launch);

  template <typename Condition>
  bool HasKernel(Condition condition) const {
    return std::ranges::any_of(nodes_,
                               [&](const Node& node) { return node.kernel != nullptr && condition(*node.kernel); });
  }

 private:
  struct Node {
    CUgraphNode node = nullptr;
    const Kernel* kernel = nullptr;  // null: a transfer
    Transfer transfer;
    LaunchShape shape;
    std::vector<std::byte> parameters;
  };

  explicit WindowGraph(const DriverTable& driver) : driver_(driver) {}
  CUresult AddNode(CUgraphNode* node, std::span<const CUgraphNode> before, PendingLaunch& launch) const;
  CUresult SetNode(CUgraphNode node, PendingLaunch& launch) const;
  CUresult AddNodes(std::span<const scheduler::WindowShape::Node> nodes, std::span<PendingLaunch> launches);
  static bool IsSame(const Node& node, const PendingLaunch& launch);
  static void Note(Node& node, const PendingLaunch& launch);

  const DriverTable& driver_;
  CUgraph graph_ = nullptr;  // its nodes name those of the executable
  CUgraphExec exec_ = nullptr;
  std::vector<Node> nodes_;
  NodeShare share_;
};

}  // namespace tally::server
