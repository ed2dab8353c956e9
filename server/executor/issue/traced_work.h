// One operation on its way to the driver, as a recording sees it (dispatch/trace.h): made before it asks for admission,
// gone once the driver has it.
//
// While nobody traces the session: one load and a branch. By the holder of the sequencer, the context current.
#pragma once

#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/trace.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"

namespace tally::server {

class TracedWork {
 public:
  // What it is: a kernel, or, if that is null, what `name` says.
  struct What {
    const Kernel* kernel = nullptr;
    const char* name = "";
  };

  TracedWork(const LaunchOwner& owner, const LaunchStream& stream, const What& what, bool is_captured)
      : ring_(is_captured ? nullptr : owner.trace.RingOf(stream.device)), owner_(owner), stream_(stream), what_(what) {
    if (ring_ != nullptr) [[unlikely]]
      Begin();
  }
  ~TracedWork() {
    if (ring_ != nullptr) [[unlikely]]
      ring_->End(stream_.real, asked_, clock_);
  }
  TracedWork(const TracedWork&) = delete;
  TracedWork& operator=(const TracedWork&) = delete;

  // Admission has answered. `may_have_waited`: before it did.
  void OnAdmitted(bool may_go, bool may_have_waited) {
    if (ring_ != nullptr) [[unlikely]]
      NoteAdmitted(may_go, may_have_waited);
  }

 private:
  void Begin();
  void NoteAdmitted(bool may_go, bool may_have_waited);

  TraceRing* ring_;  // null: not traced, or not made
  const LaunchOwner& owner_;
  const LaunchStream& stream_;
  const What what_;
  SteadyClock clock_;
  TimePoint asked_;
  bool was_closed_ = false;
};

}  // namespace tally::server
