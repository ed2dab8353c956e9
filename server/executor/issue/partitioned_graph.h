// A graph of a program as a row of smaller ones, its partitions, each launched by itself. So between any two of them
// the GPU can be given to somebody else; and branches still run side by side, within partitions and on several streams.
//
//     submitted          a -> b -> d -> e -> g            cut into      {a b c} -> {d e} -> {g}
//                          \-> c -> f ------/                               \----> {f} ----/
//
//     stream 0   | {a b c} | {d e} ------- | {g} |        the program's stream: what comes behind waits for all
//     stream 1             | {f} |                        others wait for partitions before them by marks
//
// Each partition passes admission, so the launch waits wherever best-effort work has to. Partitions are launched in an
// order in which each comes behind those that it depends on: none waits for one that has yet to be launched.
//
// A partition of one kernel may be launched *alone*: not as a graph, but in whatever form the kernel has
// (launch_forms.h): gated, in slices; one of a copy or fill likewise, in pieces. If there is one, all go to the
// program's stream, as what comes behind gated work on another stream has to wait for it in the executor.
//
// Launches must not overlap: the caller puts each behind the one before. Guarded by the session's sequencer; a context
// must be current, for the destructor as well, which may come while it runs.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/graph_tasks.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"

namespace tally::server {

class PartitionedGraph {
 public:
  // The program's stream is the first of them.
  static constexpr size_t kMostStreams = 4;

  // Which tasks go together. Partitions are in an order in which each comes behind those that it depends on.
  struct Cut {
    std::vector<uint32_t> partition_of;  // by task
    uint32_t num_partitions = 0;
    std::vector<bool> is_alone;  // by partition; of one task then, and no empty one
  };
  // False: an edge leads from a later partition to an earlier one, one is empty, or one that is alone is not one task
  // that does something.
  static bool IsInOrder(const GraphTasks& graph, const Cut& cut);

  // `cut` is in order. `flags`: that the program instantiated its graph with. Null: the driver refuses some partition.
  // The graph may go then.
  static std::unique_ptr<PartitionedGraph> Make(const DriverTable& driver, CUcontext context, const GraphTasks& graph,
                                                const Cut& cut, unsigned long long flags, size_t most_streams);
  ~PartitionedGraph();
  PartitionedGraph(const PartitionedGraph&) = delete;
  PartitionedGraph& operator=(const PartitionedGraph&) = delete;

  struct Place {
    LaunchStream& stream;  // the program's: ordered, neither sealed nor captured
    // At least num_streams() - 1, where nobody puts anything whom this one's work may have to wait for; none: all goes
    // to the program's stream.
    std::span<LaunchStream> others;
    CompletionSource& completions;  // of the device
    const LaunchOwner& owner;
    std::chrono::nanoseconds turnaround{0};  // as LaunchAsked has it
    // Puts the task, which is alone, on the program's stream.
    std::function<CUresult(uint32_t task)> launch_alone;
  };
  // Each partition on its stream; what comes next on the program's stream waits for all of them, also after an error.
  // An error that costs no context leaves the graph half launched: its program learns of it as of any launch.
  CUresult Launch(const Place& place);

  // A node of the program's executable was changed, and `task` of the graph likewise. False: it cannot be followed.
  bool Follow(uint32_t task, const std::function<CUresult(CUgraphExec exec, CUgraphNode node)>& change);

  size_t num_partitions() const { return partitions_.size(); }
  size_t num_streams() const { return num_streams_; }
  size_t num_tasks() const { return places_.size(); }
  // Of one launch as last measured; zero: not yet, or it is alone.
  std::chrono::nanoseconds duration(size_t partition) const { return partitions_[partition].duration; }
  bool is_alone(size_t partition) const { return partitions_[partition].alone.has_value(); }
  bool has_alone() const { return has_alone_; }
  uint32_t partition_of(uint32_t task) const { return places_[task].partition; }

 private:
  struct Partition {
    std::optional<uint32_t> alone;  // the task
    CUgraph graph = nullptr;        // null if it is alone, as the next
    CUgraphExec exec = nullptr;
    std::vector<uint32_t> behind;  // on other streams
    size_t stream = 0;
    bool is_awaited = false;  // by one on another stream
    Mark end;                 // if so
    std::chrono::nanoseconds duration{0};
  };
  struct PlaceOfTask {
    uint32_t partition = 0;
    CUgraphNode node = nullptr;  // of the partition's graph; null if it is alone
  };

  explicit PartitionedGraph(const DriverTable& driver) : driver_(driver) {}
  CUresult Build(CUcontext context, const GraphTasks& graph, const Cut& cut, unsigned long long flags);
  void ChooseStreams(const GraphTasks& graph, size_t most);
  // So that all that can fail of marks later is a lost context.
  CUresult PrepareMarks(CompletionSource& completions);
  CUresult LaunchOne(const Place& place, LaunchStream& stream, Partition& partition);
  CUresult LaunchAll(const Place& place);
  CUresult Fork(const Place& place);
  CUresult Join(const Place& place);
  static LaunchStream& StreamOf(const Place& place, size_t index) {
    return index == 0 || place.others.empty() ? place.stream : place.others[index - 1];
  }

  const DriverTable& driver_;
  std::vector<Partition> partitions_;
  std::vector<PlaceOfTask> places_;  // by task
  size_t num_streams_ = 1;
  bool has_alone_ = false;
  Mark begin_;              // what other streams wait for
  std::vector<Mark> ends_;  // of other streams
};

}  // namespace tally::server
