#include "server/executor/issue/launch_runs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/device/variant_abi.h"
#include "scheduler/grid_slices.h"
#include "scheduler/tuning.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/admitted_dispatch.h"
#include "server/executor/issue/driver_arguments.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

namespace {

// The time of a launch that can be gated, with or without its gate, while no queue is stopped.
class GateTiming {
 public:
  GateTiming(const PendingLaunch& launch, bool is_gated, bool is_sample)
      : here_(*launch.here), stream_(launch.stream->real), shape_(launch.shape), is_gated_(is_gated) {
    if (!is_sample) return;
    phase_ = here_.device->gated->OpenPhase();
    if (!phase_) return;
    if (auto timing = here_.device->timer->Begin(stream_)) timing_.emplace(std::move(*timing));
  }
  void End() {
    if (!timing_) return;
    timing_->End(stream_, [profile = here_.profile, shape = shape_, is_gated = is_gated_, queues = here_.device->gated,
                           phase = *phase_](auto duration) {
      if (queues->OpenPhase() == phase) profile->OnGateDuration(shape, is_gated, duration);
    });
  }

 private:
  const KernelOnDevice& here_;
  const CUstream stream_;
  const LaunchShape shape_;
  const bool is_gated_;
  std::optional<uint64_t> phase_;
  std::optional<LaunchTimer::Timing> timing_;
};

// Past the gate.
CUresult CallDriver(PendingLaunch& launch) {
  const auto& [grid, block, shared_bytes] = launch.shape;
  const CUfunction function = launch.kernel->ForLaunch();
  const CUstream stream = launch.stream->real;
  const DriverTable& driver = launch.owner->driver;
  DriverArguments arguments(launch);
  if ((launch.flags & shm::kLaunchEx) != 0) {
    const CUlaunchConfig config = ConfigOf(launch, stream);
    return driver.cuLaunchKernelEx(&config, function, arguments.parameters(), arguments.extra());
  }
  if ((launch.flags & shm::kLaunchCooperative) != 0) {
    return driver.cuLaunchCooperativeKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                            shared_bytes, stream, arguments.parameters());
  }
  return driver.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes, stream,
                               arguments.parameters(), arguments.extra());
}

}  // namespace

scheduler::LaunchAsked AskedOfOriginal(const PendingLaunch& launch) {
  const auto& [grid, block, shared_bytes] = launch.shape;
  return AskedOfKernel(launch, launch.kernel->ForLaunch(), grid, block, shared_bytes);
}

CUresult LaunchOriginal(PendingLaunch& launch, std::optional<Preemptibility> why) {
  if (const CUresult r = launch.stream->Seal(); r != CUDA_SUCCESS) return r;
  const scheduler::LaunchAsked asked = AskedOfOriginal(launch);
  const AdmittedDispatch dispatch(launch, asked);
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  if (!why) return CallDriver(launch);
  const LaunchOwner& owner = *launch.owner;
  const int device = launch.stream->device;
  const PreemptibilityMeter::Timed timed(owner.preemptibility, device, launch.stream->real, asked.kind,
                                         owner.variants->PreemptibilityLeft(device, *why));
  return CallDriver(launch);
}

CUresult LaunchUngated(PendingLaunch& launch, std::chrono::nanoseconds duration, bool is_sample) {
  GateTiming timing(launch, false, is_sample);
  const CUresult result = LaunchRun(launch, false, duration).Run({}, nullptr);
  if (result == CUDA_SUCCESS) timing.End();
  return result;
}

CUresult LaunchGated(PendingLaunch& launch, const GatedFunction& code, uint32_t chunk, bool is_sample) {
  const LaunchOwner& owner = *launch.owner;
  LaunchStream& stream = *launch.stream;
  if (stream.gated == nullptr) {
    stream.gated = launch.here->device->gated->Open(stream.real, owner.runs_owner);
    if (stream.gated == nullptr) return LaunchOriginal(launch);
  }
  const GatedForm form = FormOf(launch, code, chunk);
  const auto& [grid, block, shared_bytes] = launch.shape;
  scheduler::LaunchAsked asked = AskedOfKernel(launch, code.function, grid, block, shared_bytes);
  asked.can_yield = true;
  const AdmittedDispatch dispatch(launch, asked);
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  owner.counters.Add("gated_launches");
  launch.on_turnaround = [profile = launch.here->profile, shape = launch.shape,
                          runs_owner = owner.runs_owner](auto turnaround) {
    if (profile->OnGateTurnaround(shape, turnaround)) runs_owner->NoteLongBlocks(profile->kernel(), turnaround);
  };
  GateTiming timing(launch, true, is_sample);
  launch.shape.grid[0] *= code.finer;  // last: by its own shape everybody else knows it
  const CUresult result = stream.gated->Launch(form, std::move(launch));
  if (result == CUDA_SUCCESS) timing.End();
  return result;
}

CUresult LaunchRun::Run(const LaunchCandidate& candidate, VariantModule* variants) {
  const CUresult result = RunForm(candidate, variants);
  if (timing_ && result == CUDA_SUCCESS) {
    timing_->End(launch_.stream->real, [profile = launch_.here->profile, shape = launch_.shape,
                                        candidate](auto duration) { profile->OnDuration(shape, candidate, duration); });
  }
  return result;
}

CUresult LaunchRun::RunForm(const LaunchCandidate& candidate, VariantModule* variants) {
  switch (candidate.form) {
    case LaunchForm::kSlices:
      return RunSlices(variants->slices(), candidate);
    case LaunchForm::kPersistentBlocks:
      return RunPersistentBlocks(variants->persistent_blocks(), candidate);
    case LaunchForm::kGated:
      return LaunchGated(launch_, *FindGate(launch_, variants, std::chrono::nanoseconds(0)), candidate.degree,
                         is_sample_);
    case LaunchForm::kOriginal:
      break;
  }
  return RunOriginal();
}

void LaunchRun::BeginTiming() {
  if (!is_sample_ || timing_) return;
  if (auto timing = launch_.here->device->timer->Begin(launch_.stream->real)) timing_.emplace(std::move(*timing));
}

CUresult LaunchRun::RunOriginal() {
  if (const CUresult r = launch_.stream->Seal(); r != CUDA_SUCCESS) return r;
  scheduler::LaunchAsked asked = AskedOfOriginal(launch_);
  asked.duration = piece_;
  asked.is_short = scheduler::IsShort(piece_, launch_.owner->variants->ThresholdOf(launch_.turnaround));
  const AdmittedDispatch dispatch(launch_, asked);
  if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
  BeginTiming();
  return CallDriver(launch_);
}

CUresult LaunchRun::RunSlices(const VariantModule::Form& form, const LaunchCandidate& candidate) {
  const LaunchOwner& owner = *launch_.owner;
  LaunchStream& stream = *launch_.stream;
  const LaunchShape& shape = launch_.shape;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  size_t parameter_bytes = form.hidden_offset + sizeof(device::SliceParameters);
  launch_.parameters.Resize(parameter_bytes);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch_.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &parameter_bytes, CU_LAUNCH_PARAM_END};
  const scheduler::GridSlices slices(shape.grid, candidate.degree);
  // One slice of a timed launch is timed by itself, another one each time.
  const uint64_t num_sliced = owner.counters.Add("sliced_launches");
  const uint64_t timed = is_sample_ ? num_sliced * 0x9E3779B1 % slices.count() : slices.count();
  for (uint64_t i = 0; i < slices.count(); ++i) {
    const scheduler::GridBox box = slices[i];
    device::SliceParameters hidden{};
    std::copy(box.first.begin(), box.first.end(), hidden.first_block);
    std::copy(shape.grid.begin(), shape.grid.end(), hidden.grid);
    std::memcpy(launch_.parameters.data() + form.hidden_offset, &hidden, sizeof(hidden));
    scheduler::LaunchAsked asked = AskedOfKernel(launch_, form.function, box.size, shape.block, shape.shared_bytes);
    asked.duration = piece_;
    asked.is_short = true;
    const AdmittedDispatch dispatch(launch_, asked);
    if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
    BeginTiming();
    auto slice_timing = i == timed ? launch_.here->device->timer->Begin(stream.real) : std::nullopt;
    const CUresult result = owner.driver.cuLaunchKernel(
        form.function, box.size[0], box.size[1], box.size[2], shape.block[0], shape.block[1], shape.block[2],
        shape.shared_bytes + form.extra_shared_bytes, stream.real, nullptr, extra);
    if (result != CUDA_SUCCESS) return result;
    if (slice_timing) {
      slice_timing->End(stream.real, [profile = launch_.here->profile, shape, candidate](auto duration) {
        profile->OnSlice(shape, candidate, duration);
      });
    }
  }
  return CUDA_SUCCESS;
}

CUresult LaunchRun::RunPersistentBlocks(const VariantModule::Form& form, const LaunchCandidate& candidate) {
  const LaunchOwner& owner = *launch_.owner;
  LaunchStream& stream = *launch_.stream;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  const auto& [grid, block, shared_bytes] = launch_.shape;
  scheduler::LaunchAsked asked = AskedOfKernel(launch_, form.function, grid, block, candidate.degree);
  asked.num_blocks = candidate.degree;
  asked.can_yield = true;
  {
    const AdmittedDispatch dispatch(launch_, asked);
    if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
    BeginTiming();
    launch_.on_turnaround = [profile = launch_.here->profile, shape = launch_.shape, candidate](auto turnaround) {
      profile->OnTurnaround(shape, candidate, turnaround);
    };
    const PersistentForm persistent_blocks{form.function, candidate.degree, form.hidden_offset,
                                           form.extra_shared_bytes};
    const CUresult result = launch_.here->device->persistent_blocks->Launch(stream.real, persistent_blocks,
                                                                            owner.runs_owner, std::move(launch_));
    if (result == CUDA_SUCCESS) owner.counters.Add("worker_launches");
    if (result != CUDA_ERROR_NOT_READY) return result;
  }
  // Behind so many launches it may as well be one that does not yield.
  timing_.reset();
  is_sample_ = false;
  return RunOriginal();
}

}  // namespace tally::server
