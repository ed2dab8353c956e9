// Announces high-priority work of this executor on the activity page: busy before a launch, idle with a hold-off once
// everything that was launched is complete. One watcher thread per device in use looks now and then until then.
//
// Each launch puts a mark, or moves the one of its stream: which is the last of a busy period nobody knows beforehand,
// and afterwards its stream may be gone, or be capturing.
//
// Thread-safe. The device's primary context must be current on the threads that call it, as it is on channel threads.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "scheduler/hold_off_rule.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/driver/devices.h"

namespace tally::server {

class HighPriorityAnnouncer {
 public:
  // All outlive this.
  HighPriorityAnnouncer(const DriverTable& driver, Devices& devices, ActivityPage& page, const Clock& clock);
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
    bool stopping = false;        // guarded by mutex, as all below
    bool is_busy = false;         // what the page says
    int num_dispatching = 0;      // between Before and After
    std::vector<Mark> last_work;  // one for each stream with work since the watcher last took them
    scheduler::HoldOffRule hold_off_rule{{}};
    std::thread watcher;
  };

  // False: no thread can be started.
  bool StartWatcher(int index);
  void Watch(int index);

  const DriverTable& driver_;
  Devices& all_devices_;
  ActivityPage& page_;
  const Clock& clock_;
  std::once_flag claimed_;
  bool can_announce_ = false;  // set once, before any Device is used
  std::array<Device, shm::kActivityDevices> devices_;
};

}  // namespace tally::server
