// One executable graph of a session on several GPUs: what is known of its tasks, how long they take, the plan, and what
// launches of it took (graph_launches.h).
//
//      looked at   what its tasks touch, once that is known of all kernels
//      timed       one launch runs its tasks one after another at home; what each takes is its cost
//      planned     scheduler/taskgraph says who runs where; mirrors get code and memory
//      launched    step by step (mirror/placed_run.h), while the session does nothing else
//      judged      against launches as a whole: what is not quicker rests, and is planned anew later (SpreadRest)
//
// A launch that is spread returns when it has ended. Guarded by the session's sequencer; the context of the stream's
// device is current, for the destructor as well.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proto/control/graph_figures.h"
#include "scheduler/recent_times.h"
#include "scheduler/taskgraph/region_map.h"
#include "scheduler/taskgraph/task_plan.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/session/graph_mirrors.h"
#include "server/executor/session/graph_rows.h"
#include "server/executor/session/spread_tasks.h"

namespace tally::server {

// After a plan that was slower, perhaps as somebody else had one of the GPUs: so many launches as a whole go by, and
// after each further one twice as many.
class SpreadRest {
 public:
  static constexpr uint64_t kFirst = 64;

  void Begin() {
    left_ = next_;
    next_ *= 2;
  }
  // Of one more launch.
  bool IsOn() { return left_ != 0 && left_-- != 0; }

 private:
  uint64_t left_ = 0;
  uint64_t next_ = kFirst;
};

class GraphSpread {
 public:
  // Each plan is made by all that is known then; what is changed so often stays whole.
  static constexpr int kMostPlans = 12;
  static constexpr int kMostLooks = 48;
  // Launches by a plan before it is judged.
  static constexpr size_t kTimesBeforeJudged = 4;
  // A graph that takes no longer as a whole gains nothing: a step costs some microseconds.
  static constexpr std::chrono::microseconds kShortest{100};

  explicit GraphSpread(const DriverTable& driver) : driver_(driver) {}
  ~GraphSpread() { DropGraphs(); }
  GraphSpread(const GraphSpread&) = delete;
  GraphSpread& operator=(const GraphSpread&) = delete;

  struct Place {
    const SpreadReading& reading;
    GraphMirrors& mirrors;
    const DriverLibraries& libraries;
    const std::vector<int>& ordinals;  // of the session's GPUs
    CompletionSource& completions;     // of home
    CUcontext context = nullptr;       // of home
    bool is_forced = false;            // for tests: spread whatever can be, at any cost
  };
  // kNone: Launch may be called now. `whole`: how long a launch as a whole takes; zero: nobody knows yet.
  control::WholeReason Prepare(const Place& place, CUgraph graph, std::span<const DeclaredTask> declared,
                               std::chrono::nanoseconds whole);
  // All that the session had queued has ended, and nothing else of it is queued meanwhile. `look` as RunSteps has it.
  CUresult Launch(const Place& place, const std::function<CUresult()>& look);

  // A node was changed: it is looked at anew. The graph that it was read from may go.
  void Forget();

  // Of launches by the last plan; zero: there was none.
  std::chrono::nanoseconds duration() const;
  uint64_t num_launches() const { return num_launches_; }
  uint64_t moved_bytes() const { return moved_bytes_; }
  uint32_t num_gpus() const { return num_gpus_; }  // of the plan
  const SpreadRecord& record() const { return record_; }

 private:
  control::WholeReason Judge(std::chrono::nanoseconds whole, bool is_forced);
  control::WholeReason Look(const Place& place, CUgraph graph, std::span<const DeclaredTask> declared);
  control::WholeReason Plan(const Place& place, std::chrono::nanoseconds whole);
  bool StillHolds(const Place& place);
  // What tasks are where the plan has them. A task that mirrors cannot have is pinned from now on: false.
  bool MakeWork(const Place& place, const scheduler::TaskPlan& plan, std::vector<TaskWork>* work,
                std::vector<MirroredAllocation>* allocations);
  bool MakeWorkAbroad(const Place& place, uint32_t task, TaskWork* work, std::vector<MirroredAllocation>* allocations);
  bool DefineAbroad(const Place& place, const scheduler::TaskPlan& plan, uint32_t task, TaskWork* work);
  CUresult MakeGraph(const Place& place, uint32_t task);
  CUresult MakeGraphs(const Place& place, const scheduler::TaskPlan* plan);
  CUresult TimeTasks(const Place& place);
  std::shared_ptr<const PlanOutline> OutlineOf(const scheduler::TaskPlan& plan, const scheduler::RegionMap& regions);
  void DropPlan();
  void DropGraphs();

  const DriverTable& driver_;
  control::WholeReason for_good_ = control::WholeReason::kNone;
  SpreadRest rest_;
  bool is_read_ = false;
  SpreadTasks tasks_;
  std::vector<CUgraphExec> graphs_;  // by task, of those that run at home; null: it does nothing, or runs elsewhere
  bool are_timed_ = false;           // the tasks: their costs are known
  bool is_planned_ = false;
  std::vector<PlacedStep> steps_;
  std::vector<std::unique_ptr<const DefinedTask>> tasks_there_;  // that the steps use
  std::vector<MirroredAllocation> allocations_;                  // that the steps use
  uint64_t memory_generation_ = 0;                               // in which the tasks' answers were so last
  int num_plans_ = 0;
  int num_looks_ = 0;
  uint64_t num_asked_ = 0;  // since it was forgotten
  uint64_t next_look_ = 0;
  control::WholeReason last_look_ = control::WholeReason::kNone;
  SpreadRecord record_;
  scheduler::RecentTimes times_;
  uint64_t num_launches_ = 0;
  uint64_t moved_bytes_ = 0;
  uint32_t num_gpus_ = 1;
};

}  // namespace tally::server
