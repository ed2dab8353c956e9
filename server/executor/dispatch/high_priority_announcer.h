// Announces high-priority work of this executor on the activity page: busy before a launch, idle with a hold-off once
// everything that was launched is complete. One watcher thread per device in use looks now and then until then.
//
// Thread-safe. The device's primary context must be current on the threads that call it, as it is on lane threads.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "scheduler/priority_gate.h"
#include "server/executor/dispatch/activity_page.h"

namespace tally::server {

struct DriverTable;

class HighPriorityAnnouncer {
 public:
  // All outlive this.
  HighPriorityAnnouncer(const DriverTable& driver, ActivityPage& page, const Clock& clock);
  ~HighPriorityAnnouncer();
  HighPriorityAnnouncer(const HighPriorityAnnouncer&) = delete;
  HighPriorityAnnouncer& operator=(const HighPriorityAnnouncer&) = delete;

  // `device` is an ordinal. Never waits for the GPU.
  void BeforeDispatch(int device);
  void AfterDispatch(int device, CUstream stream);
  // Of the hold-off, from now on.
  void SetHoldOffBounds(std::chrono::nanoseconds least, std::chrono::nanoseconds most);

 private:
  struct Device {
    std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;                  // guarded by mutex, as all below
    bool is_busy = false;                   // what the page says
    int num_dispatching = 0;                // between Before and After
    std::map<CUstream, CUevent> last_work;  // re-recorded at each launch; streams come and go, addresses are reused
    std::vector<CUevent> pending;           // recorded since the watcher last looked
    scheduler::PriorityGate gate{{}};
    std::thread watcher;
  };

  // False: no thread can be started.
  bool StartWatcher(int index);
  void Watch(int index);

  const DriverTable& driver_;
  ActivityPage& page_;
  const Clock& clock_;
  std::once_flag claimed_;
  bool can_announce_ = false;  // set once, before any Device is used
  std::array<Device, shm::kActivityDevices> devices_;
};

}  // namespace tally::server
