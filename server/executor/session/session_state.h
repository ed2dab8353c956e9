// Everything one session owns on the device's side, without threads or sockets.
//
// Guarded by the session's turn (turn_order.h) unless a member says that it is thread-safe. Destroy() ends it: after
// that nothing of the session is left in the driver.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/issue/coverage_meter.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/session/awaited_objects.h"
#include "server/executor/session/callback_queue.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/graph_memory.h"
#include "server/executor/session/graph_replays.h"
#include "server/executor/session/handle_table.h"
#include "server/executor/session/host_call_words.h"
#include "server/executor/session/host_memory.h"
#include "server/executor/session/image_store.h"
#include "server/executor/session/memory_map.h"
#include "server/executor/session/nested_graphs.h"
#include "server/executor/session/pending_output.h"
#include "server/executor/session/slo_watch.h"
#include "server/executor/session/texture_ops.h"
#include "server/executor/session/virtual_memory.h"

namespace tally::server {

// A cuLink in progress: the driver keeps pointers into the logs until it is destroyed.
struct LinkState {
  CUlinkState link = nullptr;
  std::vector<char> info_log;
  std::vector<char> error_log;
  std::vector<std::shared_ptr<ImageBytes>> inputs;
  std::vector<std::byte> result;
};

// A cuUserObject as far as this client holds it (user_object_ops.cc).
struct UserObject {
  CUuserObject real = nullptr;
  uint64_t handle = 0;
  uint64_t num_client_references = 0;
  std::map<uint64_t, uint64_t> of_graph;  // references by graph handle
  uint64_t num_references() const {
    return std::accumulate(of_graph.begin(), of_graph.end(), num_client_references,
                           [](uint64_t sum, const auto& entry) { return sum + entry.second; });
  }
};

class SessionState {
 public:
  SessionState(ExecutorCore& core, std::shared_ptr<CallbackQueue> callbacks, uid_t uid);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  ExecutorCore& core;
  const DriverTable& driver;
  FigureCounters counters;  // thread-safe; of what lanes do
  HeldAccount held;         // thread-safe; outlives what is counted in it
  MemoryMap memory;         // thread-safe
  HostMemory host_memory;   // thread-safe
  VirtualMemory virtual_memory{memory};
  PendingOutput output{held};                                    // thread-safe
  std::function<bool()> has_client_left = [] { return false; };  // thread-safe; constant once lanes exist
  bool keeps_kernels = false;                                    // they run as they are; constant once lanes exist
  StreamPriorities stream_priorities() const { return {core.are_classes_mixed, &is_high_priority}; }
  std::atomic<bool> is_high_priority{false};  // how its launches pass the dispatch gate; changes at run time
  std::atomic<int64_t> turnaround_ns{0};      // of its kernels; 0: the executor's threshold; changes at run time
  // Outlives the session: launches of workers are retired later.
  const std::shared_ptr<WorkerOwner> worker_owner = std::make_shared<WorkerOwner>();
  const std::unique_ptr<GateTenant> gate_tenant;  // how the dispatch gate knows it; thread-safe
  CoverageMeter coverage;
  // All of this as its launches see it.
  const LaunchOwner launches{driver,        *core.gate,       *gate_tenant,  core.variants.get(),
                             keeps_kernels, is_high_priority, turnaround_ns, worker_owner,
                             coverage,      counters};
  AwaitedObjects awaited;         // thread-safe; events and real streams
  std::unique_ptr<SloWatch> slo;  // null: no objective; constant once lanes exist
  // Code is about to be loaded that may print.
  void NoteMayPrint() {
    if (!may_print.exchange(true)) core.device_output->Join(output, has_client_left);
  }
  // Something is about to be put on a stream / a wait for all of one is over; thread-safe.
  void NoteWork(const Stream& stream, bool is_launch) {
    if (slo != nullptr) stream.requests->OnWork(is_launch, clock);
  }
  void NoteWaited(RequestClock& requests) {
    if (slo == nullptr) return;
    const auto took = requests.OnWaited(clock.Now());
    if (took && is_high_priority.load(std::memory_order_relaxed)) slo->OnRequest(*took);
  }
  const SteadyClock clock;
  const std::shared_ptr<CallbackQueue> callbacks;

  HandleTable& handles(shm::HandleKind kind) { return tables_[static_cast<size_t>(kind)]; }
  ImageStore images;
  HostCallWords host_call_words;
  GraphMemory graph_memory;
  GraphReplays graph_replays;
  std::vector<std::unique_ptr<UserObject>> user_objects;
  NestedGraphs nested_graphs{driver};
  std::map<uint64_t, uint64_t> conditionals;  // the driver's number -> the graph's handle
  std::string graph_text;                     // the picture that the client is fetching
  std::map<uint32_t, std::unique_ptr<ClientContext>> contexts;
  std::vector<std::unique_ptr<LoadedImage>> loaded;
  std::unordered_map<const void*, Kernel*> kernel_of;      // by CUfunction or CUkernel
  std::vector<std::unique_ptr<HostCall>> kept_host_calls;  // graphs may call them until the session ends
  std::map<int, CUmemoryPool> default_pools;               // by device: what this session gets for "the default pool"
  SamplingObjects textures;
  SamplingObjects surfaces;
  ArraySizes array_sizes;
  BorrowedArrays borrowed_arrays;
  std::map<uint64_t, uint32_t> num_opens;        // of memory of other sessions, by address
  std::map<CUmemoryPool, int> exportable_pools;  // their devices
  std::set<CUmemoryPool> opened_pools;           // stand for pools of other sessions
  std::set<uint64_t> opened_events;              // handles of events of other sessions
  uint32_t num_captures = 0;                     // begun and not ended
  std::atomic<bool> may_print{false};            // has code that may print; thread-safe

  // The primary context of a device opens by itself. Null: no such context.
  ClientContext* FindContext(uint32_t index);
  // Unloads and forgets it, its kernels and its globals. With `unload` false the driver's object is gone already.
  void Unload(LoadedImage* image);
  // Gives every library's variables their first values again, as the reset of the only context does; handles stay.
  // CUfunctions of its kernels and its module go, as natively.
  void ReloadLibraries();
  // What goes with a graph, as far as the client can name any of it.
  NestedGraphs::Contents ContentsOf(CUgraph graph) {
    // Most programs never name a node: then a graph of thousands of them need not be looked through.
    if (handles(shm::HandleKind::kGraphNode).size() == 0 && nested_graphs.empty()) return {{graph}, {}};
    return nested_graphs.ContentsOf(graph);
  }
  // Forgets graphs and nodes that the driver has destroyed, or is about to.
  void ForgetGraphs(const NestedGraphs::Contents& gone);
  // With no reference of the client's or of a graph it knows, the driver's object is gone or about to go.
  void ForgetUnlessHeld(UserObject* object);
  // A stream is being captured into one of these graphs, or the graph of one of these nodes: they must stay.
  bool IsCapturingInto(const NestedGraphs::Contents& contents) const;
  // Ends a capture whose result nobody wants.
  void AbandonCapture(Stream& stream);
  // Destroys what was made in one client context, or in all (kNoContext). Everything queued there is waited for first.
  void DestroyContents(uint32_t context);
  // An event of the session, by its handle, is no longer used here. True: nobody uses it, the caller destroys it.
  [[nodiscard]] bool LetGoOfEvent(uint64_t handle, CUevent event);
  // A pool is about to be destroyed.
  void ForgetPool(CUmemoryPool pool);
  // The whole session; idempotent.
  void Destroy();

 private:
  void Reload(LoadedImage& library);
  // Its other forms go, once no launch of theirs is in flight.
  void AwaitVariants(Kernel& kernel);
  void ForgetUserReferences(uint64_t graph);
  void WaitForStreams(uint32_t context);
  void DestroyHandles(uint32_t context);
  void FreeMemory(uint32_t context);

  std::vector<HandleTable> tables_;
  bool destroyed_ = false;
};

}  // namespace tally::server
