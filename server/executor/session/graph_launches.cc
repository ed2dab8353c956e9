#include "server/executor/session/graph_launches.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "server/executor/issue/admitted_dispatch.h"
#include "server/executor/issue/launch_forms.h"
#include "server/executor/session/admitted_copies.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/launch_record.h"

namespace tally::server {

using control::WholeReason;

namespace {

constexpr std::chrono::milliseconds kPublishEvery{200};

// For tests: TALLY_FORCE_GRAPHS=partitions in the environment of the executor. Every best-effort graph that can be cut
// is launched in partitions, whoever is there and whatever it costs. `spread`: those of programs that ask for it are
// spread, if they can be.
bool AreForced(std::string_view way) {
  const char* const forced = std::getenv("TALLY_FORCE_GRAPHS");
  return forced != nullptr && forced == way;
}

// What the program has queued may wait for what it has yet to do.
constexpr std::chrono::milliseconds kLongestWaitForIdle{1000};
constexpr std::chrono::microseconds kBetweenIdleLooks{20};

}  // namespace

GraphLaunches::GraphLaunches(const DriverTable& driver)
    : driver_(driver), is_forced_(AreForced("partitions")), is_spread_forced_(AreForced("spread")) {}

void GraphLaunches::OnInstantiated(ServedRequest& served, CUgraph graph, CUgraphExec exec, unsigned long long flags) {
  SessionState& session = served.session();
  execs_.erase(exec);
  // Where nothing is ever stopped graphs are of no interest, and cost nothing.
  if (session.core.variants == nullptr && !is_forced_ && session.spread_memory == nullptr) return;
  auto known = std::make_unique<Exec>(driver_, ++num_graphs_);
  if (mode_ == control::GraphMode::kOff) {
    known->Drop(WholeReason::kOff);
  } else if (session.keeps_kernels && !is_forced_ && session.spread_memory == nullptr) {
    known->Drop(WholeReason::kKernelsKept);
  } else {
    known->Adopt(served, graph, flags);
  }
  execs_[exec] = std::move(known);
}

void GraphLaunches::OnUpdated(ServedRequest& served, CUgraph graph, CUgraphExec exec) {
  if (const auto found = execs_.find(exec); found != execs_.end()) found->second->OnUpdated(served, graph);
}

void GraphLaunches::OnChanged(CUgraphExec exec) {
  if (const auto found = execs_.find(exec); found != execs_.end()) found->second->Drop(WholeReason::kChanged);
}

void GraphLaunches::OnNodeSet(CUgraphExec exec, CUgraphNode node, const SetInGraph& in_graph,
                              const SetInExec& in_exec) {
  const auto found = execs_.find(exec);
  if (found == execs_.end() || found->second->is_whole_for_good()) return;
  const CUgraphNode ours = found->second->NodeOfClone(node);
  if (ours == nullptr || in_graph(ours) != CUDA_SUCCESS) return found->second->Drop(WholeReason::kChanged);
  found->second->Follow(ours, in_exec);
}

void GraphLaunches::OnUnload() {
  for (auto& [exec, known] : execs_) known->KeepWhatThereIs();
  if (spread_ != nullptr) spread_->mirrors.ForgetCode();
}

void GraphLaunches::Clear() {
  execs_.clear();
  for (auto& [key, streams] : others_) {
    for (LaunchStream& stream : streams) driver_.cuStreamDestroy_v2(stream.real);
  }
  others_.clear();
  timers_.clear();
  spread_.reset();
}

LaunchTimer& GraphLaunches::TimerOf(ServedRequest& served, int device) {
  std::unique_ptr<LaunchTimer>& timer = timers_[device];
  if (timer == nullptr) {
    ExecutorCore& core = served.session().core;
    timer = std::make_unique<LaunchTimer>(core.devices->completions(device), device, core.admission->watch());
  }
  return *timer;
}

WholeReason GraphLaunches::ChooseWay(ServedRequest& served, const Stream& stream, Exec& exec) {
  if (exec.is_whole_for_good()) return exec.why_for_good();
  SessionState& session = served.session();
  const int device = stream.context->device();
  const VariantRegistry* const variants = session.core.variants.get();
  if (session.is_high_priority.load(std::memory_order_relaxed)) return WholeReason::kHighPriority;
  GraphLaunchWays::Limits limits{.is_forced = is_forced_};
  if (!is_forced_ && !variants->MightStop(device)) return WholeReason::kNobodyThere;
  if (variants != nullptr) {
    // Two of them are in flight, so that the GPU does not wait for the next: together they give it back in time.
    const auto threshold = variants->ThresholdOf(session.turnaround());
    limits.longest = threshold / 2;
    limits.has_forms = !session.keeps_kernels;
    const bool is_short = exec.whole_duration().count() != 0 && exec.whole_duration() <= threshold;
    if (!is_forced_ && !variants->forced_form() && is_short) return WholeReason::kShort;
    limits.are_all_alone = variants->forced_form().has_value();
  }
  // A cap on GPU time looks at the program's stream to see whether the GPU is busy.
  if (session.share != nullptr) limits.most_streams = 1;
  CUcontext context = nullptr;
  if (session.core.devices->Context(device, &context) != CUDA_SUCCESS) return WholeReason::kRefused;
  if (const WholeReason reason = exec.Prepare(served, context, limits); reason != WholeReason::kNone) return reason;
  return exec.MayGoAlone(served) ? WholeReason::kNone : WholeReason::kRefused;
}

CUresult GraphLaunches::OrderBehindLast(ServedRequest& served, Stream& stream, Exec& exec, bool is_cut) {
  const bool is_same = exec.last_stream == &stream && exec.last_handle == stream.handle;
  const bool may_overlap = exec.last_stream != nullptr && !is_same && (is_cut || exec.was_cut);
  if (may_overlap) {
    // Behind all that its last context has queued: the stream itself may be gone.
    const auto last = served.session().contexts.find(exec.last_context);
    ClientContext& context = last != served.session().contexts.end() ? *last->second : *stream.context;
    Mark mark;
    if (const CUresult r = context.MarkAll(&mark); r != CUDA_SUCCESS) return r;
    if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
    if (const CUresult r = mark.HoldBack(stream.real); r != CUDA_SUCCESS) return r;
  }
  exec.last_stream = &stream;
  exec.last_handle = stream.handle;
  exec.last_context = stream.context->index();
  exec.was_cut = is_cut;
  return CUDA_SUCCESS;
}

CUresult GraphLaunches::Launch(ServedRequest& served, ClientNames& names, Stream& stream, CUgraphExec graph_exec) {
  SessionState& session = served.session();
  const auto found = execs_.find(graph_exec);
  // In a capture it becomes a node of the program's graph.
  if (found == execs_.end() || stream.context->IsCapturing(stream)) {
    return LaunchWhole(served, stream, graph_exec, nullptr);
  }
  Exec& exec = *found->second;
  ++exec.num_launches;
  if (exec.spread() != nullptr) {
    exec.reason = ChooseSpread(served, stream, exec);
    if (exec.reason == WholeReason::kNone && !AwaitIdle(served, stream)) exec.reason = WholeReason::kBusy;
    const CUresult result = exec.reason == WholeReason::kNone ? LaunchSpread(served, stream, exec)
                                                              : LaunchWhole(served, stream, graph_exec, &exec);
    if (session.clock.Now() - published_at_ > kPublishEvery) Publish(session.clock);
    return result;
  }
  exec.reason = ChooseWay(served, stream, exec);
  const bool is_cut = exec.reason == WholeReason::kNone;
  if (const CUresult r = OrderBehindLast(served, stream, exec, is_cut); r != CUDA_SUCCESS) return r;
  const CUresult result =
      is_cut ? LaunchInPartitions(served, names, stream, exec) : LaunchWhole(served, stream, graph_exec, &exec);
  if (session.clock.Now() - published_at_ > kPublishEvery) Publish(session.clock);
  return result;
}

GraphLaunches::SpreadParts::SpreadParts(SessionState& session, const SpreadMemory& spread)
    : memory(session.memory),
      finder(session.driver, *session.core.devices, session.core.segments, memory),
      mirrors(session.core, spread,
              [&session](int device, uint64_t num_bytes) { return session.TakeCharge(device, num_bytes); }) {}

GraphSpread::Place GraphLaunches::PlaceOf(const SpreadReading& reading, CUcontext context) {
  SessionState& session = reading.served.session();
  return {reading,
          spread_->mirrors,
          session.core.loaded_driver->libraries,
          session.gpus.ordinals(),
          session.core.devices->completions(reading.stream.device),
          context,
          is_spread_forced_};
}

WholeReason GraphLaunches::ChooseSpread(ServedRequest& served, Stream& stream, Exec& exec) {
  SessionState& session = served.session();
  if (session.num_captures != 0) return WholeReason::kBusy;
  // Its kernels may be of a device that is not the stream's.
  for (const auto& [index, context] : session.contexts) {
    if (context->device() != stream.device) return WholeReason::kSeveralGpus;
  }
  CUcontext context = nullptr;
  if (session.core.devices->Context(stream.device, &context) != CUDA_SUCCESS) return WholeReason::kRefused;
  if (spread_ == nullptr) spread_ = std::make_unique<SpreadParts>(session, *session.spread_memory);
  const SpreadReading reading{served, stream, spread_->finder, spread_->memory, *session.spread_memory};
  return exec.spread()->Prepare(PlaceOf(reading, context), exec.clone(), exec.declared(), exec.whole.duration());
}

bool GraphLaunches::AwaitIdle(ServedRequest& served, const Stream& stream) {
  SessionState& session = served.session();
  std::vector<Mark> marks;
  for (const auto& [index, context] : session.contexts) {
    if (served.EnterDevice(context->device()) != CUDA_SUCCESS) return false;
    if (context->MarkAll(&marks.emplace_back()) != CUDA_SUCCESS) return false;
  }
  if (served.EnterDevice(stream.device) != CUDA_SUCCESS) return false;
  const TimePoint end = session.clock.Now() + kLongestWaitForIdle;
  for (const Mark& mark : marks) {
    while (!mark.HasEnded()) {
      if (session.clock.Now() > end || session.admission_tenant->has_left()) return false;
      std::this_thread::sleep_for(kBetweenIdleLooks);
    }
  }
  return true;
}

CUresult GraphLaunches::LaunchSpread(ServedRequest& served, Stream& stream, Exec& exec) {
  SessionState& session = served.session();
  session.NoteWork(stream, /*is_launch=*/true);
  {
    scheduler::LaunchAsked asked;
    asked.kind = reinterpret_cast<uintptr_t>(exec.spread());
    asked.turnaround = session.turnaround();
    const AdmittedDispatch dispatch(session.launches, stream, asked, /*passes=*/false, {nullptr, "graph"});
    if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  }
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = session.core.devices->Context(stream.device, &context); r != CUDA_SUCCESS) return r;
  const SpreadReading reading{served, stream, spread_->finder, spread_->memory, *session.spread_memory};
  const uint64_t launches_before = exec.spread()->num_launches(), bytes_before = exec.spread()->moved_bytes();
  const CUresult result = exec.spread()->Launch(PlaceOf(reading, context), [&] {
    if (!session.admission_tenant->has_left() && !session.has_client_left()) return CUDA_SUCCESS;
    spread_->mirrors.End();
    return AdmittedDispatch::kCancelled;
  });
  session.counters.Add("graphs_spread", exec.spread()->num_launches() - launches_before);
  session.counters.Add("graph_moved_bytes", exec.spread()->moved_bytes() - bytes_before);
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  // What other GPUs had of the program's memory is gone. A fault at home is everybody's, as ever.
  const CUresult lost = spread_->mirrors.error();
  spread_->mirrors.End();
  if (lost != CUDA_SUCCESS || !IsSticky(result)) session.Lose(lost != CUDA_SUCCESS ? lost : result);
  return lost != CUDA_SUCCESS ? lost : result;
}

void GraphLaunches::OnFreed(uint64_t address) {
  if (spread_ != nullptr) spread_->mirrors.OnFreed(address);
}

CUresult GraphLaunches::LaunchWhole(ServedRequest& served, Stream& stream, CUgraphExec graph_exec, Exec* exec) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  SessionState& session = served.session();
  const bool is_captured = stream.context->IsCapturing(stream);
  if (!is_captured) session.NoteWork(stream, /*is_launch=*/true);
  scheduler::LaunchAsked asked;
  asked.kind = reinterpret_cast<uintptr_t>(graph_exec);
  asked.turnaround = session.turnaround();
  const AdmittedDispatch dispatch(session.launches, stream, asked, /*passes=*/is_captured, {nullptr, "graph"});
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  std::optional<PreemptibilityMeter::Timed> timed;
  if (IsOfInterest(session.launches, is_captured)) {
    timed.emplace(session.preemptibility, stream.device, stream.real, asked.kind,
                  session.core.variants->PreemptibilityLeft(stream.device, Preemptibility::kGraph));
    if (exec != nullptr) exec->estimated_whole = timed->known_duration();
  }
  std::optional<SampledTimes::Sample> sample;
  if (exec != nullptr) sample.emplace(exec->whole, TimerOf(served, stream.device), stream.real);
  const CUresult result =
      is_captured ? driver_.cuGraphLaunch(graph_exec, stream.real) : LaunchExec(served, stream, graph_exec);
  if (sample && result == CUDA_SUCCESS) sample->End(stream.real);
  return result;
}

CUresult GraphLaunches::OthersFor(ServedRequest& served, const Stream& stream, size_t count,
                                  std::span<LaunchStream>* others) {
  if (count == 0) return CUDA_SUCCESS;
  const int priority = served.session().stream_priorities().Of(stream.priority);
  // Those of another stream of the program's may wait for something that the program does only later.
  const std::pair<const Stream*, int> key(&stream, priority);
  if (others_.size() == kMostStreamsWithOthers && !others_.contains(key)) return CUDA_SUCCESS;
  std::vector<LaunchStream>& known = others_[key];
  // Streams stay where they are: one call makes all that any graph may want.
  if (known.empty()) {
    const VariantRegistry::ContextCall making(served.session().core.variants.get());
    known.reserve(PartitionedGraph::kMostStreams - 1);
    for (size_t i = 1; i < PartitionedGraph::kMostStreams; ++i) {
      LaunchStream made;
      if (const CUresult r = driver_.cuStreamCreateWithPriority(&made.real, CU_STREAM_NON_BLOCKING, priority);
          r != CUDA_SUCCESS) {
        return r;
      }
      made.device = stream.device;
      known.push_back(std::move(made));
    }
  }
  if (known.size() < count) return CUDA_ERROR_OUT_OF_MEMORY;  // of an earlier launch
  *others = std::span(known).first(count);
  return CUDA_SUCCESS;
}

CUresult GraphLaunches::LaunchAlone(ServedRequest& served, ClientNames& names, Stream& stream, Exec& exec,
                                    uint32_t task) {
  const GraphTask& alone = exec.task(task);
  if (alone.kind != NodeKind::kKernel) {
    if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  }
  if (alone.kind == NodeKind::kFill) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    const CUresult read = driver_.cuGraphMemsetNodeGetParams(alone.node, &fill);
    return read == CUDA_SUCCESS ? PutFill(served.session(), stream, fill) : read;
  }
  if (alone.kind == NodeKind::kCopy) {
    CUDA_MEMCPY3D copy{};
    const CUresult read = driver_.cuGraphMemcpyNodeGetParams(alone.node, &copy);
    return read == CUDA_SUCCESS ? PutBox(served.session(), stream, copy, CopyDirection::kDevice) : read;
  }
  const std::vector<std::byte>* const record = exec.RecordOf(served, task);
  if (record == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  shm::Launch head{};
  WireReader in(*record);
  if (const CUresult r = ReadLaunch(served, names, in, &head, &served.launch()); r != CUDA_SUCCESS) return r;
  return PutLaunch(served.session(), stream, served.launch());
}

CUresult GraphLaunches::LaunchInPartitions(ServedRequest& served, ClientNames& names, Stream& stream, Exec& exec) {
  SessionState& session = served.session();
  PartitionedGraph& partitions = *exec.partitions();
  std::span<LaunchStream> others;
  if (const CUresult r = OthersFor(served, stream, partitions.num_streams() - 1, &others); r != CUDA_SUCCESS) return r;
  session.NoteWork(stream, /*is_launch=*/true);
  const PartitionedGraph::Place place{stream,
                                      others,
                                      session.core.devices->completions(stream.device),
                                      session.launches,
                                      session.turnaround(),
                                      [&](uint32_t task) { return LaunchAlone(served, names, stream, exec, task); }};
  // A mark behind gated work would have to wait for it.
  std::optional<SampledTimes::Sample> sample;
  const bool is_timed = !partitions.has_alone();
  if (is_timed) {
    if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
    sample.emplace(exec.partitioned, TimerOf(served, stream.device), stream.real);
  }
  const CUresult result = partitions.Launch(place);
  if (sample && result == CUDA_SUCCESS) sample->End(stream.real);
  ++exec.num_partitioned;
  session.counters.Add("graphs_in_partitions");
  session.counters.Add("graph_partitions", partitions.num_partitions());
  return result;
}

void GraphLaunches::Publish(const Clock& clock) {
  published_at_ = clock.Now();
  std::vector<GraphRow> published;
  for (auto& [graph_exec, exec] : execs_) {
    exec->RefreshOutline();
    published.push_back(
        {exec->Figures(), exec->outline(), exec->spread() != nullptr ? exec->spread()->record() : SpreadRecord{}});
  }
  rows.Publish(std::move(published));
}

}  // namespace tally::server
