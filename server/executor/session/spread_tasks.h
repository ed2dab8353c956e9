// The nodes of a graph as tasks that may be given to any GPU: what they touch, and what has to be launched for them
// there.
//
//      node of a kernel       what its PTX says (issue/access_finder.h)       one launch
//      node of a fill         exact                                           one fill
//      a declared task        what its program says                           its nodes, in order
//      everything else        anything, or exact for a copy                   home only
//
// A task may leave home if all that it touches is memory that other processes can map, and each of its nodes is a
// launch, or a fill by bytes, that another process can make.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "proto/shm/mirror_abi.h"
#include "scheduler/taskgraph/task_graph.h"
#include "server/executor/issue/access_finder.h"
#include "server/executor/issue/graph_tasks.h"
#include "server/executor/issue/launch_memory.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/declared_task.h"
#include "server/executor/session/spread_memory.h"

namespace tally::server {

class ServedRequest;

struct SpreadTasks {
  // A launch or fill of a node.
  struct Command {
    Kernel* kernel = nullptr;      // of a launch
    shm::MirrorCommand command{};  // without the number of a function; a fill is at `address`
    std::vector<std::byte> parameters;
  };
  struct OfTask {
    std::vector<uint32_t> nodes;    // of the graph, ascending
    std::vector<Command> commands;  // in order; if it may leave home
    std::vector<scheduler::Box> scratch{};
  };

  GraphTasks nodes;
  std::vector<OfTask> work;            // by TaskId
  std::vector<scheduler::Task> tasks;  // likewise; pinned unless they may leave home. Without costs
  std::vector<scheduler::GraphEdge> edges;
  MemoryAnswers answers;    // that this was concluded from
  bool is_complete = true;  // false: some kernel was not looked at yet
};

struct SpreadReading {
  ServedRequest& served;
  Stream& stream;  // the context of its device is current
  AccessFinder& finder;
  const LaunchMemory& memory;
  const SpreadMemory& spread;
};

// Declared tasks: of nodes of `graph`. Those whose nodes would have to come both behind and before others are taken for
// undeclared, together with all others. Not kNone: the graph cannot be read.
control::WholeReason ReadSpreadTasks(const SpreadReading& reading, CUgraph graph,
                                     std::span<const DeclaredTask> declared, SpreadTasks* tasks);

}  // namespace tally::server
