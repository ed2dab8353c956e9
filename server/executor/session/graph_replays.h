// Graphs of best-effort programs as rows of launches, so that they can be taken from the GPU as any other launch can.
//
// The GPU runs a graph to its end. While somebody with priority is there, a graph that consists of kernels, fills and
// copies on the device is not given to the driver: its nodes are launched one after another, in an order in which every
// node follows those that it depends on, just as if the program had launched them itself: in queues that can be
// stopped, in slices, or in whatever form each kernel has (issue/launch_forms.h). Branches do not run side by side
// then, and every node costs the executor a launch: the price of being stoppable.
//
// Guarded by the session's sequencer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "server/executor/session/client_context.h"

namespace tally::server {

class ClientNames;
class ServedRequest;

class GraphReplays {
 public:
  // Graphs with more nodes are left to the driver.
  static constexpr size_t kMostNodes = 20'000;

  // `exec` does what `graph` says, from now on.
  void OnInstantiated(ServedRequest& served, CUgraph graph, CUgraphExec exec);
  // Some node of it was changed: from now on it is left to the driver.
  void OnChanged(CUgraphExec exec);
  void OnDestroyed(CUgraphExec exec) { execs_.erase(exec); }

  // Launches it node by node, if it can be and there is somebody to give the GPU to. Nothing: the driver has to. The
  // stream is ordered, but not sealed yet.
  std::optional<CUresult> TryLaunch(ServedRequest& served, ClientNames& names, Stream& stream, CUgraphExec exec);

 private:
  using KernelRecord = std::vector<std::byte>;  // as ReadLaunch reads it
  using Node = std::variant<KernelRecord, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMCPY3D>;
  struct Exec {
    std::vector<Node> nodes;  // in the order of their launch; empty: it is the driver's
    // Where it was launched last; launches of one executable never overlap, and the driver knows only of its own.
    const Stream* last_stream = nullptr;
    uint64_t last_handle = 0;  // of that stream: another one may have its address by now
    bool was_replayed = false;
  };

  static std::vector<Node> NodesOf(ServedRequest& served, CUgraph graph);
  static std::optional<Node> Read(ServedRequest& served, CUgraphNode node, CUgraphNodeType type);
  static bool MayReplay(ServedRequest& served, const Stream& stream, const Exec& exec);
  static CUresult Launch(ServedRequest& served, ClientNames& names, Stream& stream, const Node& node);
  // Behind everything of its context so far.
  static CUresult OrderBehindAll(Stream& stream);

  std::unordered_map<CUgraphExec, Exec> execs_;
};

}  // namespace tally::server
