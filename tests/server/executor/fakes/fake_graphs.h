// Graphs, captures and user objects of the fake driver: their structure only, nothing runs.
//
// Handles are numbers that are never used twice. Whatever a real driver would not survive is counted as a misuse: a
// handle of something that is gone, the end of a graph that belongs to a node or is being captured into, a reference
// given back that was never there.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::fakes {

class FakeGraphs {
 public:
  // One at a time in a process.
  explicit FakeGraphs(server::DriverTable& table);
  ~FakeGraphs();
  FakeGraphs(const FakeGraphs&) = delete;
  FakeGraphs& operator=(const FakeGraphs&) = delete;

  // With mutex() held. "graph", "graph node", "graph exec", "graph memory", "user object"; only those that there are.
  std::map<std::string, int> live() const;
  // What was done that must not be, in words.
  std::vector<std::string> misuses() const;

  struct Node {
    CUgraph graph = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::vector<CUgraph> inner;  // the child graph, or the bodies
  };
  struct Graph {
    std::vector<CUgraphNode> nodes;
    bool belongs_to_node = false;
    bool was_moved = false;
    int num_captures = 0;
    std::vector<std::shared_ptr<void>> memory;
    std::map<CUuserObject, unsigned> references;
  };
  struct Exec {
    std::vector<std::shared_ptr<void>> memory;
  };
  struct UserObject {
    CUhostFn destroy = nullptr;
    void* argument = nullptr;
    int64_t num_references = 0;
  };

  // For the table's functions; all with mutex() held.
  std::mutex& mutex() const { return mutex_; }
  Graph* Find(CUgraph graph);
  Node* Find(CUgraphNode node);
  Exec* Find(CUgraphExec exec);
  UserObject* Find(CUuserObject object);
  size_t num_nodes() const { return nodes_.size(); }
  CUresult Misuse(const std::string& what);
  CUgraph NewGraph();
  CUgraphExec NewExec(CUgraph graph);
  CUresult AddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count, Node node);
  void Destroy(CUgraph graph);
  void DestroyNode(CUgraphNode node);
  bool Holds(CUgraph graph, CUgraph wanted);
  CUgraph Clone(CUgraph graph);
  CUresult Move(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child);
  CUdeviceptr NewMemory(size_t size_bytes, Graph* graph);
  void Release(CUuserObject object, int64_t count);

  std::map<CUgraphConditionalHandle, CUgraph> conditionals;
  std::map<CUstream, CUgraph> captures;
  std::vector<CUgraph> last_bodies;  // the array that the driver hands out
  std::map<CUgraphExec, Exec> execs;
  std::map<CUuserObject, UserObject> user_objects;

 private:
  uint64_t NextNumber() { return last_number_ += 16; }

  mutable std::mutex mutex_;
  uint64_t last_number_ = 0x600000000000;
  std::map<CUgraph, Graph> graphs_;
  std::map<CUgraphNode, Node> nodes_;
  std::vector<std::string> misuses_;
  std::shared_ptr<int> num_memory_ = std::make_shared<int>(0);
  std::unique_ptr<std::byte[]> window_;
  size_t window_used_ = 0;
};

}  // namespace tally::fakes
