// Where the work of a session waits whose tenant has a cap on its GPU time (scheduler/share_cap.h), whatever the
// policy.
//
// One session's; only best-effort ones have it. Its channels wait here with the session's sequencer held, so a wait
// stalls that session and no other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "scheduler/share_cap.h"
#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/busy_clock.h"
#include "server/executor/dispatch/tenant_page.h"

namespace tally::server {

class ShareGate {
 public:
  // What is on a device may be waiting for the very operation that waits here (a stream waits for a word of memory):
  // after so long it goes, and what it has used by then is paid for.
  static constexpr auto kLongestDrain = std::chrono::milliseconds(200);

  struct Surroundings {
    AdmissionTenant& tenant;               // counts what is held; ends waits when it has left
    BusyTime& busy;                        // of the session
    std::function<void(int device)> look;  // sees which of the session's streams have nothing left to do
    const Clock& clock;                    // that of `busy`
    std::function<void(std::chrono::nanoseconds)> sleep;
  };
  // `surroundings` must outlive it.
  ShareGate(uint32_t share_permille, std::shared_ptr<TenantPage> page, Surroundings surroundings);
  // Nothing of the session is on a GPU any more.
  ~ShareGate();

  // Until an operation may be put on the device. By the holder of the session's sequencer, the context current. False:
  // the client has left, do not put it.
  bool Await(int device);

 private:
  struct Device {
    scheduler::ShareBucket bucket;
    scheduler::ShareBursts bursts;
  };
  scheduler::ShareBursts::Facts FactsOf(int device) const;

  const std::shared_ptr<TenantPage> page_;
  const Surroundings surroundings_;
  std::vector<Device> devices_;
};

}  // namespace tally::server
