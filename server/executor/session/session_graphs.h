// Graphs of one session, and what is known of them beside the driver: the memory they allocate, how they can be
// launched again, what is in them, what they keep alive.
//
// Guarded by the session's sequencer. What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/graph_twins.h"
#include "server/executor/session/declared_tasks.h"
#include "server/executor/session/graph_launches.h"
#include "server/executor/session/graph_memory.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/memory_map.h"
#include "server/executor/session/nested_graphs.h"

namespace tally::server {

// A cuUserObject as far as this client holds it (user_object_ops.cc).
struct UserObject {
  CUuserObject real = nullptr;
  uint64_t handle = 0;
  uint64_t num_client_references = 0;
  std::map<uint64_t, uint64_t> of_graph;  // references by graph handle
  uint64_t num_references() const {
    return std::accumulate(of_graph.begin(), of_graph.end(), num_client_references,
                           [](uint64_t sum, const auto& entry) { return sum + entry.second; });
  }
};

class SessionGraphs {
 public:
  SessionGraphs(const DriverTable& driver, HandleTables& handles, MemoryMap& map)
      : memory(map), launches(driver), nested(driver), driver_(driver), handles_(handles), map_(map) {}

  GraphMemory memory;
  DeclaredTasks declared;
  GraphLaunches launches;
  std::unique_ptr<GraphTwins> twins;  // null: the session has no window
  NestedGraphs nested;
  std::vector<std::unique_ptr<UserObject>> user_objects;
  std::map<uint64_t, uint64_t> conditionals;  // the driver's number -> the graph's handle
  std::string text;                           // the picture that the client is fetching

  // What goes with a graph, as far as the client can name any of it.
  NestedGraphs::Contents ContentsOf(CUgraph graph) {
    // Most programs never name a node: then a graph of thousands of them need not be looked through.
    if (handles_[shm::HandleKind::kGraphNode].size() == 0 && nested.empty()) return {{graph}, {}};
    return nested.ContentsOf(graph);
  }
  // Some node of an executable is about to be set (GraphLaunches::OnNodeSet follows that); to change otherwise; it is
  // about to be destroyed.
  void OnExecNodeSet(CUgraphExec exec);
  void OnExecChanged(CUgraphExec exec);
  void OnExecDestroyed(CUgraphExec exec);
  // Forgets graphs and nodes that the driver has destroyed, or is about to.
  void Forget(const NestedGraphs::Contents& gone);
  // With no reference of the client's or of a graph it knows, the driver's object is gone or about to go.
  void ForgetUnlessHeld(UserObject* object);
  // Destroys what was made in one client context, or in all (kNoContext). Graphs that must stay are those that a stream
  // of another context is being captured into.
  void Destroy(uint32_t context, const std::function<bool(const NestedGraphs::Contents&)>& must_stay);

 private:
  void ForgetUserReferences(uint64_t graph);
  void ReleaseUserObjects();

  const DriverTable& driver_;
  HandleTables& handles_;
  MemoryMap& map_;
};

}  // namespace tally::server
