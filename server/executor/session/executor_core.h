// What every session of an executor shares, and what a session may tell its executor. Built by the executor before the
// first session, outlives them all.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/executor/dispatch/dispatch_gate.h"
#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/peer_access.h"
#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/context_calls.h"
#include "server/executor/session/device_output.h"
#include "server/executor/session/held_account.h"
#include "server/executor/session/host_memory.h"
#include "server/executor/session/refused_calls.h"
#include "server/executor/session/session_limits.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

struct ExecutorConfig;

class ExecutorCore {
 public:
  ExecutorCore(const DriverTable& table, std::unique_ptr<Devices> all_devices, const ExecutorConfig& config);
  virtual ~ExecutorCore() = default;

  const DriverTable& driver;
  const std::unique_ptr<Devices> devices;
  const SessionLimits limits;
  const HeldLimits session_held_limits;
  const HeldLimits user_held_limits;
  const SteadyClock clock;
  HeldByUsers held_by_users;   // thread-safe
  ContextCalls context_calls;  // thread-safe
  HostWindow host_window;
  RefusedCalls refused_calls;  // thread-safe
  std::unique_ptr<HeldAddresses> held_addresses;
  SharedObjects shared;
  std::unique_ptr<DispatchGate> gate;
  std::unique_ptr<VariantRegistry> variants;    // null: every kernel runs as it is
  bool are_classes_mixed = false;               // ExecutorConfig
  bool wants_ptx = false;                       // of machine code: clients send it along
  std::unique_ptr<DeviceOutput> device_output;  // thread-safe; set once, before the first session
  PeerAccess peers{driver, *devices};

  // The sticky error, CUDA_SUCCESS while all is well.
  CUresult fault() const { return static_cast<CUresult>(fault_.load(std::memory_order_acquire)); }
  // The first one counts: tells every session and the executor's owner. From any thread.
  virtual void ReportFault(CUresult result, const std::string& what) = 0;
  // A session's objective asks for more caution than before, or less (slo_watch.h). From any thread.
  virtual void ReportCaution() = 0;

 protected:
  std::atomic<int> fault_{CUDA_SUCCESS};
};

}  // namespace tally::server
