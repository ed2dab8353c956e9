#include "server/executor/issue/partitioned_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/executor/issue/admitted_dispatch.h"
#include "server/executor/issue/launch_forms.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {

using scheduler::GraphEdge;

bool PartitionedGraph::IsInOrder(const GraphTasks& graph, const Cut& cut) {
  if (cut.partition_of.size() != graph.tasks.size() || cut.is_alone.size() != cut.num_partitions) return false;
  std::vector<uint32_t> num_tasks(cut.num_partitions);
  for (size_t task = 0; task < graph.tasks.size(); ++task) {
    const uint32_t partition = cut.partition_of[task];
    if (partition >= cut.num_partitions) return false;
    ++num_tasks[partition];
    if (cut.is_alone[partition] && (num_tasks[partition] != 1 || graph.tasks[task].kind == NodeKind::kEmpty)) {
      return false;
    }
  }
  if (std::ranges::count(num_tasks, 0u) != 0) return false;
  return std::ranges::all_of(
      graph.edges, [&](const GraphEdge& edge) { return cut.partition_of[edge.from] <= cut.partition_of[edge.to]; });
}

std::unique_ptr<PartitionedGraph> PartitionedGraph::Make(const DriverTable& driver, CUcontext context,
                                                         const GraphTasks& graph, const Cut& cut,
                                                         unsigned long long flags, size_t most_streams) {
  std::unique_ptr<PartitionedGraph> made(new PartitionedGraph(driver));
  if (made->Build(context, graph, cut, flags) != CUDA_SUCCESS) return nullptr;
  made->ChooseStreams(graph, most_streams);
  return made;
}

PartitionedGraph::~PartitionedGraph() {
  for (const Partition& partition : partitions_) {
    // What is in flight stays until it has ended: the driver's business, as with the program's own.
    if (partition.exec != nullptr) driver_.cuGraphExecDestroy(partition.exec);
    if (partition.graph != nullptr) driver_.cuGraphDestroy(partition.graph);
  }
}

CUresult PartitionedGraph::Build(CUcontext context, const GraphTasks& graph, const Cut& cut, unsigned long long flags) {
  partitions_.resize(cut.num_partitions);
  places_.resize(graph.tasks.size());
  // Edges come sorted by their origin; what a node waits for is wanted by its target.
  std::vector<std::vector<uint32_t>> before(graph.tasks.size());
  for (const GraphEdge& edge : graph.edges) before[edge.to].push_back(edge.from);
  std::vector<CUgraphNode> dependencies;
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    PlaceOfTask& place = places_[task];
    place.partition = cut.partition_of[task];
    Partition& partition = partitions_[place.partition];
    if (cut.is_alone[place.partition]) {
      partition.alone = task;
      continue;
    }
    if (partition.graph == nullptr) {
      if (const CUresult r = driver_.cuGraphCreate(&partition.graph, 0); r != CUDA_SUCCESS) return r;
    }
    dependencies.clear();
    for (const uint32_t other : before[task]) {
      if (places_[other].partition == place.partition) dependencies.push_back(places_[other].node);
    }
    if (const CUresult r = AddTask(driver_, graph.tasks[task], partition.graph, context, dependencies, &place.node);
        r != CUDA_SUCCESS) {
      return r;
    }
  }
  for (Partition& partition : partitions_) {
    if (partition.alone) continue;
    if (const CUresult r = driver_.cuGraphInstantiateWithFlags(&partition.exec, partition.graph, flags);
        r != CUDA_SUCCESS) {
      partition.exec = nullptr;
      return r;
    }
  }
  return CUDA_SUCCESS;
}

void PartitionedGraph::ChooseStreams(const GraphTasks& graph, size_t most) {
  std::vector<std::set<uint32_t>> behind(partitions_.size());
  for (const GraphEdge& edge : graph.edges) {
    const uint32_t from = places_[edge.from].partition, to = places_[edge.to].partition;
    if (from != to) behind[to].insert(from);
  }
  has_alone_ = std::ranges::any_of(partitions_, [](const Partition& partition) { return partition.alone.has_value(); });
  if (has_alone_) most = 1;
  std::vector<uint32_t> last;  // of each stream in use
  for (uint32_t index = 0; index < partitions_.size(); ++index) {
    Partition& partition = partitions_[index];
    // Behind one that it waits for in any case; else a stream of its own; else the one that was used longest ago.
    size_t stream = last.size();
    for (size_t i = 0; i < last.size(); ++i) {
      if (behind[index].contains(last[i]) && (stream == last.size() || last[i] > last[stream])) stream = i;
    }
    if (stream == last.size() && last.size() == most) {
      stream = static_cast<size_t>(std::ranges::min_element(last) - last.begin());
    }
    if (stream == last.size()) last.push_back(index);
    last[stream] = index;
    partition.stream = stream;
    for (const uint32_t other : behind[index]) {
      if (partitions_[other].stream == stream) continue;
      partition.behind.push_back(other);
      partitions_[other].is_awaited = true;
    }
  }
  num_streams_ = std::max<size_t>(last.size(), 1);
  ends_.resize(num_streams_ - 1);
}

CUresult PartitionedGraph::PrepareMarks(CompletionSource& completions) {
  const auto prepare = [&](Mark& mark) { return mark.exists() ? CUDA_SUCCESS : completions.Prepare(&mark); };
  if (num_streams_ == 1) return CUDA_SUCCESS;
  if (const CUresult r = prepare(begin_); r != CUDA_SUCCESS) return r;
  for (Mark& end : ends_) {
    if (const CUresult r = prepare(end); r != CUDA_SUCCESS) return r;
  }
  for (Partition& partition : partitions_) {
    if (!partition.is_awaited) continue;
    if (const CUresult r = prepare(partition.end); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult PartitionedGraph::Fork(const Place& place) {
  if (num_streams_ == 1) return CUDA_SUCCESS;
  if (const CUresult r = place.stream.Seal(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = place.completions.Put(place.stream.real, &begin_); r != CUDA_SUCCESS) return r;
  for (size_t i = 1; i < num_streams_; ++i) {
    if (const CUresult r = begin_.HoldBack(StreamOf(place, i).real); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult PartitionedGraph::Join(const Place& place) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 1; i < num_streams_; ++i) {
    Mark& end = ends_[i - 1];
    CUresult joined = place.completions.Put(StreamOf(place, i).real, &end);
    if (joined == CUDA_SUCCESS) joined = end.HoldBack(place.stream.real);
    if (result == CUDA_SUCCESS) result = joined;
  }
  return result;
}

CUresult PartitionedGraph::LaunchOne(const Place& place, LaunchStream& stream, Partition& partition) {
  for (const uint32_t other : partition.behind) {
    if (const CUresult r = partitions_[other].end.HoldBack(stream.real); r != CUDA_SUCCESS) return r;
  }
  if (partition.alone) return place.launch_alone(*partition.alone);
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  const LaunchOwner& owner = place.owner;
  scheduler::LaunchAsked asked;
  asked.kind = reinterpret_cast<uintptr_t>(partition.exec);
  asked.duration = partition.duration;
  asked.turnaround = place.turnaround;
  const AdmittedDispatch dispatch(owner, stream, asked, /*passes=*/false, {nullptr, "graph partition"});
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  std::optional<PreemptibilityMeter::Timed> timed;
  if (IsOfInterest(owner, /*is_captured=*/false)) {
    const bool is_short =
        partition.duration.count() != 0 && partition.duration <= owner.variants->ThresholdOf(place.turnaround);
    timed.emplace(
        owner.preemptibility, stream.device, stream.real, asked.kind,
        is_short ? Preemptibility::kShort : owner.variants->PreemptibilityLeft(stream.device, Preemptibility::kGraph));
    partition.duration = timed->known_duration();
  }
  return driver_.cuGraphLaunch(partition.exec, stream.real);
}

CUresult PartitionedGraph::LaunchAll(const Place& place) {
  for (Partition& partition : partitions_) {
    LaunchStream& stream = StreamOf(place, partition.stream);
    if (const CUresult r = LaunchOne(place, stream, partition); r != CUDA_SUCCESS) return r;
    if (!partition.is_awaited) continue;
    if (const CUresult r = place.completions.Put(stream.real, &partition.end); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult PartitionedGraph::Launch(const Place& place) {
  if (const CUresult r = PrepareMarks(place.completions); r != CUDA_SUCCESS) return r;
  if (const CUresult r = Fork(place); r != CUDA_SUCCESS) return r;
  // Its work counts as that of the program's stream, which waits for all of it.
  for (size_t i = 1; i < num_streams_; ++i) StreamOf(place, i).work = place.stream.work;
  const CUresult launched = LaunchAll(place);
  const CUresult joined = Join(place);
  return launched != CUDA_SUCCESS ? launched : joined;
}

bool PartitionedGraph::Follow(uint32_t task, const std::function<CUresult(CUgraphExec, CUgraphNode)>& change) {
  const PlaceOfTask& place = places_[task];
  const Partition& partition = partitions_[place.partition];
  // One that is alone is read anew by whoever launches it.
  return partition.alone || change(partition.exec, place.node) == CUDA_SUCCESS;
}

}  // namespace tally::server
