#include "server/executor/issue/remembered_graphs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/executor/issue/admitted_dispatch.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_forms.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {

using scheduler::IssueWay;
using scheduler::WayChoice;
using scheduler::WindowShape;

namespace {

uint64_t KeyOf(const WindowShape& shape, const LaunchStream* stream) {
  return (shape.hash() ^ reinterpret_cast<uintptr_t>(stream)) * 0x9E3779B97F4A7C15;
}

bool MayBeGraph(std::span<const PendingLaunch> launches) {
  if (launches.size() < 2) return false;
  return std::ranges::all_of(launches, [&](const PendingLaunch& launch) {
    return launch.stream == launches[0].stream && WindowGraph::CanHold(launch);
  });
}

}  // namespace

RememberedGraphs::RememberedGraphs(const DriverTable& driver, CompletionSource* completions, Limits limits)
    : driver_(driver), completions_(completions), limits_(limits) {}

CUresult RememberedGraphs::Issue(const WindowShape& shape, std::span<PendingLaunch> launches,
                                 const IssueOne& issue_one) {
  CHECK(shape.nodes().size() == launches.size());
  ++now_;
  last_ = {};
  Remembered* const known = MayBeGraph(launches) ? Find(shape, launches) : nullptr;
  if (known == nullptr) return InOrder(launches, issue_one);
  known->last_use = now_;
  ++known->num_uses;
  if (known->is_refused) return InOrder(launches, issue_one);
  WayChoice::Next next{.way = IssueWay::kGraph};
  if (completions_ != nullptr) {
    Collect(*known);
    next = known->ways.Next();
    last_ = {known->ways.choice().duration(IssueWay::kInOrder), known->ways.choice().duration(next.way)};
  }
  if (next.way == IssueWay::kGraph) {
    if (const auto result = AsGraph(*known, launches, next.is_sample)) return *result;
    if (next.is_sample) known->ways.Lose(IssueWay::kGraph);
    return InOrder(launches, issue_one);
  }
  return next.is_sample ? InOrderTimed(*known, launches, issue_one) : InOrder(launches, issue_one);
}

CUresult RememberedGraphs::InOrder(std::span<PendingLaunch> launches, const IssueOne& issue_one) {
  CUresult first_failure = CUDA_SUCCESS;
  for (PendingLaunch& launch : launches) {
    const CUresult result = issue_one(launch);
    if (first_failure == CUDA_SUCCESS) first_failure = result;
  }
  counts_.launches_in_order += launches.size();
  return first_failure;
}

CUresult RememberedGraphs::InOrderTimed(Remembered& known, std::span<PendingLaunch> launches,
                                        const IssueOne& issue_one) {
  const CUstream stream = launches[0].stream->real;
  Mark begin = TimedWays::Begin(*completions_, stream);
  const CUresult result = InOrder(launches, issue_one);
  if (result != CUDA_SUCCESS) begin.Clear();
  known.ways.End(IssueWay::kInOrder, std::move(begin), *completions_, stream);
  return result;
}

std::optional<CUresult> RememberedGraphs::AsGraph(Remembered& known, std::span<PendingLaunch> launches,
                                                  bool is_sample) {
  LaunchStream& stream = *launches[0].stream;
  // Its launches will find that, too.
  if (stream.Seal() != CUDA_SUCCESS) return std::nullopt;
  if (known.graph == nullptr) {
    if (!MakeRoomForGraph()) return std::nullopt;
    NodeShare share;
    if (limits_.nodes != nullptr && !(share = limits_.nodes->Take(known.nodes.size()))) return std::nullopt;
    const CUresult result = WindowGraph::Build(driver_, known.nodes, launches, stream.real, &known.graph);
    if (result != CUDA_SUCCESS) return Refuse(known, result);
    known.graph->Keep(std::move(share));
    ++counts_.shapes_built;
  }
  return Launch(known, launches, is_sample);
}

std::optional<CUresult> RememberedGraphs::Launch(Remembered& known, std::span<PendingLaunch> launches, bool is_sample) {
  const LaunchOwner& owner = *launches[0].owner;
  const LaunchStream& stream = *launches[0].stream;
  scheduler::LaunchAsked asked;
  asked.kind = known.key;
  asked.duration = known.ways.choice().duration(IssueWay::kGraph);
  asked.turnaround = launches[0].turnaround;
  const AdmittedDispatch dispatch(owner, stream, asked, /*passes=*/false, {nullptr, "window"});
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  // What waiting there took does not count; what the host does for the graph does.
  Mark begin;
  if (is_sample) begin = TimedWays::Begin(*completions_, stream.real);
  if (const CUresult r = known.graph->Set(launches, &counts_.parameter_updates); r != CUDA_SUCCESS) {
    return Refuse(known, r);
  }
  std::optional<PreemptibilityMeter::Timed> timed;
  if (IsOfInterest(owner, /*is_captured=*/false)) {
    timed.emplace(owner.preemptibility, stream.device, stream.real, asked.kind,
                  owner.variants->PreemptibilityLeft(stream.device, Preemptibility::kGraph));
  }
  if (const CUresult r = known.graph->Launch(stream.real); r != CUDA_SUCCESS) return Refuse(known, r);
  ++counts_.graph_launches;
  counts_.launches_in_graphs += launches.size();
  if (is_sample) known.ways.End(IssueWay::kGraph, std::move(begin), *completions_, stream.real);
  return CUDA_SUCCESS;
}

std::optional<CUresult> RememberedGraphs::Refuse(Remembered& known, CUresult why) {
  known.graph.reset();
  known.is_refused = true;
  ++counts_.shapes_refused;
  return IsSticky(why) ? std::optional(why) : std::nullopt;
}

void RememberedGraphs::Collect(Remembered& known) {
  const WayChoice& choice = known.ways.choice();
  const bool was_looking = choice.is_looking();
  known.ways.Collect(*completions_);
  if (!was_looking || choice.is_looking() || choice.chosen() == IssueWay::kGraph) return;
  known.graph.reset();
  ++counts_.shapes_slower;
}

RememberedGraphs::Remembered* RememberedGraphs::Find(const WindowShape& shape,
                                                     std::span<const PendingLaunch> launches) {
  const LaunchStream* const stream = launches[0].stream;
  const uint64_t key = KeyOf(shape, stream);
  const auto [first, last] = shapes_.equal_range(key);
  for (auto place = first; place != last; ++place) {
    Remembered& known = place->second;
    if (known.stream == stream && std::ranges::equal(known.nodes, shape.nodes())) return &known;
  }
  uint64_t& seen = seen_[key % kMostSeen];
  if (std::exchange(seen, key) != key || !MakeRoomForShape()) return nullptr;
  Remembered& known = shapes_.emplace(key, Remembered(limits_.uses_between_looks))->second;
  known.key = key;
  known.stream = stream;
  known.nodes.assign(shape.nodes().begin(), shape.nodes().end());
  return &known;
}

bool RememberedGraphs::MakeRoomForShape() {
  if (shapes_.size() < limits_.most_shapes) return true;
  const auto oldest = std::ranges::min_element(shapes_, {}, [](const auto& shape) { return shape.second.last_use; });
  if (now_ - oldest->second.last_use <= limits_.stale_after) return false;
  if (oldest->second.graph != nullptr) ++counts_.graphs_evicted;
  shapes_.erase(oldest);
  return true;
}

bool RememberedGraphs::MakeRoomForGraph() {
  size_t num_graphs = 0;
  Remembered* oldest = nullptr;
  for (auto& [key, known] : shapes_) {
    if (known.graph == nullptr) continue;
    ++num_graphs;
    if (oldest == nullptr || known.last_use < oldest->last_use) oldest = &known;
  }
  if (num_graphs < limits_.most_graphs) return true;
  if (oldest == nullptr || now_ - oldest->last_use <= limits_.stale_after) return false;
  oldest->graph.reset();
  ++counts_.graphs_evicted;
  return true;
}

template <typename Condition>
void RememberedGraphs::ForgetKernels(Condition condition) {
  std::erase_if(shapes_, [&](const auto& shape) {
    const Remembered& known = shape.second;
    return known.graph != nullptr && known.graph->HasKernel(condition);
  });
}

void RememberedGraphs::Forget(const Kernel& gone) {
  ForgetKernels([&](const Kernel& kernel) { return &kernel == &gone; });
}

void RememberedGraphs::Forget(const LoadedImage& image) {
  ForgetKernels([&](const Kernel& kernel) { return kernel.image == &image || kernel.image->library_image == &image; });
}

std::vector<RememberedGraphs::ShapeReport> RememberedGraphs::Report() const {
  std::vector<ShapeReport> reports;
  for (const auto& [key, known] : shapes_) {
    ShapeReport& report = reports.emplace_back();
    report.num_nodes = known.nodes.size();
    for (const WindowShape::Node& node : known.nodes) {
      report.num_levels = std::max<size_t>(report.num_levels, node.level + 1);
      report.num_tracks = std::max<size_t>(report.num_tracks, node.track + 1);
    }
    report.in_order = known.ways.choice().duration(IssueWay::kInOrder);
    report.graph = known.ways.choice().duration(IssueWay::kGraph);
    const bool is_graph = completions_ == nullptr || known.ways.choice().chosen() == IssueWay::kGraph;
    report.way = is_graph && !known.is_refused ? IssueWay::kGraph : IssueWay::kInOrder;
    report.is_refused = known.is_refused;
    report.num_uses = known.num_uses;
  }
  std::ranges::sort(reports, std::greater(), &ShapeReport::num_uses);
  return reports;
}

}  // namespace tally::server
