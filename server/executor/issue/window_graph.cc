#include "server/executor/issue/window_graph.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "server/executor/issue/driver_arguments.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_hints.h"

namespace tally::server {

using scheduler::SlotSet;

namespace {

bool CanMakeGraphs(const DriverTable& driver) {
  return driver.cuGraphCreate != nullptr && driver.cuGraphAddKernelNode_v2 != nullptr &&
         driver.cuGraphInstantiateWithFlags != nullptr && driver.cuGraphExecKernelNodeSetParams_v2 != nullptr &&
         driver.cuGraphLaunch != nullptr;
}
bool CanPutTransfersIn(const DriverTable& driver) {
  return driver.cuGraphAddMemcpyNode != nullptr && driver.cuGraphAddMemsetNode != nullptr &&
         driver.cuGraphExecMemcpyNodeSetParams != nullptr && driver.cuGraphExecMemsetNodeSetParams != nullptr;
}

// Those that the driver reads: there may be more behind them.
std::span<const std::byte> ParametersOf(const PendingLaunch& launch) {
  return launch.parameters.bytes().first(launch.kernel->parameter_bytes);
}

}  // namespace

// An empty grid or block is an error of the launch, which it has to be told itself.
bool WindowGraph::CanHold(const PendingLaunch& launch) {
  if (launch.is_transfer()) return !launch.is_captured;
  const auto is_zero = [](uint32_t count) { return count == 0; };
  return (launch.flags & (shm::kLaunchCooperative | shm::kLaunchExtra)) == 0 && AreHints(launch.attributes) &&
         !launch.is_captured && launch.parameters.size() >= launch.kernel->parameter_bytes &&
         std::ranges::none_of(launch.shape.grid, is_zero) && std::ranges::none_of(launch.shape.block, is_zero);
}

CUresult WindowGraph::Build(const DriverTable& driver, std::span<const scheduler::WindowShape::Node> nodes,
                            std::span<PendingLaunch> launches, CUstream stream, std::unique_ptr<WindowGraph>* built) {
  CHECK(nodes.size() == launches.size());
  const bool has_transfers = std::ranges::any_of(launches, &PendingLaunch::is_transfer);
  if (!CanMakeGraphs(driver) || (has_transfers && !CanPutTransfersIn(driver))) return CUDA_ERROR_NOT_SUPPORTED;
  std::unique_ptr<WindowGraph> made(new WindowGraph(driver));
  if (const CUresult r = driver.cuGraphCreate(&made->graph_, 0); r != CUDA_SUCCESS) return r;
  if (const CUresult r = made->AddNodes(nodes, launches); r != CUDA_SUCCESS) return r;
  if (const CUresult r = driver.cuGraphInstantiateWithFlags(&made->exec_, made->graph_, 0); r != CUDA_SUCCESS) return r;
  // Else the first launch does it.
  if (driver.cuGraphUpload != nullptr) {
    if (const CUresult r = driver.cuGraphUpload(made->exec_, stream); r != CUDA_SUCCESS) return r;
  }
  *built = std::move(made);
  return CUDA_SUCCESS;
}

WindowGraph::~WindowGraph() {
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

CUresult WindowGraph::AddNodes(std::span<const scheduler::WindowShape::Node> nodes, std::span<PendingLaunch> launches) {
  nodes_.resize(nodes.size());
  std::array<CUgraphNode, scheduler::kMostSlots> before{};
  for (size_t i = 0; i < nodes.size(); ++i) {
    size_t num_before = 0;
    for (SlotSet left = nodes[i].edges; left != 0; left = scheduler::WithoutFirst(left)) {
      before[num_before++] = nodes_[scheduler::FirstOf(left)].node;
    }
    const CUresult result = AddNode(&nodes_[i].node, std::span(before).first(num_before), launches[i]);
    if (result != CUDA_SUCCESS) return result;
    Note(nodes_[i], launches[i]);
  }
  return CUDA_SUCCESS;
}

CUresult WindowGraph::AddNode(CUgraphNode* node, std::span<const CUgraphNode> before, PendingLaunch& launch) const {
  if (!launch.is_transfer()) {
    DriverArguments arguments(launch);
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
    return driver_.cuGraphAddKernelNode_v2(node, graph_, before.data(), before.size(), &parameters);
  }
  CUcontext context = nullptr;
  if (const CUresult r = driver_.cuCtxGetCurrent(&context); r != CUDA_SUCCESS) return r;
  if (launch.transfer.is_fill()) {
    const CUDA_MEMSET_NODE_PARAMS fill = FillOf(launch.transfer);
    return driver_.cuGraphAddMemsetNode(node, graph_, before.data(), before.size(), &fill, context);
  }
  const CUDA_MEMCPY3D copy = CopyOf(launch.transfer);
  return driver_.cuGraphAddMemcpyNode(node, graph_, before.data(), before.size(), &copy, context);
}

CUresult WindowGraph::SetNode(CUgraphNode node, PendingLaunch& launch) const {
  if (!launch.is_transfer()) {
    DriverArguments arguments(launch);
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
    return driver_.cuGraphExecKernelNodeSetParams_v2(exec_, node, &parameters);
  }
  CUcontext context = nullptr;
  if (const CUresult r = driver_.cuCtxGetCurrent(&context); r != CUDA_SUCCESS) return r;
  if (launch.transfer.is_fill()) {
    const CUDA_MEMSET_NODE_PARAMS fill = FillOf(launch.transfer);
    return driver_.cuGraphExecMemsetNodeSetParams(exec_, node, &fill, context);
  }
  const CUDA_MEMCPY3D copy = CopyOf(launch.transfer);
  return driver_.cuGraphExecMemcpyNodeSetParams(exec_, node, &copy, context);
}

CUresult WindowGraph::Set(std::span<PendingLaunch> launches, uint64_t* num_updates) {
  CHECK(launches.size() == nodes_.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    if (IsSame(nodes_[i], launches[i])) continue;
    if (const CUresult r = SetNode(nodes_[i].node, launches[i]); r != CUDA_SUCCESS) return r;
    Note(nodes_[i], launches[i]);
    ++*num_updates;
  }
  return CUDA_SUCCESS;
}

bool WindowGraph::IsSame(const Node& node, const PendingLaunch& launch) {
  if (node.kernel != launch.kernel) return false;
  if (launch.is_transfer()) return node.transfer == launch.transfer;
  if (node.shape != launch.shape) return false;
  return node.parameters.empty() ||
         std::memcmp(node.parameters.data(), launch.parameters.data(), node.parameters.size()) == 0;
}

void WindowGraph::Note(Node& node, const PendingLaunch& launch) {
  node.kernel = launch.kernel;
  node.transfer = launch.transfer;
  if (launch.is_transfer()) return;
  node.shape = launch.shape;
  const auto parameters = ParametersOf(launch);
  node.parameters.assign(parameters.begin(), parameters.end());
}

}  // namespace tally::server
