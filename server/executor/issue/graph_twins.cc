#include "server/executor/issue/graph_twins.h"

#include <utility>

#include "server/executor/issue/timed_ways.h"

namespace tally::server {

using scheduler::IssueWay;

namespace {

// Of one executable. With more, every change of memory is one of its own.
constexpr size_t kMostAnswerBytes = size_t{1} << 16;

}  // namespace

struct GraphTwins::Exec {
  Exec(const DriverTable& table, uint64_t uses) : driver(table), uses_between_looks(uses), ways(uses) {}
  ~Exec() { Settle(), DropTwin(); }
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;

  // May be in flight: it is freed when that has ended.
  void DropTwin() {
    if (twin == nullptr) return;
    driver.cuGraphExecDestroy(twin);
    if (last_launched == twin) last_launched = nullptr;
    twin = nullptr;
    twin_share.GiveBack();
    ways = TimedWays(uses_between_looks);
  }
  // There will be no other twin than this one.
  void Settle() {
    if (source != nullptr) driver.cuGraphDestroy(source);
    source = nullptr;
    source_share.GiveBack();
  }
  // What was said of memory when the twin was made is so still.
  bool IsOfMemory(const LaunchMemory& memory) {
    const uint64_t generation = memory.generation();  // first: what changes meanwhile is seen the next time
    if (memory_generation == generation) return true;
    if (answers.num_bytes() > kMostAnswerBytes || !answers.Hold(memory)) return false;
    memory_generation = generation;
    return true;
  }

  const DriverTable& driver;
  const uint64_t uses_between_looks;
  size_t num_nodes = 0;
  NodeShare source_share, twin_share;
  CUgraph source = nullptr;  // our clone, false edges and all
  unsigned long long flags = 0;
  CUgraphExec twin = nullptr;
  TimedWays ways;                  // the twin is the graph, the program's executable is in order
  uint64_t memory_generation = 0;  // in which the answers were so last
  MemoryAnswers answers;           // that the twin was made by
  uint64_t num_launches = 0;
  uint64_t next_try = 1;  // at this launch
  int num_tries = 0;
  // What was launched last, if it is still there, and its end.
  CUgraphExec last_launched = nullptr;
  Mark last;
};

GraphTwins::GraphTwins(const DriverTable& driver, Limits limits) : driver_(driver), limits_(limits) {}
GraphTwins::~GraphTwins() = default;

void GraphTwins::OnInstantiated(CUgraph graph, CUgraphExec exec, unsigned long long flags) {
  execs_.erase(exec);
  if (driver_.cuGraphClone == nullptr || driver_.cuGraphInstantiateWithFlags == nullptr) return;
  size_t num_nodes = 0;
  if (driver_.cuGraphGetNodes(graph, nullptr, &num_nodes) != CUDA_SUCCESS) return;
  if (num_nodes < 2 || num_nodes > scheduler::kMostGraphNodes) return;
  auto known = std::make_unique<Exec>(driver_, limits_.uses_between_looks);
  known->num_nodes = num_nodes;
  known->source_share = limits_.nodes->Take(num_nodes);
  if (!known->source_share) return;
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

CUresult GraphTwins::Launch(CUgraphExec exec, const Place& place, const AskAboutNode& accesses_of) {
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return driver_.cuGraphLaunch(exec, place.stream);
  Exec& known = *found->second;
  ++known.num_launches;
  if (known.twin != nullptr && !known.IsOfMemory(place.memory)) {
    known.DropTwin();
    known.next_try = known.num_launches;
  }
  if (known.source != nullptr && known.num_launches >= known.next_try) {
    Try(known, place.memory.generation(), accesses_of);
  }
  const CUresult result = LaunchOneOf(known, exec, place);
  // From now on there are launches of this executable only.
  if (result == CUDA_SUCCESS && known.source == nullptr && known.twin == nullptr && known.last_launched == exec) {
    execs_.erase(found);
  }
  return result;
}

CUresult GraphTwins::LaunchOneOf(Exec& exec, CUgraphExec own, const Place& place) {
  if (exec.twin == nullptr) return LaunchBehindOthers(exec, own, place);
  scheduler::WayChoice::Next next{.way = IssueWay::kGraph};
  if (limits_.are_measured) {
    exec.ways.Collect(place.completions);
    next = exec.ways.Next();
  }
  if (next.way == IssueWay::kInOrder) {
    if (!next.is_sample) ++counts_.twins_slower;
    return LaunchBehindOthers(exec, own, place, next.is_sample);
  }
  const scheduler::WayDurations durations = {exec.ways.choice().duration(IssueWay::kInOrder),
                                             exec.ways.choice().duration(IssueWay::kGraph)};
  const CUresult result = LaunchBehindOthers(exec, exec.twin, place, next.is_sample);
  if (result == CUDA_SUCCESS) {
    ++counts_.twin_launches;
    counts_.durations.in_order += durations.in_order;
    counts_.durations.as_issued += durations.as_issued;
  }
  if (result == CUDA_SUCCESS || IsSticky(result)) return result;
  exec.Settle();
  exec.DropTwin();
  return LaunchBehindOthers(exec, own, place);
}

void GraphTwins::Try(Exec& exec, uint64_t generation, const AskAboutNode& accesses_of) {
  exec.next_try = exec.num_launches * 8;
  MemoryAnswers answers;
  const CUgraph graph = CloneWithTrueEdges(driver_, exec.source, [&](CUgraphNode node) {
    MemoryAnswers of_node;
    auto accesses = accesses_of(node, of_node);
    if (answers.num_bytes() <= kMostAnswerBytes) answers.Join(of_node);
    return accesses;
  });
  if (graph != nullptr) {
    NodeShare share = limits_.nodes->Take(exec.num_nodes);
    CUgraphExec made = nullptr;
    if (share && driver_.cuGraphInstantiateWithFlags(&made, graph, exec.flags) == CUDA_SUCCESS) {
      exec.DropTwin();
      exec.twin = made;
      exec.twin_share = std::move(share);
      exec.memory_generation = generation;
      exec.answers = std::move(answers);
      ++counts_.twins_made;
    }
    driver_.cuGraphDestroy(graph);
  }
  if (++exec.num_tries == kMostTries) exec.Settle();
}

CUresult GraphTwins::LaunchBehindOthers(Exec& exec, CUgraphExec launched, const Place& place, bool is_sample) {
  const IssueWay way = launched == exec.twin ? IssueWay::kGraph : IssueWay::kInOrder;
  if (exec.last_launched != launched) {
    if (const CUresult r = exec.last.HoldBack(place.stream); r != CUDA_SUCCESS) return r;
  }
  // Without a mark nobody could come behind the twin.
  if (launched == exec.twin) {
    if (const CUresult r = place.completions.Prepare(&exec.last); r != CUDA_SUCCESS) return r;
  }
  Mark begin;
  if (is_sample) begin = TimedWays::Begin(place.completions, place.stream);
  if (const CUresult r = driver_.cuGraphLaunch(launched, place.stream); r != CUDA_SUCCESS) {
    if (is_sample) exec.ways.Lose(way);
    return r;
  }
  if (is_sample) exec.ways.End(way, std::move(begin), place.completions, place.stream);
  exec.last_launched = launched;
  if (place.completions.Put(place.stream, &exec.last) != CUDA_SUCCESS) {
    exec.Settle();
    exec.DropTwin();
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
