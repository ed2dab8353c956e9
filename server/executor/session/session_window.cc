#include "server/executor/session/session_window.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "server/executor/issue/launch_forms.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/session/admitted_copies.h"
#include "server/executor/session/session_state.h"

namespace tally::server {
namespace {

constexpr std::chrono::milliseconds kPublishEvery{200};

// For tests: TALLY_FORCE_WINDOW=graphs in the environment of the executor. Every shape that comes again is a graph, and
// everything is held that can be, whatever it costs: the first launch of a kernel waits until it has been looked at.
bool AreGraphsForced() {
  const char* const forced = std::getenv("TALLY_FORCE_WINDOW");
  return forced != nullptr && std::string_view(forced) == "graphs";
}

// For measurements: TALLY_WINDOW_LAUNCHES=16 in the environment of the executor. How many launches a window holds.
size_t MostLaunches() {
  const char* const most = std::getenv("TALLY_WINDOW_LAUNCHES");
  if (most == nullptr) return scheduler::kMostSlots;
  return std::clamp<size_t>(std::strtoul(most, nullptr, 10), 1, scheduler::kMostSlots);
}

}  // namespace

SessionWindow::SessionWindow(SessionState& session, bool holds)
    : session_(session),
      are_graphs_forced_(AreGraphsForced()),
      memory_(session.memory),
      accesses_(session.driver, *session.core.devices, session.core.segments, memory_),
      launches_(
          holds,
          {.accesses_of = [this](const PendingLaunch& launch) -> const LaunchAccesses& { return AccessesOf(launch); },
           .issue = [this](const auto& shape, auto launches,
                           auto* durations) { return Issue(shape, launches, durations); },
           .is_idle = [this] { return IsIdle(); },
           .most_launches = MostLaunches()},
          session.counters, session.clock) {}

const LaunchAccesses& SessionWindow::AccessesOf(const PendingLaunch& launch) {
  for (;;) {
    const LaunchAccesses& accesses = accesses_.Of(launch);
    if (!are_graphs_forced_ || accesses.barrier == nullptr) return accesses;
    if (std::string_view(accesses.barrier) != "not-yet") return accesses;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

RememberedGraphs& SessionWindow::GraphsOf(int device) {
  std::unique_ptr<RememberedGraphs>& graphs = graphs_[device];
  if (graphs == nullptr) {
    CompletionSource* const times = are_graphs_forced_ ? nullptr : &session_.core.devices->completions(device);
    graphs = std::make_unique<RememberedGraphs>(session_.driver, times,
                                                RememberedGraphs::Limits{.nodes = &session_.graph_nodes});
  }
  return *graphs;
}

CUresult SessionWindow::Issue(const scheduler::WindowShape& shape, std::span<PendingLaunch> launches,
                              scheduler::WayDurations* durations) {
  // Launches are spent when they have been issued.
  const CUstream stream = launches.front().stream->real;
  const int device = launches.front().stream->device;
  RememberedGraphs& graphs = GraphsOf(device);
  const RememberedGraphs::Counts before = graphs.counts();
  const CUresult result = graphs.Issue(shape, launches, [this](PendingLaunch& launch) { return IssueOne(launch); });
  const RememberedGraphs::Counts& after = graphs.counts();
  FigureCounters& figures = session_.counters;
  figures.Add("window_graphs", after.graph_launches - before.graph_launches);
  figures.Add("window_in_graphs", after.launches_in_graphs - before.launches_in_graphs);
  figures.Add("window_in_order", after.launches_in_order - before.launches_in_order);
  figures.Add("window_shapes", after.shapes_built - before.shapes_built);
  figures.Add("window_node_updates", after.parameter_updates - before.parameter_updates);
  *durations = graphs.last();
  if (after.graph_launches != before.graph_launches) {
    figures.Add("window_in_order_ns", durations->in_order);
    figures.Add("window_in_graphs_ns", durations->as_issued);
  }
  session_.core.devices->completions(device).Put(stream, &last_issued_);
  if (session_.clock.Now() - published_at_ > kPublishEvery) PublishShapes();
  return result;
}

CUresult SessionWindow::IssueOne(PendingLaunch& launch) {
  if (!launch.is_transfer()) return IssueLaunch(launch);
  auto& stream = static_cast<Stream&>(*launch.stream);
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  return PutTransfer(session_, stream, launch.transfer);
}

void SessionWindow::PublishShapes() {
  published_at_ = session_.clock.Now();
  std::vector<control::WindowShapeFigures> shapes;
  for (const auto& [device, graphs] : graphs_) {
    for (const RememberedGraphs::ShapeReport& report : graphs->Report()) {
      using enum control::WindowWay;
      const auto way = report.is_refused ? kRefused : report.way == scheduler::IssueWay::kGraph ? kGraph : kInOrder;
      shapes.push_back({.session_id = 0,
                        .num_nodes = static_cast<uint32_t>(report.num_nodes),
                        .num_levels = static_cast<uint32_t>(report.num_levels),
                        .num_tracks = static_cast<uint32_t>(report.num_tracks),
                        .way = way,
                        .num_uses = report.num_uses,
                        .in_order_ns = static_cast<uint64_t>(report.in_order.count()),
                        .graph_ns = static_cast<uint64_t>(report.graph.count())});
    }
  }
  session_.window_shapes.Publish(std::move(shapes));
}

bool SessionWindow::IsIdle() const { return !are_graphs_forced_ && last_issued_.HasEnded(); }

void SessionWindow::Forget(const Kernel& kernel) {
  for (const auto& [device, graphs] : graphs_) graphs->Forget(kernel);
}

void SessionWindow::Forget() {
  for (const auto& [device, graphs] : graphs_) graphs->ForgetAll();
}

}  // namespace tally::server
