// Everything one session owns on the device's side, without threads or sockets.
//
// Guarded by the session's sequencer (sequencer.h) unless a member says that it is thread-safe. Destroy() ends it:
// after that nothing of the session is left in the driver.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "proto/control/window_mode.h"
#include "server/executor/dispatch/busy_clock.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/dispatch/trace.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/node_budget.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/session/awaited_objects.h"
#include "server/executor/session/client_arrays.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/expected_work.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/host_calls.h"
#include "server/executor/session/host_memory.h"
#include "server/executor/session/loaded_code.h"
#include "server/executor/session/memory_map.h"
#include "server/executor/session/memory_quota.h"
#include "server/executor/session/opened_objects.h"
#include "server/executor/session/pending_output.h"
#include "server/executor/session/pools.h"
#include "server/executor/session/published_shapes.h"
#include "server/executor/session/session_gpus.h"
#include "server/executor/session/session_graphs.h"
#include "server/executor/session/session_window.h"
#include "server/executor/session/slo_watch.h"
#include "server/executor/session/spread_memory.h"
#include "server/executor/session/virtual_memory.h"

namespace tally::server {

class SessionState {
 public:
  // `granted_gpus`: see SessionGpus.
  SessionState(ExecutorCore& core, std::shared_ptr<CallbackQueue> callbacks, uid_t uid, std::string_view granted_gpus,
               std::shared_ptr<MemoryQuota> quota);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  ExecutorCore& core;
  const DriverTable& driver;
  const SessionGpus gpus;
  FigureCounters counters;                   // thread-safe; of what channels do
  HeldAccount held;                          // thread-safe; outlives what is counted in it
  const std::shared_ptr<MemoryQuota> quota;  // thread-safe
  MemoryMap memory;                          // thread-safe
  HostMemory host_memory;                    // thread-safe
  VirtualMemory virtual_memory{memory};
  PendingOutput output{held};                                    // thread-safe
  std::function<bool()> has_client_left = [] { return false; };  // thread-safe; constant once channels exist
  bool keeps_kernels = false;                                    // they run as they are; constant once channels exist
  // As the program asked for it; before channels exist.
  void OpenWindow(control::WindowMode mode);
  void OpenGraphs(control::GraphMode mode);
  // Device memory goes back to where it came from. It is used by nobody.
  CUresult FreeDeviceMemory(CUdeviceptr address) {
    if (spread_memory != nullptr && spread_memory->Free(address)) return CUDA_SUCCESS;
    return driver.cuMemFree_v2(address);
  }
  std::unique_ptr<SpreadMemory> spread_memory;  // thread-safe; null: its graphs stay on one GPU
  NodeBudget graph_nodes;                       // for its window, twins and partitions, which have shares of it
  std::unique_ptr<SessionWindow> window;        // null: off
  PublishedShapes window_shapes;                // thread-safe
  StreamPriorities stream_priorities() const { return {core.are_classes_mixed, &is_high_priority}; }
  std::atomic<bool> is_high_priority{false};  // how its launches pass admission; changes at run time
  std::atomic<int64_t> turnaround_ns{0};      // of its kernels; 0: the executor's threshold; changes at run time
  std::chrono::nanoseconds turnaround() const {
    return std::chrono::nanoseconds(turnaround_ns.load(std::memory_order_relaxed));
  }
  // Outlives the session: launches of persistent blocks are retired later.
  const std::shared_ptr<RunsOwner> runs_owner = std::make_shared<RunsOwner>();
  const std::unique_ptr<AdmissionTenant> admission_tenant;  // how admission knows it; thread-safe
  PreemptibilityMeter preemptibility;
  TraceSwitch trace;  // what recordings see of it; entered before channels exist
  // A cap on the GPU time of its tenant; before channels exist.
  void CapShare(uint32_t share_permille, std::shared_ptr<TenantPage> page);
  std::unique_ptr<ShareGate> share;  // null: none
  // All of this as its launches see it.
  const LaunchOwner launches{driver,
                             *core.admission,
                             *admission_tenant,
                             core.variants.get(),
                             keeps_kernels,
                             is_high_priority,
                             runs_owner,
                             preemptibility,
                             counters,
                             trace,
                             share};
  AwaitedObjects awaited;         // thread-safe; events and real streams
  std::unique_ptr<SloWatch> slo;  // null: no objective; constant once channels exist
  bool times_requests = false;    // for the objective, or for admission; likewise
  // Code is about to be loaded that may print.
  void NoteMayPrint() {
    if (!may_print.exchange(true)) core.device_output->Join(output, has_client_left);
  }
  // For memory that is about to be made: what pools have and do not use gives way to it. nullopt: there is no room.
  std::optional<SharedCharge> TakeCharge(int device, uint64_t size_bytes) {
    auto charge = server::TakeCharge(quota, device, size_bytes);
    if (charge) return charge;
    pools.Trim();
    return server::TakeCharge(quota, device, size_bytes);
  }
  // Something is about to be put on a stream / a wait for all of one is over; thread-safe.
  void NoteWork(const Stream& stream, bool is_launch) {
    if (times_requests) stream.requests->OnWork(is_launch, clock);
  }
  void NoteWaited(RequestClock& requests) {
    if (!times_requests) return;
    const auto took = requests.OnWaited(clock.Now());
    if (!took || !is_high_priority.load(std::memory_order_relaxed)) return;
    admission_tenant->OnRequest(*took);
    if (slo == nullptr) return;
    slo->OnRequest(*took);
    trace.OnRequest(clock.Now(), *took);
  }
  // As the program asks for it: from now on it may say when its work is expected. Once more is no error.
  // kFailedPrecondition: it has not the priority, or shares its context with who has not; kResourceExhausted: there is
  // no thread.
  Status ExpectWork(shm::ArrivalPage& page);
  // What its program gets from every call from now on: another GPU's part of its work is lost, and nobody else's is.
  void Lose(CUresult error) {
    int none = CUDA_SUCCESS;
    on_lost(error);
    lost_error_.compare_exchange_strong(none, static_cast<int>(error));
  }
  std::function<void(CUresult)> on_lost = [](CUresult) {};  // constant once channels exist
  // Its executor's or its own; CUDA_SUCCESS while all is well. Thread-safe.
  CUresult fault() const {
    if (const CUresult fault = core.fault(); fault != CUDA_SUCCESS) return fault;
    return static_cast<CUresult>(lost_error_.load(std::memory_order_acquire));
  }
  const SteadyClock clock;
  BusyTime busy;                           // its measuring and BusyTime::OnEvent are thread-safe
  std::unique_ptr<ExpectedWork> expected;  // null: nobody asked; of the socket's thread
  std::atomic<bool> may_print{false};      // has code that may print; thread-safe

  // What the client has made, by what can be destroyed together.
  HostCalls host_calls;
  HandleTables tables;
  HandleTable& handles(shm::HandleKind kind) { return tables[kind]; }
  LoadedCode code;
  SessionGraphs graphs;
  ClientArrays arrays;
  Pools pools;
  OpenedObjects opened;
  std::map<uint32_t, std::unique_ptr<ClientContext>> contexts;
  uint32_t num_captures = 0;  // begun and not ended

  // The primary context of a device opens by itself. Null: no such context.
  ClientContext* FindContext(uint32_t index);
  // A stream is being captured into one of these graphs, or the graph of one of these nodes: they must stay.
  bool IsCapturingInto(const NestedGraphs::Contents& contents) const;
  // Ends a capture whose result nobody wants.
  void AbandonCapture(Stream& stream);
  // Destroys what was made in one client context, or in all (kNoContext). Everything queued there is waited for first.
  void DestroyContents(uint32_t context);
  // Waits for everything queued in one client context, or in all (kNoContext). Captures are given up.
  void WaitForStreams(uint32_t context);
  // The whole session; idempotent.
  void Destroy();

 private:
  void LookAtStreams(int device);
  void DestroyEvents(uint32_t context);
  void FreeMemory(uint32_t context);
  void DestroyContexts(uint32_t context);

  std::atomic<int> lost_error_{CUDA_SUCCESS};
  bool destroyed_ = false;
};

}  // namespace tally::server
