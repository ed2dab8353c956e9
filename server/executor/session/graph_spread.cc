#include "server/executor/session/graph_spread.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/taskgraph/needed_edges.h"
#include "scheduler/taskgraph/region_map.h"
#include "server/executor/mirror/mirror_command.h"
#include "server/executor/mirror/placed_run.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

using control::WholeReason;
using scheduler::TaskPlan;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

namespace {

// H200s of one host, as bench/taskgraph-model has them: what decides in the end is measured.
constexpr uint64_t kLinkBytesPerUs = 385'000;
constexpr uint64_t kLinkLatencyNs = 10'000;
constexpr uint64_t kStartNs = 5'000;
// A plan that promises less is not tried.
constexpr double kLeastGain = 1.05;
// Of a task of a graph that is spread whatever it costs.
constexpr uint64_t kForcedCostNs = 1'000'000;
// How long such a graph waits for what its kernels touch.
constexpr milliseconds kLongestForcedLook{20'000}, kBetweenForcedLooks{2};
// Executables of one task each, of one graph.
constexpr size_t kMostGraphs = 8192;

scheduler::PlanMachine MachineOf(size_t num_gpus, bool is_forced) {
  return {.num_devices = num_gpus,
          .link_bytes_per_us = kLinkBytesPerUs,
          .link_latency_ns = is_forced ? 0 : kLinkLatencyNs,
          .start_ns = is_forced ? 0 : kStartNs};
}

}  // namespace

void GraphSpread::DropGraphs() {
  for (const CUgraphExec graph : graphs_) {
    if (graph != nullptr) driver_.cuGraphExecDestroy(graph);
  }
  graphs_.clear();
}

void GraphSpread::DropPlan() {
  is_planned_ = false;
  steps_.clear();
  tasks_there_.clear();
  allocations_.clear();
  times_ = {};
  record_ = {};
  num_gpus_ = 1;
}

void GraphSpread::Forget() {
  DropPlan();
  DropGraphs();
  is_read_ = are_timed_ = false;
  num_asked_ = next_look_ = 0;
  tasks_ = {};
}

nanoseconds GraphSpread::duration() const { return times_.empty() ? nanoseconds(0) : times_.Median(); }

bool GraphSpread::StillHolds(const Place& place) {
  if (!std::ranges::all_of(allocations_, [&](const auto& used) { return place.mirrors.Has(used); })) return false;
  const uint64_t generation = place.reading.memory.generation();  // first: what changes meanwhile is seen next time
  if (memory_generation_ == generation) return true;
  if (!tasks_.answers.Hold(place.reading.memory)) return false;
  memory_generation_ = generation;
  return true;
}

WholeReason GraphSpread::Judge(nanoseconds whole, bool is_forced) {
  if (is_forced || times_.size() < kTimesBeforeJudged || whole.count() == 0 || duration() < whole) {
    return WholeReason::kNone;
  }
  Forget();
  rest_.Begin();
  return WholeReason::kSlower;
}

WholeReason GraphSpread::Look(const Place& place, CUgraph graph, std::span<const DeclaredTask> declared) {
  if (++num_looks_ > kMostLooks) return for_good_ = WholeReason::kUpdated;
  const auto end = steady_clock::now() + kLongestForcedLook;
  while (true) {
    const uint64_t generation = place.reading.memory.generation();
    const WholeReason refusal = ReadSpreadTasks(place.reading, graph, declared, &tasks_);
    if (refusal != WholeReason::kNone) return for_good_ = refusal;
    memory_generation_ = generation;
    if (tasks_.is_complete) break;
    if (!place.is_forced || steady_clock::now() > end) return WholeReason::kLooking;
    std::this_thread::sleep_for(kBetweenForcedLooks);
  }
  const auto num_free = std::ranges::count_if(tasks_.tasks, [](const auto& task) { return !task.is_pinned; });
  if (num_free < 2) return WholeReason::kStaysHome;
  if (tasks_.tasks.size() > kMostGraphs) return for_good_ = WholeReason::kTooLarge;
  is_read_ = true;
  return WholeReason::kNone;
}

WholeReason GraphSpread::Prepare(const Place& place, CUgraph graph, std::span<const DeclaredTask> declared,
                                 nanoseconds whole) {
  if (for_good_ != WholeReason::kNone) return for_good_;
  if (rest_.IsOn()) return WholeReason::kSlower;
  if (is_read_ && !StillHolds(place)) Forget();
  if (is_planned_) return Judge(whole, place.is_forced);
  if (!place.is_forced && whole.count() == 0) return WholeReason::kLooking;
  if (!place.is_forced && whole < kShortest) return WholeReason::kNoGain;
  if (!is_read_) {
    // Reading a graph costs more than launching it: after a look in vain twice as many launches go by.
    if (++num_asked_ < next_look_) return last_look_;
    next_look_ = 2 * num_asked_;
    last_look_ = Look(place, graph, declared);
    if (last_look_ != WholeReason::kNone) return last_look_;
  }
  if (place.is_forced || are_timed_) return Plan(place, whole);
  // One launch says how long they take.
  return MakeGraphs(place, nullptr) == CUDA_SUCCESS ? WholeReason::kNone : for_good_;
}

WholeReason GraphSpread::Plan(const Place& place, nanoseconds whole) {
  if (++num_plans_ > kMostPlans) return for_good_ = WholeReason::kUpdated;
  if (place.is_forced) {
    for (scheduler::Task& task : tasks_.tasks) task.cost_ns = kForcedCostNs;
  }
  const size_t num_gpus = std::min<size_t>(place.ordinals.size(), scheduler::kMostDevices);
  while (true) {
    auto made = scheduler::TaskGraph::Make(tasks_.tasks, tasks_.edges);
    const auto regions = scheduler::RegionMap::Make(tasks_.tasks);
    if (!made || !regions) return for_good_ = WholeReason::kTooLarge;
    if (auto needed = scheduler::NeededEdges(*made, *regions)) made = made->With(std::move(*needed));
    const auto plan = TaskPlan::Make(*made, *regions, MachineOf(num_gpus, place.is_forced));
    if (!plan) return for_good_ = WholeReason::kTooLarge;
    const bool stays_home = std::ranges::none_of(
        plan->steps(), [](const scheduler::PlanStep& step) { return step.device != scheduler::kHome; });
    // What one GPU runs side by side the plan runs one after another: so it is held against the same.
    const double gain =
        static_cast<double>(made->total_ns()) / static_cast<double>(std::max<uint64_t>(1, plan->end_ns()));
    if (stays_home || (!place.is_forced && gain < kLeastGain)) {
      const auto count = [&](auto is_one) { return std::ranges::count_if(tasks_.tasks, is_one); };
      LOG_WARNING(
          "a graph of {} tasks stays on one GPU: {} may leave it, {} may touch anything; planned {:.3f} ms, {:.3f} "
          "ms one after another at home",
          tasks_.tasks.size(), count([](const auto& task) { return !task.is_pinned; }),
          count([](const auto& task) { return task.touches.extent != scheduler::Extent::kSaid; }),
          static_cast<double>(plan->end_ns()) / 1e6, static_cast<double>(made->total_ns()) / 1e6);
      Forget();
      return for_good_ = WholeReason::kNoGain;
    }
    if (!place.mirrors.Start(place.libraries, place.reading.stream.device, place.ordinals)) {
      Forget();
      return for_good_ = WholeReason::kNoMirrors;
    }
    std::vector<TaskWork> work;
    if (!MakeWork(place, *plan, &work, &allocations_)) {
      if (for_good_ != WholeReason::kNone) return for_good_;
      continue;
    }
    auto steps = StepsOfPlan(*plan, *regions, work, allocations_);
    if (!steps || !CheckSteps(*steps, place.mirrors.queues().size()).ok()) return for_good_ = WholeReason::kRefused;
    steps_ = std::move(*steps);
    record_ = {.plan = OutlineOf(*plan, *regions), .times = nullptr};
    std::vector<bool> is_used(num_gpus);
    for (const PlacedStep& step : steps_) is_used[step.gpu] = true;
    num_gpus_ = static_cast<uint32_t>(std::ranges::count(is_used, true));
    is_planned_ = true;
    LOG_INFO("a graph of {} tasks on {} GPUs: planned {:.3f} ms, {:.3f} ms as a whole, {} bytes to move",
             tasks_.tasks.size(), num_gpus_, static_cast<double>(plan->end_ns()) / 1e6,
             static_cast<double>(whole.count()) / 1e6, plan->moved_bytes());
    return WholeReason::kNone;
  }
}

std::shared_ptr<const PlanOutline> GraphSpread::OutlineOf(const TaskPlan& plan, const scheduler::RegionMap& regions) {
  using scheduler::StepKind;
  auto outline = std::make_shared<PlanOutline>();
  std::map<const Kernel*, uint32_t> names;
  outline->names.emplace_back();  // of a task whose first node is no kernel that is known
  for (uint32_t i = 0; i < plan.steps().size(); ++i) {
    const scheduler::PlanStep& planned = plan.steps()[i];
    PlanOutline::Step& step = outline->steps.emplace_back();
    step.gpu = planned.device;
    step.from = planned.from;
    step.planned_begin = nanoseconds(planned.begin_ns);
    step.planned_end = nanoseconds(planned.end_ns);
    step.after.assign(plan.before(i).begin(), plan.before(i).end());
    if (planned.kind != StepKind::kTask) {
      step.kind = planned.kind == StepKind::kMove ? PlanOutline::Kind::kMove : PlanOutline::Kind::kDrop;
      step.num_bytes = regions.region(planned.what).bytes();
      continue;
    }
    const SpreadTasks::OfTask& work = tasks_.work[planned.what];
    step.task = planned.what;
    step.num_nodes = static_cast<uint32_t>(work.nodes.size());
    const Kernel* const kernel = work.commands.empty() ? nullptr : work.commands[0].kernel;
    if (kernel == nullptr) continue;
    const auto [name, is_new] = names.try_emplace(kernel, static_cast<uint32_t>(outline->names.size()));
    if (is_new) outline->names.push_back(NameOf(driver_, *kernel));
    step.name = name->second;
  }
  return outline;
}

bool GraphSpread::MakeWork(const Place& place, const TaskPlan& plan, std::vector<TaskWork>* work,
                           std::vector<MirroredAllocation>* allocations) {
  work->assign(tasks_.tasks.size(), {});
  allocations->clear();
  tasks_there_.clear();
  bool is_complete = true;
  for (uint32_t task = 0; task < tasks_.tasks.size(); ++task) {
    // Whatever it touches may have to be moved.
    if (tasks_.tasks[task].is_pinned) continue;
    if (MakeWorkAbroad(place, task, &(*work)[task], allocations) && DefineAbroad(place, plan, task, &(*work)[task])) {
      continue;
    }
    tasks_.tasks[task].is_pinned = true;
    is_complete = false;
  }
  if (!is_complete) return false;
  if (MakeGraphs(place, &plan) != CUDA_SUCCESS) return false;
  for (uint32_t task = 0; task < graphs_.size(); ++task) (*work)[task].graph = graphs_[task];
  return true;
}

bool GraphSpread::DefineAbroad(const Place& place, const TaskPlan& plan, uint32_t task, TaskWork* work) {
  if (plan.device_of(task) == scheduler::kHome || work->commands.size() < 2) return true;
  auto there = place.mirrors.Define(plan.device_of(task), work->commands);
  if (there == nullptr) return false;
  work->number = there->number();
  tasks_there_.push_back(std::move(there));
  return true;
}

bool GraphSpread::MakeWorkAbroad(const Place& place, uint32_t task, TaskWork* work,
                                 std::vector<MirroredAllocation>* allocations) {
  const auto have = [&](uint64_t begin, uint64_t end) -> const MirroredAllocation* {
    for (const MirroredAllocation& known : *allocations) {
      if (begin >= known.address && end - known.address <= known.num_bytes) return &known;
    }
    const auto around = place.reading.spread.Around(begin, end);
    const MirroredAllocation* const had = around ? place.mirrors.Have(*around) : nullptr;
    if (had != nullptr) allocations->push_back(*had);
    return had;
  };
  for (const scheduler::Access& access : tasks_.tasks[task].touches.accesses) {
    if (have(access.box.begin(), access.box.end()) == nullptr) return false;
  }
  for (const scheduler::Box& box : tasks_.work[task].scratch) {
    if (have(box.begin(), box.end()) == nullptr) return false;
  }
  for (const SpreadTasks::Command& wanted : tasks_.work[task].commands) {
    shm::MirrorCommand command = wanted.command;
    if (wanted.kernel != nullptr) {
      const auto number = place.mirrors.NumberOf(*wanted.kernel);
      if (!number) return false;
      command.function = *number;
    } else {
      const MirroredAllocation* const in = have(command.address, command.address + BoxExtent(command));
      if (in == nullptr) return false;
      command.allocation = in->number;
      command.offset = command.address - in->address;
    }
    work->commands.push_back({command, wanted.parameters});
  }
  return true;
}

CUresult GraphSpread::MakeGraph(const Place& place, uint32_t task) {
  const std::vector<uint32_t>& nodes = tasks_.work[task].nodes;
  const GraphTasks& graph = tasks_.nodes;
  if (std::ranges::all_of(nodes, [&](uint32_t node) { return graph.tasks[node].kind == NodeKind::kEmpty; })) {
    return CUDA_SUCCESS;
  }
  CUgraph of_task = nullptr;
  if (const CUresult r = driver_.cuGraphCreate(&of_task, 0); r != CUDA_SUCCESS) return r;
  CUresult result = CUDA_SUCCESS;
  CUgraphNode last = nullptr;
  // One behind the other: whoever has declared them as one task has captured them so, or does not mind.
  for (const uint32_t node : nodes) {
    const std::span<const CUgraphNode> behind(&last, last != nullptr ? 1 : 0);
    CUgraphNode made = nullptr;
    if (result == CUDA_SUCCESS) result = AddTask(driver_, graph.tasks[node], of_task, place.context, behind, &made);
    last = made;
  }
  if (result == CUDA_SUCCESS) result = driver_.cuGraphInstantiateWithFlags(&graphs_[task], of_task, 0);
  if (result != CUDA_SUCCESS) graphs_[task] = nullptr;
  driver_.cuGraphDestroy(of_task);
  return result;
}

// `plan`: of those that it has at home; null: all.
CUresult GraphSpread::MakeGraphs(const Place& place, const TaskPlan* plan) {
  const VariantRegistry::ContextCall making(place.reading.served.session().core.variants.get());
  graphs_.resize(tasks_.tasks.size());
  for (uint32_t task = 0; task < graphs_.size(); ++task) {
    const bool is_home = plan == nullptr || plan->device_of(task) == scheduler::kHome;
    if (!is_home && graphs_[task] != nullptr) driver_.cuGraphExecDestroy(std::exchange(graphs_[task], nullptr));
    if (!is_home || graphs_[task] != nullptr) continue;
    if (const CUresult r = MakeGraph(place, task); r != CUDA_SUCCESS) {
      for_good_ = WholeReason::kRefused;
      return r;
    }
  }
  return CUDA_SUCCESS;
}

CUresult GraphSpread::TimeTasks(const Place& place) {
  const auto made = scheduler::TaskGraph::Make(tasks_.tasks, tasks_.edges);
  CHECK(made.has_value());
  const CUstream stream = place.reading.stream.real;
  std::vector<Mark> marks(graphs_.size() + 1);
  CUresult result = place.completions.Put(stream, &marks[0], MarkKind::kTimed);
  size_t place_in_order = 0;
  for (const scheduler::TaskId task : made->order()) {
    if (result == CUDA_SUCCESS && graphs_[task] != nullptr) result = driver_.cuGraphLaunch(graphs_[task], stream);
    if (result == CUDA_SUCCESS) result = place.completions.Put(stream, &marks[++place_in_order], MarkKind::kTimed);
  }
  if (result == CUDA_SUCCESS) result = marks[place_in_order].Await();
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < made->order().size(); ++i) {
    const auto took = place.completions.Between(marks[i], marks[i + 1]);
    tasks_.tasks[made->order()[i]].cost_ns = took ? static_cast<uint64_t>(took->count()) : 0;
  }
  are_timed_ = true;
  return CUDA_SUCCESS;
}

CUresult GraphSpread::Launch(const Place& place, const std::function<CUresult()>& look) {
  if (!is_planned_) return TimeTasks(place);
  place.mirrors.KeepTimeSlices();
  const auto begin = steady_clock::now();
  auto times = std::make_shared<std::vector<StepTimes>>();
  const CUresult result = RunSteps(steps_, place.mirrors.queues(), look, times.get());
  record_.times = std::move(times);
  if (result != CUDA_SUCCESS) return result;
  times_.Add(steady_clock::now() - begin);
  ++num_launches_;
  moved_bytes_ += CopiedBytes(steps_);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
