// A program's graph with the edges that it needs, in place of those of the stream that it was captured from: kernels,
// copies and fills that do not touch the same memory may run side by side. Which edges those are says
// scheduler/window/true_edges.h.
//
// The program's own graph stays as it is. What is made is a clone, to be instantiated beside it: whoever changes a node
// or an executable changes what kernels touch, so such a change is one of the program's own, and the clone's executable
// is of no use from then on.
#pragma once

#include <cuda.h>

#include <functional>

#include "scheduler/window/true_edges.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

// Of a kernel, copy or fill node of the graph: what each of its launches may touch, for its parameters.
// Extent::kAnything: not known, or more than memory of the device; such a node keeps its place.
using AccessesOfNode = std::function<scheduler::GraphNodeAccesses(CUgraphNode)>;

// The caller destroys it. Null: there is nothing to gain, it could not be made, or the graph is one that is left alone:
// with nodes other than kernels, copies, fills, host functions and empty ones; with some that the device changes; with
// edges that have data (programmatic ones); with too many nodes. A context must be current; nobody else may use the
// graph meanwhile.
CUgraph CloneWithTrueEdges(const DriverTable& driver, CUgraph graph, const AccessesOfNode& accesses_of);

}  // namespace tally::server
