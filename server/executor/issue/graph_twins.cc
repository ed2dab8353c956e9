#include "server/executor/issue/graph_twins.h"

#include <utility>

namespace tally::server {

struct GraphTwins::Exec {
  explicit Exec(const DriverTable& table) : driver(table) {}
  ~Exec() { Settle(), DropTwin(); }
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;

  // May be in flight: it is freed when that has ended.
  void DropTwin() {
    if (twin == nullptr) return;
    driver.cuGraphExecDestroy(twin);
    if (last_launched == twin) last_launched = nullptr;
    twin = nullptr;
  }
  // There will be no other twin than this one.
  void Settle() {
    if (source != nullptr) driver.cuGraphDestroy(source);
    source = nullptr;
  }

  const DriverTable& driver;
  CUgraph source = nullptr;  // our clone, false edges and all
  unsigned long long flags = 0;
  CUgraphExec twin = nullptr;
  uint64_t memory_generation = 0;  // that the twin was made for
  uint64_t num_launches = 0;
  uint64_t next_try = 1;  // at this launch
  int num_tries = 0;
  // What was launched last, if it is still there, and its end.
  CUgraphExec last_launched = nullptr;
  Mark last;
};

GraphTwins::GraphTwins(const DriverTable& driver) : driver_(driver) {}
GraphTwins::~GraphTwins() = default;

void GraphTwins::OnInstantiated(CUgraph graph, CUgraphExec exec, unsigned long long flags) {
  execs_.erase(exec);
  if (driver_.cuGraphClone == nullptr || driver_.cuGraphInstantiateWithFlags == nullptr) return;
  size_t num_nodes = 0;
  if (driver_.cuGraphGetNodes(graph, nullptr, &num_nodes) != CUDA_SUCCESS) return;
  if (num_nodes < 2 || num_nodes > scheduler::kMostGraphNodes) return;
  auto known = std::make_unique<Exec>(driver_);
  if (driver_.cuGraphClone(&known->source, graph) != CUDA_SUCCESS) {
    known->source = nullptr;
    return;
  }
  known->flags = flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  execs_[exec] = std::move(known);
}

// What was launched last may still run: the entry stays until the next launch has come behind it.
void GraphTwins::OnChanged(CUgraphExec exec) {
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return;
  found->second->Settle();
  found->second->DropTwin();
}

void GraphTwins::OnDestroyed(CUgraphExec exec) { execs_.erase(exec); }

void GraphTwins::OnUnload() {
  for (auto& [exec, known] : execs_) known->Settle();
}

void GraphTwins::Clear() { execs_.clear(); }

CUresult GraphTwins::Launch(CUgraphExec exec, const Place& place, const AccessesOfNode& accesses_of) {
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return driver_.cuGraphLaunch(exec, place.stream);
  Exec& known = *found->second;
  ++known.num_launches;
  if (known.twin != nullptr && known.memory_generation != place.memory_generation) {
    known.DropTwin();
    known.next_try = known.num_launches;
  }
  if (known.source != nullptr && known.num_launches >= known.next_try) Try(known, place, accesses_of);
  if (known.twin != nullptr) {
    const CUresult result = LaunchBehindOthers(known, known.twin, place);
    if (result == CUDA_SUCCESS) ++counts_.twin_launches;
    if (result == CUDA_SUCCESS || IsSticky(result)) return result;
    known.Settle();
    known.DropTwin();
  }
  const CUresult result = LaunchBehindOthers(known, exec, place);
  // From now on there are launches of this executable only.
  if (result == CUDA_SUCCESS && known.source == nullptr) execs_.erase(found);
  return result;
}

void GraphTwins::Try(Exec& exec, const Place& place, const AccessesOfNode& accesses_of) {
  exec.next_try = exec.num_launches * 8;
  if (const CUgraph graph = CloneWithTrueEdges(driver_, exec.source, accesses_of)) {
    CUgraphExec made = nullptr;
    if (driver_.cuGraphInstantiateWithFlags(&made, graph, exec.flags) == CUDA_SUCCESS) {
      exec.DropTwin();
      exec.twin = made;
      exec.memory_generation = place.memory_generation;
      ++counts_.twins_made;
    }
    driver_.cuGraphDestroy(graph);
  }
  if (++exec.num_tries == kMostTries) exec.Settle();
}

CUresult GraphTwins::LaunchBehindOthers(Exec& exec, CUgraphExec launched, const Place& place) {
  if (exec.last_launched != launched) {
    if (const CUresult r = exec.last.HoldBack(place.stream); r != CUDA_SUCCESS) return r;
  }
  // Without a mark nobody could come behind the twin.
  if (launched == exec.twin) {
    if (const CUresult r = place.completions.Prepare(&exec.last); r != CUDA_SUCCESS) return r;
  }
  if (const CUresult r = driver_.cuGraphLaunch(launched, place.stream); r != CUDA_SUCCESS) return r;
  exec.last_launched = launched;
  if (place.completions.Put(place.stream, &exec.last) != CUDA_SUCCESS) {
    exec.Settle();
    exec.DropTwin();
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
