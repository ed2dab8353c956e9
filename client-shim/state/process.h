// Everything the shim knows in this process between cuInit and the end: one object, created by cuInit, never destroyed
// (the runtime calls us from atexit handlers that run after static destructors). A fork's child forgets it: the
// parent's threads, and thus the holders of its locks, do not exist there. As with the native driver every call in that
// child, cuInit too, is CUDA_ERROR_NOT_INITIALIZED until it execs; a fork before cuInit leaves both free to initialise.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "client-shim/state/address_map.h"
#include "client-shim/state/address_reservations.h"
#include "client-shim/state/callback_thread.h"
#include "client-shim/state/captures.h"
#include "client-shim/state/context_storage.h"
#include "client-shim/state/contexts.h"
#include "client-shim/state/events.h"
#include "client-shim/state/handle_names.h"
#include "client-shim/state/kernels.h"
#include "client-shim/state/link_results.h"
#include "client-shim/state/managed_advice.h"
#include "client-shim/state/managed_variables.h"
#include "client-shim/state/node_parameters.h"
#include "client-shim/state/occupancy_memo.h"
#include "client-shim/state/pools.h"
#include "client-shim/state/registered_memory.h"
#include "client-shim/state/slot_table.h"
#include "client-shim/state/streams.h"
#include "client-shim/transport/channel.h"
#include "proto/shm/records_context_abi.h"

namespace tally::client_shim {

class Process {
 public:
  // Connects if that has not been done. Says on stderr what is wrong, once per attempt.
  static CUresult Start();

  // Devices as the program counts them: CUDA_VISIBLE_DEVICES applied.
  int num_devices() const { return static_cast<int>(visible_.size()); }
  bool IsDevice(CUdevice device) const { return device >= 0 && device < num_devices(); }
  int server_ordinal(CUdevice device) const { return visible_[static_cast<size_t>(device)]; }
  // CU_DEVICE_INVALID for one that the program does not see.
  CUdevice client_ordinal(uint32_t server_ordinal) const {
    const Context* primary = server_ordinal < shm::kMaxDevices ? &contexts[server_ordinal] : nullptr;
    return primary != nullptr && primary->is_visible ? primary->device : CU_DEVICE_INVALID;
  }
  const shm::DeviceDescription& device(CUdevice device) const {
    return described_[static_cast<size_t>(server_ordinal(device))];
  }
  int driver_version() const { return driver_version_; }
  CUdevice current_device() const { return contexts[t_thread.context].device; }

  Contexts contexts;
  ContextStorage storage;
  AddressMap addresses;
  AddressReservations reservations;
  RegisteredMemory registered;
  ManagedVariables managed;
  ManagedAdvice advice;
  Pools pools;
  Kernels kernels;
  SlotTable<Stream> streams;
  SlotTable<Event> events;
  HandleNames event_names{shm::HandleKind::kEvent};
  Captures captures;
  LinkResults link_results;
  CallbackThread callback_thread;
  OccupancyMemo occupancy;
  NodeParameters node_parameters;
  std::atomic<uint64_t> next_stream_id{16};  // below: legacy and per-thread streams
  std::atomic<uint32_t> next_image{1};
  std::atomic<bool> shares_memory{false};  // with another program; never false again
  std::mutex opening_mutex;                // cuIpcOpenMemHandle and cuIpcCloseMemHandle, one at a time

 private:
  friend void ForgetProcessInChild();
  CUresult DescribeDevices();

  std::vector<shm::DeviceDescription> described_;  // by the executor's ordinal
  std::vector<int> visible_;                       // the executor's ordinal, by the client's
  int driver_version_ = 0;
};

extern std::atomic<Process*> g_process;
inline Process* CurrentProcess() { return g_process.load(std::memory_order_acquire); }

// The process and the thread's channel, or the error to return.
struct Call {
  Process* process = nullptr;
  Channel* channel = nullptr;
};
CUresult BeginCall(Call* call);
// The same for calls that need a current context (CUDA_ERROR_INVALID_CONTEXT without).
CUresult BeginCallInContext(Call* call);

// How this thread waits for work of a context: as the flags of its context ask for.
inline WaitFor WaitForDevice(const Process& process, uint32_t context) {
  const uint32_t flags = process.contexts[context].flags.load(std::memory_order_relaxed);
  return (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC ? WaitFor::kAnswer : WaitFor::kDevice;
}

// For the end of a context: forgets everything that lived in it.
void ForgetContext(Process* process, uint32_t context);
// Gives back what an allocation held in this process.
void ReleaseAllocation(Process* process, const Allocation& allocation);

}  // namespace tally::client_shim
