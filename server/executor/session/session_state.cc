#include "server/executor/session/session_state.h"

#include <algorithm>
#include <array>
#include <thread>

namespace tally::server {

SessionState::SessionState(ExecutorCore& executor_core, std::shared_ptr<CallbackQueue> callback_queue, uid_t uid,
                           std::string_view granted_gpus, std::shared_ptr<MemoryQuota> memory_quota)
    : core(executor_core),
      driver(executor_core.driver),
      gpus(*executor_core.devices, granted_gpus),
      held(executor_core.session_held_limits, executor_core.user_held_limits, executor_core.held_by_users.Of(uid)),
      quota(std::move(memory_quota)),
      host_memory(executor_core.driver, executor_core.host_window, *executor_core.held_addresses, held),
      admission_tenant(executor_core.admission->AddTenant({})),
      preemptibility(executor_core.devices.get(), executor_core.admission->watch()),
      busy(executor_core.devices->count(), clock, &executor_core.used_devices),
      host_calls(driver, std::move(callback_queue)),
      tables(executor_core.limits.handles_per_kind),
      code(driver, tables, memory, held, executor_core.variants.get()),
      graphs(driver, tables, memory),
      arrays(driver, tables, memory),
      pools(driver, *executor_core.devices, tables, executor_core.shared, quota),
      opened(executor_core.shared, awaited) {}

SessionState::~SessionState() { Destroy(); }

void SessionState::OpenGraphs(control::GraphMode mode) {
  graphs.launches.SetMode(mode);
  if (mode == control::GraphMode::kSpread && share == nullptr && gpus.ordinals().size() > 1) {
    spread_memory = std::make_unique<SpreadMemory>(driver, core.spread_addresses, gpus.ordinals());
  }
  code.before_unload = [this] {
    if (window != nullptr) window->Forget();
    if (graphs.twins != nullptr) graphs.twins->OnUnload();
    graphs.launches.OnUnload();
  };
}

void SessionState::OpenWindow(control::WindowMode mode) {
  if (mode == control::WindowMode::kOff || keeps_kernels) return;
  window = std::make_unique<SessionWindow>(*this, mode == control::WindowMode::kOn);
  if (mode == control::WindowMode::kOn) {
    graphs.twins = std::make_unique<GraphTwins>(
        driver, GraphTwins::Limits{.nodes = &graph_nodes, .are_measured = !window->are_graphs_forced()});
  }
}

Status SessionState::ExpectWork(shm::ArrivalPage& page) {
  if (expected != nullptr) return OkStatus();
  if (core.are_classes_mixed || !is_high_priority.load(std::memory_order_relaxed)) {
    return Status(StatusCode::kFailedPrecondition, "no switch between contexts comes before its work");
  }
  auto made = std::make_unique<ExpectedWork>(*this, page);
  if (const Status started = made->Start(); !started.ok()) return started;
  expected = std::move(made);
  for (const auto& of_device : busy.clocks()) of_device->Tell(*expected);
  return OkStatus();
}

void SessionState::CapShare(uint32_t share_permille, std::shared_ptr<TenantPage> page) {
  // Work with gates has not ended when the driver says so, and a cap needs to know.
  keeps_kernels = true;
  share = std::make_unique<ShareGate>(
      share_permille, std::move(page),
      ShareGate::Surroundings{*admission_tenant, busy, [this](int device) { LookAtStreams(device); }, clock,
                              [](auto time) { std::this_thread::sleep_for(time); }});
}

void SessionState::LookAtStreams(int device) {
  const TimePoint done_at = busy.WhenDone(clock.Now());
  for (const auto& [index, context] : contexts) {
    if (context->device() != device) continue;
    for (const auto& stream : context->streams()) {
      // Asking a stream that is being captured would spoil the capture.
      if (stream->work->is_done() || context->IsCapturing(*stream)) continue;
      if (driver.cuStreamQuery(stream->real) == CUDA_SUCCESS) stream->work->OnSeen(stream->work->num_put(), done_at);
    }
  }
}

ClientContext* SessionState::FindContext(uint32_t index) {
  if (const auto found = contexts.find(index); found != contexts.end()) return found->second.get();
  if (!gpus.Has(index)) return nullptr;
  const auto device = static_cast<int>(index);
  auto context = std::make_unique<ClientContext>(driver, core.devices->completions(device), index, device, 0,
                                                 &num_captures, &awaited, busy.On(device), stream_priorities());
  return contexts.emplace(index, std::move(context)).first->second.get();
}

bool SessionState::IsCapturingInto(const NestedGraphs::Contents& contents) const {
  if (num_captures == 0) return false;
  const auto shares_one = [](const auto& some, const auto& others) {
    return std::find_first_of(some.begin(), some.end(), others.begin(), others.end()) != some.end();
  };
  for (const auto& [index, context] : contexts) {
    for (const auto& stream : context->streams()) {
      const CUgraph graph = stream->began_capture ? context->CapturedGraph(*stream) : nullptr;
      if (graph == nullptr) continue;
      if (shares_one(contents.graphs, std::array{graph})) return true;
      if (shares_one(contents.nodes, graphs.nested.ContentsOf(graph).nodes)) return true;
    }
  }
  return false;
}

void SessionState::AbandonCapture(Stream& stream) {
  if (!stream.began_capture) return;
  stream.began_capture = false;
  --num_captures;
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream.real, &graph) != CUDA_SUCCESS || graph == nullptr) return;
  // A graph that was handed to BeginCaptureToGraph is the client's own and goes with its handles.
  if (handles(shm::HandleKind::kGraph).FindHandle(graph) != 0) return;
  graphs.memory.OnDestroyed(graph);
  graphs.declared.Forget(graph);
  driver.cuGraphDestroy(graph);
}

void SessionState::WaitForStreams(uint32_t context) {
  for (const auto& [index, owner] : contexts) {
    if (context != shm::kNoContext && context != index) continue;
    for (const auto& stream : owner->streams()) AbandonCapture(*stream);
    for (const auto& stream : owner->streams()) {
      if (!stream->HasUnfinishedWork()) continue;
      CUcontext real = nullptr;
      if (stream->gated != nullptr && core.devices->Context(owner->device(), &real) == CUDA_SUCCESS &&
          driver.cuCtxSetCurrent(real) == CUDA_SUCCESS) {
        stream->Seal();
      }
      driver.cuStreamSynchronize(stream->real);
      *stream->num_waited = stream->num_issued;
      stream->work->OnSeen(stream->work->num_put(), clock.Now());
    }
  }
}

void SessionState::DestroyEvents(uint32_t context) {
  tables.RemoveEach(shm::HandleKind::kEvent, context, [&](const HandleTable::Entry& entry) {
    const auto event = static_cast<CUevent>(entry.value);
    if (opened.LetGoOfEvent(entry.handle, event)) driver.cuEventDestroy_v2(event);
  });
}

void SessionState::FreeMemory(uint32_t context) {
  for (const MemoryRange& range : memory.Ranges()) {
    if (context != shm::kNoContext && range.context != context) continue;
    switch (range.kind) {
      case MemoryKind::kDevice:
      case MemoryKind::kAsync:
      case MemoryKind::kOpened:
        graphs.launches.OnFreed(range.address);
        if (opened.LetGoOfMemory(range.address, range.kind != MemoryKind::kOpened)) FreeDeviceMemory(range.address);
        break;
      case MemoryKind::kForeign:
        opened.num_opens.erase(range.address);
        core.foreign.CloseMemory(range.address);
        break;
      case MemoryKind::kPinned:
        host_memory.Free(range.address);
        break;
      case MemoryKind::kGlobal:
      case MemoryKind::kGraph:
      case MemoryKind::kMapped:
        continue;
    }
    memory.Take(range.address, range.kind, range.kind);  // what counted for it goes with `range`
  }
}

void SessionState::DestroyContexts(uint32_t context) {
  // Stream handles point into the contexts.
  for (const HandleTable::Entry& entry : handles(shm::HandleKind::kStream).Entries()) {
    if (context == shm::kNoContext || static_cast<Stream*>(entry.value)->context->index() == context) {
      handles(shm::HandleKind::kStream).Remove(entry.handle);
    }
  }
  std::erase_if(contexts, [&](const auto& entry) { return context == shm::kNoContext || entry.first == context; });
}

void SessionState::DestroyContents(uint32_t context) {
  const bool is_all = context == shm::kNoContext;
  WaitForStreams(context);
  // Urgent: whoever needs the memory may be the one for whom the others were stopped.
  const VariantRegistry::ContextCall call(core.variants.get(), /*is_urgent=*/true);
  const ContextCalls::Call waiting(core.context_calls, this);
  // A graph that a stream of another context is being captured into outlives this one.
  graphs.Destroy(context, [this](const NestedGraphs::Contents& contents) { return IsCapturingInto(contents); });
  DestroyEvents(context);
  code.DestroyLinks(context);
  arrays.Destroy(context);
  code.UnloadAll(context);
  FreeMemory(context);
  if (is_all) virtual_memory.DestroyAll(driver);
  if (is_all) pools.DestroyAll();
  DestroyContexts(context);
}

void SessionState::Destroy() {
  if (destroyed_) return;
  destroyed_ = true;
  // Calls that name no context need one that is current; any will do for destroying.
  CUcontext current = nullptr;
  const std::vector<int>& allowed = gpus.ordinals();
  const int device = !contexts.empty() ? contexts.begin()->second->device() : !allowed.empty() ? allowed.front() : 0;
  const bool used = !contexts.empty() || !code.loaded.empty() || !virtual_memory.empty() ||
                    memory.device_bytes() != 0 || memory.pinned_bytes() != 0 || !host_calls.words.empty();
  if (used && core.devices->Context(device, &current) == CUDA_SUCCESS) driver.cuCtxSetCurrent(current);
  DestroyContents(shm::kNoContext);
  window.reset();
  share.reset();
  core.device_output->Leave(output);
  core.collectives.Forget(this);
  host_calls.words.FreeAll();
  host_memory.FreeAll();
  preemptibility.Close();
  admission_tenant->End();
}

}  // namespace tally::server
