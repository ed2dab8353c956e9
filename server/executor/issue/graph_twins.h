// GraphTwins: beside an executable graph of a program's one with the same nodes and the edges that they need
// (graph_edges.h), to be launched in its place.
//
//     instantiated      a clone of the graph is kept: the program may change or destroy its own
//     launched          the clone's kernels are asked about, its false edges dropped; the result is the twin. Again
//     after
//                       8, 64 and 512 launches: of some kernels it is not known at once what they touch
//     node changed,     the twin goes, for good: the program's executable, which all such calls change, is launched
//     updated           from then on
//     memory changed    what kernels may touch was said of the memory there was: the twin goes, and is made anew
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

#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/graph_edges.h"

namespace tally::server {

class GraphTwins {
 public:
  // Of an executable. Each reads all of its nodes.
  static constexpr int kMostTries = 8;

  explicit GraphTwins(const DriverTable& driver);
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
    // Of the memory that launches can touch; another number after every change of it.
    uint64_t memory_generation = 0;
  };
  // Launches `exec` or its twin. `accesses_of` may be asked for nodes of our clone. What the driver says of a twin
  // nobody learns: then the program's executable is launched, unless the context is lost.
  CUresult Launch(CUgraphExec exec, const Place& place, const AccessesOfNode& accesses_of);

  struct Counts {
    uint64_t twins_made = 0;
    uint64_t twin_launches = 0;
  };
  const Counts& counts() const { return counts_; }
  // Executables that have a twin, or may get one.
  size_t size() const { return execs_.size(); }

 private:
  struct Exec;
  void Try(Exec& exec, const Place& place, const AccessesOfNode& accesses_of);
  CUresult LaunchBehindOthers(Exec& exec, CUgraphExec launched, const Place& place);

  const DriverTable& driver_;
  std::unordered_map<CUgraphExec, std::unique_ptr<Exec>> execs_;
  Counts counts_;
};

}  // namespace tally::server
