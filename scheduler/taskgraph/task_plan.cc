#include "scheduler/taskgraph/task_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "base/check.h"
#include "scheduler/taskgraph/copy_order.h"
#include "scheduler/taskgraph/ready_queues.h"

namespace tally::scheduler {
namespace {

constexpr uint32_t kNoStep = UINT32_MAX;
// One that runs, and one whose contents are moved meanwhile.
constexpr uint32_t kMostGiven = 2;
constexpr size_t kMostUsesStolen = 256;

}  // namespace

class TaskPlanner {
 public:
  TaskPlanner(const TaskGraph& graph, const RegionMap& regions, const PlanMachine& machine, RegionDirectory directory)
      : graph_(graph),
        regions_(regions),
        machine_(machine),
        directory_(std::move(directory)),
        order_(regions.size() * machine.num_devices),
        queues_(machine.num_devices),
        devices_(machine.num_devices),
        num_waiting_for_(graph.size()),
        step_of_(graph.size(), kNoStep),
        num_writes_left_(regions.size()) {
    plan_.device_of_.assign(graph.size(), kHome);
    for (TaskId id = 0; id < graph.size(); ++id) {
      may_write_anything_ |= graph.task(id).touches.extent == Extent::kAnything;
      for (const RegionUse& use : regions.uses(id)) num_writes_left_[use.region] += use.writes ? 1 : 0;
    }
  }

  TaskPlan Take() {
    for (TaskId id = 0; id < graph_.size(); ++id) {
      num_waiting_for_[id] = static_cast<uint32_t>(graph_.before(id).size());
      if (num_waiting_for_[id] == 0) Await(id);
    }
    GiveOut();
    while (!ends_.empty()) {
      now_ns_ = ends_.top().end_ns;
      while (!ends_.empty() && ends_.top().end_ns == now_ns_) End();
      GiveOut();
    }
    CHECK(num_placed_ == graph_.size());
    actions_.clear();
    directory_.BringHome(false, actions_);
    Carry();
    plan_.moved_bytes_ = directory_.moved_bytes();
    return std::move(plan_);
  }

 private:
  struct Device {
    uint64_t free_at_ns = 0;  // behind all tasks that it was given
    uint64_t sends_until_ns = 0;
    uint64_t receives_until_ns = 0;
    uint32_t num_given = 0;  // and not ended
    uint32_t last_drop = kNoStep;
  };
  struct TaskEnd {
    uint64_t end_ns = 0;
    TaskId task = 0;
    auto operator<=>(const TaskEnd&) const = default;
  };

  void End() {
    const TaskId id = ends_.top().task;
    ends_.pop();
    --devices_[plan_.device_of_[id]].num_given;
    SendFinishedHome(id);
    for (const TaskId next : graph_.behind(id)) {
      if (--num_waiting_for_[next] == 0) Await(next);
    }
  }

  bool StaysHome(TaskId id) const {
    if (graph_.task(id).is_pinned || graph_.task(id).touches.extent != Extent::kSaid) return true;
    return std::ranges::any_of(regions_.uses(id),
                               [&](const RegionUse& use) { return regions_.region(use.region).is_home_only; });
  }
  // Where most of what it writes was written last; if it writes nothing, where most of what it reads is.
  DeviceId OwnerOf(TaskId id) const {
    std::array<uint64_t, kMostDevices> written{}, read{};
    bool writes = false;
    for (const RegionUse& use : regions_.uses(id)) {
      const uint64_t bytes = regions_.region(use.region).bytes();
      writes |= use.writes;
      if (use.writes) written[directory_.owner(use.region)] += bytes;
      for (DeviceId device = 0; device < devices_.size(); ++device) {
        if (directory_.IsValid(use.region, device)) read[device] += bytes;
      }
    }
    return static_cast<DeviceId>(std::ranges::max_element(writes ? written : read) - (writes ? written : read).begin());
  }
  void Await(TaskId id) {
    const DeviceId owner = StaysHome(id) ? kHome : OwnerOf(id);
    if (StaysHome(id) || !directory_.Fits(regions_.uses(id), owner)) return queues_.Push(kHome, graph_, id, true);
    queues_.Push(owner, graph_, id, false);
  }

  void GiveOut() {
    for (uint32_t round = 0; round < kMostGiven; ++round) {
      for (DeviceId device = 0; device < devices_.size(); ++device) {
        if (devices_[device].num_given > round) continue;
        std::optional<TaskId> task = queues_.Take(device);
        if (!task) task = StealFor(device);
        if (task) Place(*task, device);
      }
    }
  }

  // How long what it needs is on its way, if it is asked for now.
  uint64_t ArrivalNs(TaskId id, DeviceId device) const {
    uint64_t bytes = 0;
    for (const RegionUse& use : regions_.uses(id)) {
      if (use.reads && !directory_.IsValid(use.region, device)) bytes += regions_.region(use.region).bytes();
    }
    if (bytes == 0) return now_ns_;
    return SaturatedSum(std::max(now_ns_, devices_[device].receives_until_ns), MoveNs(bytes));
  }
  // From the one that has the most to do, if the task begins here before all the rest there has ended.
  std::optional<TaskId> StealFor(DeviceId device) {
    std::optional<DeviceId> most;
    uint64_t most_ns = devices_[device].free_at_ns;  // when the rest ends
    for (DeviceId other = 0; other < devices_.size(); ++other) {
      const std::optional<TaskId> task = queues_.NextToSteal(other);
      if (other == device || !task) continue;
      const uint64_t waiting_ns = queues_.waiting_ns(other);
      const uint64_t rest_ns = waiting_ns - std::min(waiting_ns, graph_.task(*task).cost_ns);
      const uint64_t end_ns = SaturatedSum(std::max(now_ns_, devices_[other].free_at_ns), rest_ns);
      if (end_ns > most_ns) most = other, most_ns = end_ns;
    }
    if (!most) return std::nullopt;
    const TaskId task = *queues_.NextToSteal(*most);
    // Asked again whenever a task ends, so not of one that touches very much.
    if (regions_.uses(task).size() > kMostUsesStolen || !directory_.Fits(regions_.uses(task), device)) {
      return std::nullopt;
    }
    return ArrivalNs(task, device) < most_ns ? queues_.Steal(*most) : std::nullopt;
  }

  void Place(TaskId id, DeviceId device) {
    const Task& task = graph_.task(id);
    actions_.clear();
    const bool is_barrier = task.touches.extent != Extent::kSaid;
    if (is_barrier) directory_.BringHome(task.touches.extent == Extent::kAnything, actions_);
    directory_.Use(regions_.uses(id), device, actions_);
    Carry();
    const auto number = static_cast<uint32_t>(plan_.steps_.size());
    AwaitRoom(device);
    for (const TaskId before : graph_.before(id)) before_.push_back(step_of_[before]);
    for (const RegionUse& use : regions_.uses(id)) {
      const size_t copy = CopyOf(use.region, device);
      use.writes ? order_.Write(copy, number, before_) : order_.Read(copy, number, before_);
    }
    for (const uint32_t scratch : task.scratch) {
      const auto [last, is_first] = last_with_scratch_.try_emplace({scratch, device}, number);
      if (!is_first) before_.push_back(std::exchange(last->second, number));
    }
    if (is_barrier) {
      for (uint32_t step = last_barrier_ == kNoStep ? 0 : last_barrier_; step < number; ++step) before_.push_back(step);
    }
    const uint64_t takes_ns = SaturatedSum(machine_.start_ns, task.cost_ns);
    Device& on = devices_[device];
    on.free_at_ns = Add({.kind = StepKind::kTask, .device = device, .what = id}, on.free_at_ns, takes_ns);
    if (is_barrier) last_barrier_ = number;
    step_of_[id] = number;
    plan_.device_of_[id] = device;
    ++on.num_given;
    ++num_placed_;
    ends_.push({on.free_at_ns, id});
  }
  // Nobody writes it again: it goes home while others still run.
  void SendFinishedHome(TaskId id) {
    actions_.clear();
    for (const RegionUse& use : regions_.uses(id)) {
      if (use.writes && --num_writes_left_[use.region] == 0 && !may_write_anything_) {
        directory_.SendHome(use.region, actions_);
      }
    }
    Carry();
  }

  // Makes steps of actions.
  void Carry() {
    for (const DirectoryAction& action : actions_) {
      const auto number = static_cast<uint32_t>(plan_.steps_.size());
      AwaitRoom(action.device);
      order_.Write(CopyOf(action.region, action.device), number, before_);
      if (action.kind == DirectoryAction::Kind::kDrop) {
        Add({.kind = StepKind::kDrop, .device = action.device, .what = action.region}, 0, 0);
        devices_[action.device].last_drop = number;
        continue;
      }
      order_.Read(CopyOf(action.region, action.from), number, before_);
      Device& from = devices_[action.from];
      Device& to = devices_[action.device];
      const PlanStep step{.kind = StepKind::kMove, .device = action.device, .from = action.from, .what = action.region};
      const uint64_t end_ns = Add(step, std::max(from.sends_until_ns, to.receives_until_ns),
                                  MoveNs(regions_.region(action.region).bytes()));
      from.sends_until_ns = end_ns;
      to.receives_until_ns = end_ns;
    }
  }
  // What comes there may need the room that was given up, be it long ago.
  void AwaitRoom(DeviceId device) {
    if (devices_[device].last_drop != kNoStep) before_.push_back(devices_[device].last_drop);
  }

  // A step behind those in before_, not before `free_ns`. Returns when it ends.
  uint64_t Add(PlanStep step, uint64_t free_ns, uint64_t takes_ns) {
    if (last_barrier_ != kNoStep) before_.push_back(last_barrier_);
    std::ranges::sort(before_);
    before_.erase(std::ranges::unique(before_).begin(), before_.end());
    step.begin_ns = std::max(now_ns_, free_ns);
    for (const uint32_t before : before_) step.begin_ns = std::max(step.begin_ns, plan_.steps_[before].end_ns);
    step.end_ns = SaturatedSum(step.begin_ns, takes_ns);
    plan_.steps_.push_back(step);
    plan_.before_.insert(plan_.before_.end(), before_.begin(), before_.end());
    plan_.before_begin_.push_back(plan_.before_.size());
    plan_.end_ns_ = std::max(plan_.end_ns_, step.end_ns);
    before_.clear();
    return step.end_ns;
  }

  size_t CopyOf(RegionId region, DeviceId device) const { return region * machine_.num_devices + device; }
  uint64_t MoveNs(uint64_t bytes) const {
    const double us =
        static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(1, machine_.link_bytes_per_us));
    const double ns = std::min(us * 1000, 1e18);
    return SaturatedSum(machine_.link_latency_ns, static_cast<uint64_t>(ns));
  }

  const TaskGraph& graph_;
  const RegionMap& regions_;
  const PlanMachine machine_;
  RegionDirectory directory_;
  CopyOrder order_;
  ReadyQueues queues_;
  std::vector<Device> devices_;
  std::vector<uint32_t> num_waiting_for_;  // by task
  std::vector<uint32_t> step_of_;          // by task
  std::vector<uint32_t> num_writes_left_;  // by region
  bool may_write_anything_ = false;
  std::priority_queue<TaskEnd, std::vector<TaskEnd>, std::greater<>> ends_;
  uint64_t now_ns_ = 0;
  size_t num_placed_ = 0;
  std::map<std::pair<uint32_t, DeviceId>, uint32_t> last_with_scratch_;  // a step
  uint32_t last_barrier_ = kNoStep;       // a task that may touch anything: all steps are before or behind it
  std::vector<DirectoryAction> actions_;  // of what is placed
  std::vector<uint32_t> before_;          // of the next step
  TaskPlan plan_;
};

Result<TaskPlan> TaskPlan::Make(const TaskGraph& graph, const RegionMap& regions, const PlanMachine& machine) {
  CHECK(machine.num_devices >= 1 && machine.num_devices <= kMostDevices && regions.num_tasks() == graph.size());
  std::vector<uint64_t> region_bytes;
  region_bytes.reserve(regions.size());
  for (RegionId id = 0; id < regions.size(); ++id) region_bytes.push_back(regions.region(id).bytes());
  const std::vector<uint64_t> most_bytes(machine.num_devices, machine.most_bytes);
  Result<RegionDirectory> directory = RegionDirectory::Make(region_bytes, most_bytes);
  if (!directory) return std::unexpected(directory.error());
  TaskPlan plan = TaskPlanner(graph, regions, machine, *std::move(directory)).Take();
  uint64_t at_home_ns = graph.total_ns();
  for (TaskId id = 0; id < graph.size(); ++id) at_home_ns = SaturatedSum(at_home_ns, machine.start_ns);
  if (machine.num_devices == 1 || plan.end_ns() < at_home_ns) return plan;
  PlanMachine home = machine;
  home.num_devices = 1;
  return Make(graph, regions, home);
}

}  // namespace tally::scheduler
