#include "server/executor/session/graph_launch_ways.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "server/executor/issue/graph_cut.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/kernel_ops.h"
#include "server/executor/session/launch_record.h"

namespace tally::server {

using control::WholeReason;
using std::chrono::nanoseconds;

namespace {

// As ReadLaunch reads it; empty: it cannot be launched alone.
std::vector<std::byte> ReadRecord(ServedRequest& served, CUgraphNode node) {
  shm::Launch launch{};
  std::vector<std::byte> parameters;
  std::vector<CUlaunchAttribute> attributes;
  if (ReadKernelNode(served, node, &launch, &parameters) != CUDA_SUCCESS) return {};
  if (!ReadLaunchAttributes(served.driver(), node, &attributes)) return {};
  launch.num_attributes = static_cast<uint16_t>(attributes.size());
  if (!attributes.empty()) launch.flags |= shm::kLaunchEx;
  const auto head = std::as_bytes(std::span(&launch, 1)), tail = std::as_bytes(std::span(attributes));
  std::vector<std::byte> record(head.begin(), head.end());
  record.insert(record.end(), tail.begin(), tail.end());
  record.insert(record.end(), parameters.begin(), parameters.end());
  record.resize(PaddedTo8(record.size()));
  return record;
}

// Of a copy.
bool IsWithinDevice(const DriverTable& driver, CUgraphNode node) {
  CUDA_MEMCPY3D copy{};
  if (driver.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) return false;
  const auto is_there = [&](CUmemorytype type, CUdeviceptr address) {
    if (type == CU_MEMORYTYPE_DEVICE) return true;
    unsigned int found = 0;
    return type == CU_MEMORYTYPE_UNIFIED &&
           driver.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           found == CU_MEMORYTYPE_DEVICE;
  };
  return is_there(copy.srcMemoryType, copy.srcDevice) && is_there(copy.dstMemoryType, copy.dstDevice);
}

// What the program does with it or has asked for, not what is in it.
bool IsWhateverItsNodes(WholeReason reason) {
  using enum WholeReason;
  return reason == kOff || reason == kKernelsKept || reason == kChanged || reason == kUpdated || reason == kUserObjects;
}

std::string NameOfKernel(const DriverTable& driver, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  const char* name = nullptr;
  if (driver.cuGraphKernelNodeGetParams_v2(node, &parameters) != CUDA_SUCCESS) return "a kernel";
  if (parameters.func != nullptr && driver.cuFuncGetName != nullptr) {
    driver.cuFuncGetName(&name, parameters.func);
  } else if (parameters.kern != nullptr && driver.cuKernelGetName != nullptr) {
    driver.cuKernelGetName(&name, parameters.kern);
  }
  return name != nullptr ? name : "a kernel";
}

}  // namespace

void GraphLaunchWays::DropPartitions() {
  partitions_.reset();
  partitions_share_.GiveBack();
  records_.clear();
  tasks_ = {};
  outline_.reset();
  if (spread_ != nullptr) spread_->Forget();
  partitioned.Forget();
  was_one_partition_ = knew_duration_ = false;
}

void GraphLaunchWays::Drop(WholeReason reason_for_good) {
  DropPartitions();
  spread_.reset();
  declared_.clear();
  for_good_ = reason_for_good;
  if (clone_ != nullptr) driver_.cuGraphDestroy(clone_);
  clone_ = nullptr;
  clone_share_.GiveBack();
}

void GraphLaunchWays::KeepWhatThereIs() {
  if (clone_ == nullptr) return;
  if (partitions_ == nullptr) return Drop(WholeReason::kCodeUnloaded);
  num_cuts_ = kMostCuts;
}

void GraphLaunchWays::Adopt(ServedRequest& served, CUgraph graph, unsigned long long flags) {
  flags_ = flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  driver_.cuGraphGetNodes(graph, nullptr, &num_nodes_);
  SessionState& session = served.session();
  // Whoever owns something together with a graph is told when the last of its clones is gone.
  if (!session.graphs.user_objects.empty()) return Drop(WholeReason::kUserObjects);
  const bool may_spread = session.spread_memory != nullptr;
  if (session.core.devices->count() != 1 && !may_spread) return Drop(WholeReason::kSeveralGpus);
  GraphTasks tasks;
  if (const WholeReason refusal = ReadTasks(driver_, graph, &tasks); refusal != WholeReason::kNone) {
    return Drop(refusal);
  }
  if (tasks.tasks.size() < 2) return Drop(WholeReason::kOnePartition);
  clone_share_ = session.graph_nodes.Take(tasks.tasks.size());
  if (!clone_share_) return Drop(WholeReason::kNoRoom);
  if (driver_.cuGraphClone == nullptr || driver_.cuGraphClone(&clone_, graph) != CUDA_SUCCESS) {
    clone_ = nullptr;
    return Drop(WholeReason::kRefused);
  }
  if (!may_spread) return;
  spread_ = std::make_unique<GraphSpread>(driver_);
  for (const DeclaredTask& declared : session.graphs.declared.Of(graph)) {
    DeclaredTask& ours = declared_.emplace_back(declared);
    std::ranges::transform(ours.nodes, ours.nodes.begin(), [this](CUgraphNode node) { return NodeOfClone(node); });
  }
}

void GraphLaunchWays::OnUpdated(ServedRequest& served, CUgraph graph) {
  if (IsWhateverItsNodes(for_good_)) return;
  ++num_updates_;
  Drop(WholeReason::kNone);
  whole.Forget();
  // Making partitions costs more than launching a graph: not for each launch.
  if (num_updates_ > kUpdatesBeforeJudged && num_updates_ * 2 > num_launches) return Drop(WholeReason::kUpdated);
  num_cuts_ = 0;
  Adopt(served, graph, flags_);
}

CUgraphNode GraphLaunchWays::NodeOfClone(CUgraphNode node) const {
  CUgraphNode found = nullptr;
  if (clone_ == nullptr || driver_.cuGraphNodeFindInClone == nullptr) return nullptr;
  return driver_.cuGraphNodeFindInClone(&found, node, clone_) == CUDA_SUCCESS ? found : nullptr;
}

void GraphLaunchWays::Follow(CUgraphNode node, const std::function<CUresult(CUgraphExec, CUgraphNode)>& change) {
  if (spread_ != nullptr) return spread_->Forget();
  if (partitions_ == nullptr) return;
  const auto task = std::ranges::find(tasks_.tasks, node, &GraphTask::node);
  if (task == tasks_.tasks.end()) return DropPartitions();
  const auto index = static_cast<uint32_t>(task - tasks_.tasks.begin());
  records_.erase(index);
  if (!partitions_->Follow(index, change)) DropPartitions();
}

std::vector<nanoseconds> GraphLaunchWays::Costs() const {
  const size_t count = std::max<size_t>(num_nodes_, 1);
  std::vector<nanoseconds> costs(num_nodes_, whole_duration() / static_cast<int64_t>(count));
  if (partitions_ == nullptr) return costs;
  std::vector<int64_t> num_tasks(partitions_->num_partitions());
  for (uint32_t task = 0; task < partitions_->num_tasks(); ++task) ++num_tasks[partitions_->partition_of(task)];
  for (uint32_t task = 0; task < partitions_->num_tasks(); ++task) {
    const uint32_t partition = partitions_->partition_of(task);
    if (const nanoseconds took = partitions_->duration(partition); took.count() != 0) {
      costs[task] = took / num_tasks[partition];
    } else if (partitions_->is_alone(partition)) {
      costs[task] = nanoseconds::max() / 2;  // it was too long for others to go with it
    }
  }
  return costs;
}

bool GraphLaunchWays::IsToBeCutAgain(const Limits& limits) const {
  if (num_cuts_ >= kMostCuts) return false;
  if (was_one_partition_) return !knew_duration_ && whole_duration().count() != 0;
  if (limits.is_forced || num_launches - launches_at_cut_ < kLaunchesBeforeCut) return false;
  std::vector<size_t> num_tasks(partitions_->num_partitions());
  for (uint32_t task = 0; task < partitions_->num_tasks(); ++task) ++num_tasks[partitions_->partition_of(task)];
  for (size_t i = 0; i < num_tasks.size(); ++i) {
    if (num_tasks[i] > 1 && partitions_->duration(i) > limits.longest) return true;
  }
  return false;
}

WholeReason GraphLaunchWays::Prepare(ServedRequest& served, CUcontext context, const Limits& limits) {
  if (for_good_ != WholeReason::kNone) return for_good_;
  if (partitions_ == nullptr && !was_one_partition_) return CutNow(served, context, limits);
  if (IsToBeCutAgain(limits)) return CutNow(served, context, limits);
  return partitions_ != nullptr ? WholeReason::kNone : WholeReason::kOnePartition;
}

WholeReason GraphLaunchWays::CutNow(ServedRequest& served, CUcontext context, const Limits& limits) {
  // Making executables and destroying them may wait for the context.
  const VariantRegistry::ContextCall making(served.session().core.variants.get());
  const std::vector<nanoseconds> costs = Costs();
  const bool knew = whole_duration().count() != 0;
  DropPartitions();
  ++num_cuts_;
  knew_duration_ = knew;
  launches_at_cut_ = num_launches;
  if (const WholeReason refusal = ReadTasks(driver_, clone_, &tasks_); refusal != WholeReason::kNone) {
    Drop(refusal);
    return refusal;
  }
  PartitionedGraph::Cut cut = CutOf(tasks_, costs, limits.longest, limits.are_all_alone ? 1 : kMostPartitionNodes);
  if (cut.num_partitions < 2) {
    was_one_partition_ = true;
    return WholeReason::kOnePartition;
  }
  partitions_share_ = served.session().graph_nodes.Take(tasks_.tasks.size());
  if (!partitions_share_) {
    Drop(WholeReason::kNoRoom);
    return WholeReason::kNoRoom;
  }
  if (limits.has_forms) {
    for (uint32_t task = 0; task < tasks_.tasks.size(); ++task) {
      if (!cut.is_alone[cut.partition_of[task]]) continue;
      const GraphTask& alone = tasks_.tasks[task];
      if (alone.kind == NodeKind::kCopy) cut.is_alone[cut.partition_of[task]] = IsWithinDevice(driver_, alone.node);
      if (alone.kind != NodeKind::kKernel) continue;
      std::vector<std::byte> record = ReadRecord(served, alone.node);
      if (record.empty()) {
        cut.is_alone[cut.partition_of[task]] = false;
      } else {
        records_[task] = std::move(record);
      }
    }
  } else {
    cut.is_alone.assign(cut.num_partitions, false);
  }
  partitions_ = PartitionedGraph::Make(driver_, context, tasks_, cut, flags_, limits.most_streams);
  if (partitions_ == nullptr) {
    Drop(WholeReason::kRefused);
    return WholeReason::kRefused;
  }
  MakeOutline(cut);
  served.session().counters.Add("graph_cuts");
  return WholeReason::kNone;
}

const std::vector<std::byte>* GraphLaunchWays::RecordOf(ServedRequest& served, uint32_t task) {
  if (const auto found = records_.find(task); found != records_.end()) return &found->second;
  if (clone_ == nullptr || task >= tasks_.tasks.size()) return nullptr;
  std::vector<std::byte> record = ReadRecord(served, tasks_.tasks[task].node);
  if (record.empty()) return nullptr;
  return &(records_[task] = std::move(record));
}

// What a launch would be refused for natively, the graph is not: its kernel's module may be gone, or it may want more
// shared memory than its function was allowed since.
bool GraphLaunchWays::MayGoAlone(ServedRequest& served) {
  if (!partitions_->has_alone()) return true;
  for (uint32_t task = 0; task < partitions_->num_tasks(); ++task) {
    if (tasks_.tasks[task].kind != NodeKind::kKernel) continue;
    if (!partitions_->is_alone(partitions_->partition_of(task))) continue;
    const auto* record = RecordOf(served, task);
    if (record == nullptr) return false;
    shm::Launch launch{};
    std::memcpy(&launch, record->data(), sizeof(launch));
    const Kernel* kernel = FindKernel(served.session(), launch.function);
    if (kernel == nullptr) return false;
    if (launch.shared_bytes == 0) continue;
    CUfunction function = kernel->function;
    int allowed = 0;
    if (function == nullptr && driver_.cuKernelGetFunction(&function, kernel->kernel) != CUDA_SUCCESS) return false;
    const CUresult result =
        driver_.cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    if (result != CUDA_SUCCESS || allowed < static_cast<int>(launch.shared_bytes)) return false;
  }
  return true;
}

control::GraphFigures GraphLaunchWays::Figures() const {
  control::GraphFigures figures{};
  figures.number = number_;
  figures.num_nodes = static_cast<uint32_t>(num_nodes_);
  if (partitions_ != nullptr) {
    figures.num_partitions = static_cast<uint32_t>(partitions_->num_partitions());
    figures.num_streams = static_cast<uint32_t>(partitions_->num_streams());
  }
  figures.num_gpus = spread_ != nullptr ? spread_->num_gpus() : 1;
  figures.reason = reason;
  figures.num_launches = num_launches;
  figures.num_partitioned = num_partitioned;
  figures.whole_ns = static_cast<uint64_t>(whole_duration().count());
  figures.partitioned_ns = static_cast<uint64_t>(partitioned.duration().count());
  if (spread_ == nullptr) return figures;
  figures.num_spread = spread_->num_launches();
  figures.spread_ns = static_cast<uint64_t>(spread_->duration().count());
  figures.moved_bytes = spread_->moved_bytes();
  return figures;
}

void GraphLaunchWays::MakeOutline(const PartitionedGraph::Cut& cut) {
  auto outline = std::make_shared<GraphOutline>();
  std::unordered_map<std::string, uint32_t> place_of;
  for (uint32_t task = 0; task < tasks_.tasks.size(); ++task) {
    GraphOutline::Node& node = outline->nodes.emplace_back();
    node.kind = tasks_.tasks[task].kind;
    node.partition = cut.partition_of[task];
    if (node.kind != NodeKind::kKernel) continue;
    std::string name = NameOfKernel(driver_, tasks_.tasks[task].node);
    const auto [found, is_new] = place_of.try_emplace(name, static_cast<uint32_t>(outline->names.size()));
    if (is_new) outline->names.push_back(std::move(name));
    node.name = found->second;
  }
  outline->edges = tasks_.edges;
  outline->partitions.resize(cut.num_partitions);
  outline_ = std::move(outline);
}

void GraphLaunchWays::RefreshOutline() {
  if (partitions_ == nullptr || outline_ == nullptr) return;
  auto outline = std::make_shared<GraphOutline>(*outline_);
  for (size_t i = 0; i < outline->partitions.size(); ++i) {
    outline->partitions[i] = {static_cast<uint64_t>(partitions_->duration(i).count()), partitions_->is_alone(i)};
  }
  outline_ = std::move(outline);
}

}  // namespace tally::server
