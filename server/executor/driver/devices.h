// The devices of this executor, its one real context on each (the primary context, retained on first use) and what says
// when work there has ended (completion_source.h).
//
// Thread-safe. Descriptions are what clients see: attributes that Tally cannot honour already say "no".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "proto/control/executor_link_abi.h"
#include "proto/shm/records_context_abi.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class Devices {
 public:
  // `on_making_context`: see ExecutorConfig.
  static Result<std::unique_ptr<Devices>> Create(const DriverTable& driver,
                                                 std::function<void(int)> on_making_context = {});
  ~Devices();

  int count() const { return static_cast<int>(devices_.size()); }
  // `ordinal` must be below count().
  CUdevice device(int ordinal) const { return devices_[static_cast<size_t>(ordinal)].handle; }
  // Its compute capability, 90 for 9.0. `ordinal` as above.
  uint32_t Capability(int ordinal) const;
  // The context, retained for as long as this lives. Takes about 0.2 s the first time on a real GPU.
  CUresult Context(int ordinal, CUcontext* context);
  // For tallyd; needs no context.
  control::LinkGpu Outline(int ordinal) const;
  // Zeros: the driver does not say.
  CUuuid Uuid(int ordinal) const;
  // Makes a context current, for what needs one (the stream priorities): that of `like` if it is of the same
  // architecture, so that devices which nobody uses get none. At most 58 devices fit into a reply.
  CUresult Describe(int ordinal, int like, shm::DeviceDescription* description);
  // Whether somebody has asked for it.
  bool HasContext(int ordinal) const {
    const std::lock_guard lock(mutex_);
    return devices_[static_cast<size_t>(ordinal)].context != nullptr;
  }
  // Of work on that device.
  CompletionSource& completions(int ordinal) { return *devices_[static_cast<size_t>(ordinal)].completions; }
  // Releases every context. Nothing may use them any more, and no mark of theirs is left.
  void Release();

 private:
  bool AreAlike(int some, int other) const;

  struct Device {
    CUdevice handle = 0;
    CUcontext context = nullptr;  // guarded by mutex_
    std::unique_ptr<CompletionSource> completions;
  };

  Devices(const DriverTable& driver, std::function<void(int)> on_making_context)
      : driver_(driver), on_making_context_(std::move(on_making_context)) {}

  const DriverTable& driver_;
  const std::function<void(int)> on_making_context_;
  std::vector<Device> devices_;
  mutable std::mutex mutex_;
};

}  // namespace tally::server
