// GraphTwins: beside an executable graph of a program's one with the same nodes and the edges that they need
// (graph_edges.h), to be launched in its place.
//
//     instantiated      a clone of the graph is kept: the program may change or destroy its own
//     launched          the clone's kernels are asked about, its false edges dropped; the result is the twin. Again
//                       after 8, 64 and 512 launches: of some kernels it is not known at once what they touch
//     node changed,     the twin goes, for good: the program's executable, which all such calls change, is launched
//     updated           from then on
//     memory changed    what kernels may touch was said of the memory there was: if of that some changed, the twin
//                       goes, and is made anew
//
// Which of the two is launched is measured (timed_ways.h), as for batches: the twin if it is 5 % faster, and both again
// now and then.
//
// Launches of one executable never overlap, which the driver sees to. So that those of twin and original do not,
// either, there is a mark behind each of them.
//
// Guarded by the session's sequencer, of one session. A context must be current wherever the driver is asked, for the
// destructor as well.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "scheduler/window/way_choice.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/graph_edges.h"
#include "server/executor/issue/launch_memory.h"
#include "server/executor/issue/node_budget.h"

namespace tally::server {

class GraphTwins {
 public:
  // Of an executable. Each reads all of its nodes.
  static constexpr int kMostTries = 8;

  struct Limits {
    NodeBudget* nodes = nullptr;  // not null
    // False: nothing is timed, and each graph that has a twin is launched as that.
    bool are_measured = true;
    uint64_t uses_between_looks = scheduler::WayChoice::kUsesBetweenLooks;
  };
  GraphTwins(const DriverTable& driver, Limits limits);
  ~GraphTwins();

  // `exec` does what `graph` says, from now on. `flags`: that it was instantiated with.
  void OnInstantiated(CUgraph graph, CUgraphExec exec, unsigned long long flags);
  // Some node of it was changed, or is about to be.
  void OnChanged(CUgraphExec exec);
  void OnDestroyed(CUgraphExec exec);
  // Kernels are about to be unloaded, perhaps some of a graph: no twin is made any more of those there are.
  void OnUnload();
  void Clear();

  struct Place {
    CUstream stream = nullptr;  // sealed, not being captured
    CompletionSource& completions;
    const LaunchMemory& memory;  // that launches can touch
  };
  // As graph_edges.h has it. `answers` gets what memory was asked for it.
  using AskAboutNode = std::function<scheduler::GraphNodeAccesses(CUgraphNode, MemoryAnswers& answers)>;
  // Launches `exec` or its twin. `accesses_of` may be asked for nodes of our clone. What the driver says of a twin
  // nobody learns: then the program's executable is launched, unless the context is lost.
  CUresult Launch(CUgraphExec exec, const Place& place, const AskAboutNode& accesses_of);

  struct Counts {
    uint64_t twins_made = 0;
    uint64_t twin_launches = 0;
    uint64_t twins_slower = 0;  // launches of originals whose twins were measured and are not used
    // Of twins launched, as last measured for each: what their originals take, and they.
    scheduler::WayDurations durations{};
  };
  const Counts& counts() const { return counts_; }
  // Executables that have a twin, or may get one.
  size_t size() const { return execs_.size(); }

 private:
  struct Exec;
  void Try(Exec& exec, uint64_t generation, const AskAboutNode& accesses_of);
  CUresult LaunchOneOf(Exec& exec, CUgraphExec own, const Place& place);
  CUresult LaunchBehindOthers(Exec& exec, CUgraphExec launched, const Place& place, bool is_sample = false);

  const DriverTable& driver_;
  const Limits limits_;
  std::unordered_map<CUgraphExec, std::unique_ptr<Exec>> execs_;
  Counts counts_;
};

}  // namespace tally::server
