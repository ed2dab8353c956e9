// What every session of an executor shares, and what a session may tell its executor. Made before the first session,
// outlives them all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/tenant_page.h"
#include "server/executor/dispatch/time_slices.h"
#include "server/executor/dispatch/trace.h"
#include "server/executor/dispatch/used_devices.h"
#include "server/executor/driver/address_arena.h"
#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/peer_access.h"
#include "server/executor/driver/upload_kernels.h"
#include "server/executor/issue/segment_compiler.h"
#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/collectives.h"
#include "server/executor/session/context_calls.h"
#include "server/executor/session/context_fault.h"
#include "server/executor/session/device_output.h"
#include "server/executor/session/foreign_objects.h"
#include "server/executor/session/held_account.h"
#include "server/executor/session/held_addresses.h"
#include "server/executor/session/host_memory.h"
#include "server/executor/session/notices.h"
#include "server/executor/session/refused_calls.h"
#include "server/executor/session/session_limits.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

// What an executor is made of, in the order in which it is made (executor_parts.h): each needs those before it.
struct ExecutorParts {
  std::unique_ptr<HeldAddresses> held_addresses;
  std::unique_ptr<DeviceOutput> device_output;
  std::unique_ptr<LoadedDriver> driver;
  std::unique_ptr<Devices> devices;
  std::unique_ptr<Admission> admission;
  std::unique_ptr<ContextFault> context_fault;
  std::unique_ptr<VariantRegistry> variants;  // null: every kernel runs as it is
};

class ExecutorCore {
 public:
  using OnLongBlocks =
      std::function<void(uint64_t session_id, const std::string& kernel, std::chrono::nanoseconds left)>;

  ExecutorCore(ExecutorParts parts, const SessionLimits& session_limits, const UserLimits& user_limits,
               bool has_both_classes, const std::string& tenants_directory, const Doors& doors,
               std::function<void()> on_device_used, OnLongBlocks on_long_blocks_of_session);
  virtual ~ExecutorCore() = default;

  const std::unique_ptr<LoadedDriver> loaded_driver;
  const DriverTable& driver;
  const std::unique_ptr<Devices> devices;
  const SessionLimits limits;
  const HeldLimits session_held_limits;
  const HeldLimits user_held_limits;
  const SteadyClock clock;
  HeldByUsers held_by_users;   // thread-safe
  ContextCalls context_calls;  // thread-safe
  TenantPages tenant_pages;    // thread-safe
  HostWindow host_window;
  RefusedCalls refused_calls;  // thread-safe
  const std::unique_ptr<HeldAddresses> held_addresses;
  SharedObjects shared;
  std::unique_ptr<Admission> admission;
  const std::unique_ptr<ContextFault> context_fault;  // thread-safe
  const std::unique_ptr<VariantRegistry> variants;    // null: every kernel runs as it is
  SegmentCompiler segments;                           // thread-safe; of sessions that have a window
  const bool are_classes_mixed;                       // ExecutorConfig
  const OnLongBlocks on_long_blocks;                  // likewise; for RunsOwner, which may outlive this
  const bool wants_ptx;                               // of machine code: clients send it along
  const std::unique_ptr<DeviceOutput> device_output;  // thread-safe
  Notices notices;                                    // thread-safe
  UsedDevices used_devices;                           // thread-safe
  TimeSlices time_slices;                             // thread-safe
  PeerAccess peers{driver, *devices};
  UploadKernels uploads{driver};                                 // thread-safe
  AddressArena spread_addresses{driver, AddressArena::kOfHome};  // thread-safe
  Trace trace{driver, *devices, clock};                          // thread-safe
  ForeignObjects foreign;                                        // thread-safe
  Collectives collectives;                                       // thread-safe

  // The sticky error, CUDA_SUCCESS while all is well.
  CUresult fault() const { return context_fault->error(); }
  // The first one counts: tells every session and the executor's owner. From any thread.
  void ReportFault(CUresult result, const std::string& what) { context_fault->Report(result, what); }
  // A session's objective asks for a higher throttle level than before, or a lower one (slo_watch.h). From any thread.
  virtual void ReportThrottleLevel() = 0;
};

}  // namespace tally::server
