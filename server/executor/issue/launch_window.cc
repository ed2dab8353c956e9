#include "server/executor/issue/launch_window.h"

#include <algorithm>
#include <new>

#include "server/executor/issue/launch_forms.h"
#include "server/executor/issue/launch_hints.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {
namespace {

// Windows between two judgements; launches that then pass unheld, at first and at most.
constexpr uint32_t kWindowsToJudge = 16;
constexpr uint64_t kShortestRest = 1024;
constexpr uint64_t kLongestRest = 1 << 20;
constexpr size_t kNoGain = control::WindowBarrierOf("no-gain");  // those

// In the place of a kernel's address.
constexpr uint64_t kCopies = 1, kFills = 2;

}  // namespace

LaunchWindow::LaunchWindow(bool holds, Means means, FigureCounters& figures, const Clock& clock)
    : holds_(holds),
      means_(std::move(means)),
      figures_(figures),
      clock_(clock),
      launches_(holds ? means_.most_launches : 0),
      parallelism_(clock) {}

std::optional<LaunchWindow::Kind> LaunchWindow::KindOf(const PendingLaunch& launch) {
  if (launch.is_transfer()) return Kind{launch.transfer.is_fill() ? kFills : kCopies, GeometryOf(launch.transfer)};
  const auto& [grid, block, shared_bytes] = launch.shape;
  const auto device = static_cast<uint64_t>(launch.stream->device);
  // What is larger is refused by the driver: in program order.
  const bool fits = block[0] < (1 << 11) && block[1] < (1 << 11) && block[2] < (1 << 11) && shared_bytes < (1 << 24) &&
                    device < (1 << 7);
  if (!fits || launch.shape.num_blocks() == 0 || launch.num_threads() == 0) return std::nullopt;
  const uint64_t geometry =
      block[0] | uint64_t{block[1]} << 11 | uint64_t{block[2]} << 22 | uint64_t{shared_bytes} << 33 | device << 57;
  return Kind{reinterpret_cast<uintptr_t>(launch.kernel), geometry};
}

const char* LaunchWindow::BarrierOf(const PendingLaunch& launch) {
  // Graphs do not know of declarations: the program is told by a name of its own.
  const bool is_declared = (launch.flags & (shm::kLaunchDeclared | shm::kLaunchOpaque)) != 0;
  if (launch.is_captured) return is_declared ? "declared-capture" : "capture";
  const LaunchOwner& owner = *launch.owner;
  // Who may have to be stopped block by block is: a graph cannot be.
  const bool may_be_stopped =
      IsOfInterest(owner, launch.is_captured) && owner.variants->MightStop(launch.stream->device);
  if (may_be_stopped) return "preemptible";
  if (launch.is_transfer()) return nullptr;
  if ((launch.flags & shm::kLaunchCooperative) != 0) return "cooperative";
  if (!AreHints(launch.attributes) || (launch.flags & shm::kLaunchExtra) != 0) return "attributes";
  return nullptr;
}

CUresult LaunchWindow::Pass(const char* barrier) {
  if (barrier != last_barrier_) {
    last_barrier_ = barrier;
    last_barrier_place_ = control::WindowBarrierOf(barrier);
  }
  figures_.Add("window_barriers", 1, last_barrier_place_);
  if (!holds_) {
    parallelism_.Add({}, scheduler::Extent::kAnything);
    return CUDA_SUCCESS;
  }
  return Issue(WindowEnd::kRequest);
}

bool LaunchWindow::Take(PendingLaunch& launch, CUresult* failure) {
  *failure = CUDA_SUCCESS;
  if (num_passing_ > 0) {
    --num_passing_;
    figures_.Add("window_barriers", 1, kNoGain);
    return false;
  }
  const auto kind = KindOf(launch);
  const char* barrier = kind ? BarrierOf(launch) : "attributes";
  const LaunchAccesses* accesses = barrier == nullptr ? &means_.accesses_of(launch) : nullptr;
  if (accesses != nullptr) barrier = accesses->barrier;
  if (barrier != nullptr) {
    *failure = Pass(barrier);
    return false;
  }
  figures_.Add("window_classes", 1,
               accesses->accesses.empty() ? control::kWindowClassNone : static_cast<size_t>(accesses->widest));
  if (!holds_) {
    parallelism_.Add(accesses->accesses, accesses->extent);
    return false;
  }
  *failure = MakeRoom(*kind);
  if (num_passing_ > 0) return false;  // it has just turned out that holding does not pay
  Hold(launch, *kind, *accesses);
  return true;
}

CUresult LaunchWindow::MakeRoom(const Kind& kind) {
  const size_t held = num_held_.load(std::memory_order_relaxed);
  if (held == means_.most_launches) return Issue(WindowEnd::kFull);
  if (held >= kShortestStep && kind == step_begins_) return Issue(WindowEnd::kStep);
  return CUDA_SUCCESS;
}

void LaunchWindow::Hold(PendingLaunch& launch, const Kind& kind, const LaunchAccesses& accesses) {
  const size_t held = num_held_.load(std::memory_order_relaxed);
  if (held == 0) {
    if (std::exchange(begins_step_, false)) step_begins_ = kind;
    device_ = launch.stream->device;
    was_idle_ = means_.is_idle();
    held_since_ = clock_.Now();
  }
  // Never full here, and the window and the shape begin together.
  if (launch.is_transfer()) figures_.Add("window_transfers");
  const auto admission = window_.Admit(accesses.name, accesses.accesses, accesses.extent);
  shape_.Add(*admission, kind.kernel, kind.geometry);
  launches_[held] = std::move(launch);
  num_held_.store(held + 1, std::memory_order_relaxed);
  figures_.Add("window_held");
}

CUresult LaunchWindow::Issue(WindowEnd why) {
  // A step begins behind what a program waits for, not where its thread happened to be slow.
  if (why == WindowEnd::kRequest) begins_step_ = true;
  if (!holds_) {
    if (why == WindowEnd::kRequest) CloseShadow();
    return CUDA_SUCCESS;
  }
  const size_t held = num_held_.load(std::memory_order_relaxed);
  if (held == 0) return CUDA_SUCCESS;
  const TimePoint now = clock_.Now();
  Batch batch = {.why = why,
                 .num_launches = held,
                 .held_for = IdleFor(now),
                 .period = now - std::exchange(issued_at_, now),
                 .durations = {}};
  figures_.Add("window_batches", 1, static_cast<size_t>(why));
  figures_.Add("window_work", held);
  figures_.Add("window_chain", shape_.num_levels());
  figures_.Add("window_compared", held);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    result = means_.issue(shape_, std::span(launches_).first(held), &batch.durations);
  } catch (const std::bad_alloc&) {  // some have been issued by then: none may be a second time
  }
  window_.Clear();
  shape_.Clear();
  num_held_.store(0, std::memory_order_relaxed);
  lasts_ = batch.durations.as_issued;
  Judge(batch);
  return result;
}

std::chrono::nanoseconds LaunchWindow::IdleFor(TimePoint now) const {
  if (was_idle_) return now - held_since_;
  // It was busy when the first launch came. If it is not now, it has waited since the batch before was done.
  if (lasts_ == lasts_.zero() || now - issued_at_ <= lasts_ || !means_.is_idle()) return {};
  return now - std::max(held_since_, issued_at_ + lasts_);
}

void LaunchWindow::CloseShadow() {
  parallelism_.Close();
  const auto report = parallelism_.report();
  if (report.launches == reported_.launches) return;
  figures_.Add("window_work", report.launches - reported_.launches);
  figures_.Add("window_compared", report.compared - reported_.compared);
  figures_.Add("window_chain", report.longest_chain - reported_.longest_chain);
  figures_.Add("window_chain_read_after_write",
               report.longest_chain_read_after_write - reported_.longest_chain_read_after_write);
  reported_ = report;
}

void LaunchWindow::Judge(const Batch& batch) {
  const auto& [why, num_launches, held_for, period, durations] = batch;
  const bool is_known =
      durations.in_order > durations.in_order.zero() && durations.as_issued > durations.as_issued.zero();
  if (is_known) {
    // With the GPU idle, kernels would have run while the program was still launching; now they all come behind.
    if_not_held_ += std::max(durations.in_order, held_for);
    if_held_ += held_for + durations.as_issued;
  } else if (held_for > held_for.zero() && (why == WindowEnd::kIdle || num_launches == 1 || held_for > period / 2)) {
    // Nothing came that it could have been put beside; or the GPU mostly waits for launches of which nobody knows yet
    // whether a graph is any better.
    if_held_ += held_for;
  } else {
    return;
  }
  if (++num_judged_ < kWindowsToJudge) return;
  if (if_held_ > if_not_held_) {
    rest_ = std::clamp(rest_ * 2, kShortestRest, kLongestRest);
    num_passing_ = rest_;
  } else {
    rest_ = 0;
  }
  if_held_ = if_not_held_ = std::chrono::nanoseconds(0);
  num_judged_ = 0;
}

}  // namespace tally::server
