#include "server/executor/session/launch_runs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/device/variant_abi.h"
#include "scheduler/grid_slices.h"
#include "scheduler/tuning.h"
#include "server/executor/session/gated_dispatch.h"

namespace tally::server {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

namespace {

// The time of a launch that can be gated, with or without its gate, while no queue is stopped.
class GateTiming {
 public:
  GateTiming(const VaryingLaunch& launch, bool is_gated, bool is_sample) : launch_(launch), is_gated_(is_gated) {
    if (!is_sample) return;
    phase_ = launch.device.gated->OpenPhase();
    if (!phase_) return;
    if (auto timing = launch.device.timer->Begin(launch.stream.real)) timing_.emplace(std::move(*timing));
  }
  void End() {
    if (!timing_) return;
    timing_->End(launch_.stream.real, [profile = launch_.kernel.profile, shape = launch_.shape, is_gated = is_gated_,
                                       queues = launch_.device.gated, phase = *phase_](auto duration) {
      if (queues->OpenPhase() == phase) profile->OnGateDuration(shape, is_gated, duration);
    });
  }

 private:
  const VaryingLaunch& launch_;
  const bool is_gated_;
  std::optional<uint64_t> phase_;
  std::optional<LaunchTimer::Timing> timing_;
};

// Past the gate.
CUresult CallDriver(ServedRequest& served, Stream& stream, LaunchParameters& request) {
  const shm::Launch& launch = request.launch();
  const CUfunction function = request.kernel().ForLaunch();
  const DriverTable& driver = served.driver();
  if ((launch.flags & shm::kLaunchEx) != 0) {
    const CUlaunchConfig config = request.Config(stream.real);
    return driver.cuLaunchKernelEx(&config, function, request.parameters(), request.extra());
  }
  if ((launch.flags & shm::kLaunchCooperative) != 0) {
    return driver.cuLaunchCooperativeKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                            launch.block[1], launch.block[2], launch.shared_bytes, stream.real,
                                            request.parameters());
  }
  return driver.cuLaunchKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                               launch.block[1], launch.block[2], launch.shared_bytes, stream.real, request.parameters(),
                               request.extra());
}

}  // namespace

LaunchKind KindOfOriginal(LaunchParameters& request) {
  const shm::Launch& launch = request.launch();
  return KindOfKernel(request.kernel().ForLaunch(), launch.grid, launch.block, launch.shared_bytes);
}

CUresult LaunchOriginal(ServedRequest& served, Stream& stream, LaunchParameters& request, std::optional<Coverage> why) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  const LaunchKind kind = KindOfOriginal(request);
  const GatedDispatch dispatch(served, stream, kind);
  if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
  if (!why) return CallDriver(served, stream, request);
  const int device = stream.context->device();
  const CoverageMeter::Timed timed(served.session().coverage, device, stream.real, kind.key,
                                   served.session().core.variants->CoverageLeft(device, *why));
  return CallDriver(served, stream, request);
}

CUresult LaunchUngated(const VaryingLaunch& launch, std::chrono::nanoseconds duration, bool is_sample) {
  GateTiming timing(launch, false, is_sample);
  const CUresult result = LaunchRun(launch, false, duration).Run({}, nullptr);
  if (result == CUDA_SUCCESS) timing.End();
  return result;
}

CUresult LaunchGated(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk, bool is_sample) {
  ServedRequest& served = launch.served;
  Stream& stream = launch.stream;
  const LaunchShape& shape = launch.shape;
  if (stream.gated == nullptr) {
    stream.gated = launch.device.gated->Open(stream.real, served.session().worker_owner);
    if (stream.gated == nullptr) return LaunchOriginal(served, stream, launch.request);
  }
  GatedLaunch gated = MakeGatedLaunch(launch, code, chunk);
  gated.on_turnaround = [profile = launch.kernel.profile, shape](auto turnaround) {
    profile->OnGateTurnaround(shape, turnaround);
  };
  const GatedDispatch dispatch(served, stream, KindOfKernel(code.function, shape.grid, shape.block, shape.shared_bytes),
                               HowItEnds::kWhenAsked);
  if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
  served.session().counters.Add("gated_launches");
  GateTiming timing(launch, true, is_sample);
  const CUresult result = stream.gated->Launch(std::move(gated));
  if (result == CUDA_SUCCESS) timing.End();
  return result;
}

CUresult LaunchRun::Run(const LaunchCandidate& candidate, VariantModule* variants) {
  const CUresult result = RunForm(candidate, variants);
  if (timing_ && result == CUDA_SUCCESS) {
    timing_->End(launch_.stream.real, [profile = launch_.kernel.profile, shape = launch_.shape,
                                       candidate](auto duration) { profile->OnDuration(shape, candidate, duration); });
  }
  return result;
}

CUresult LaunchRun::RunForm(const LaunchCandidate& candidate, VariantModule* variants) {
  switch (candidate.form) {
    case LaunchForm::kSlices:
      return RunSlices(variants->slices(), candidate);
    case LaunchForm::kWorkers:
      return RunWorkers(variants->workers(), candidate);
    case LaunchForm::kGated:
      return LaunchGated(launch_, *FindGate(launch_, variants), candidate.degree, is_sample_);
    case LaunchForm::kOriginal:
      break;
  }
  return RunOriginal();
}

void LaunchRun::BeginTiming() {
  if (!is_sample_ || timing_) return;
  if (auto timing = launch_.device.timer->Begin(launch_.stream.real)) timing_.emplace(std::move(*timing));
}

CUresult LaunchRun::RunOriginal() {
  ServedRequest& served = launch_.served;
  Stream& stream = launch_.stream;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  LaunchKind kind = KindOfOriginal(launch_.request);
  kind.first_guess = piece_;
  const bool is_short = scheduler::IsShort(piece_, launch_.threshold());
  const GatedDispatch dispatch(served, stream, kind, is_short ? HowItEnds::kSoon : HowItEnds::kAtItsEnd);
  if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
  BeginTiming();
  return CallDriver(served, stream, launch_.request);
}

CUresult LaunchRun::RunSlices(const VariantModule::Form& form, const LaunchCandidate& candidate) {
  ServedRequest& served = launch_.served;
  Stream& stream = launch_.stream;
  const LaunchShape& shape = launch_.shape;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  std::vector<std::byte> parameters = launch_.Parameters(form.hidden_offset, sizeof(device::SliceParameters));
  size_t parameter_bytes = parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &parameter_bytes,
                   CU_LAUNCH_PARAM_END};
  const scheduler::GridSlices slices(shape.grid, candidate.degree);
  // One slice of a timed launch is timed by itself, another one each time.
  const uint64_t num_sliced = served.session().counters.Add("sliced_launches");
  const uint64_t timed = is_sample_ ? num_sliced * 0x9E3779B1 % slices.count() : slices.count();
  for (uint64_t i = 0; i < slices.count(); ++i) {
    const scheduler::GridBox box = slices[i];
    device::SliceParameters hidden{};
    std::copy(box.first.begin(), box.first.end(), hidden.first_block);
    std::copy(shape.grid.begin(), shape.grid.end(), hidden.grid);
    std::memcpy(parameters.data() + form.hidden_offset, &hidden, sizeof(hidden));
    LaunchKind kind = KindOfKernel(form.function, box.size, shape.block, shape.shared_bytes);
    kind.first_guess = piece_;
    const GatedDispatch dispatch(served, stream, kind, HowItEnds::kSoon);
    if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
    BeginTiming();
    auto slice_timing = i == timed ? launch_.device.timer->Begin(stream.real) : std::nullopt;
    const CUresult result = served.driver().cuLaunchKernel(
        form.function, box.size[0], box.size[1], box.size[2], shape.block[0], shape.block[1], shape.block[2],
        shape.shared_bytes + form.extra_shared_bytes, stream.real, nullptr, extra);
    if (result != CUDA_SUCCESS) return result;
    if (slice_timing) {
      slice_timing->End(stream.real, [profile = launch_.kernel.profile, shape, candidate](auto duration) {
        profile->OnSlice(shape, candidate, duration);
      });
    }
  }
  return CUDA_SUCCESS;
}

CUresult LaunchRun::RunWorkers(const VariantModule::Form& form, const LaunchCandidate& candidate) {
  ServedRequest& served = launch_.served;
  Stream& stream = launch_.stream;
  const LaunchShape& shape = launch_.shape;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  WorkerLaunch workers;
  workers.function = form.function;
  workers.num_workers = candidate.degree;
  workers.grid = shape.grid;
  workers.block = shape.block;
  workers.shared_bytes = shape.shared_bytes + form.extra_shared_bytes;
  workers.parameters = launch_.Parameters(form.hidden_offset, sizeof(device::WorkerParameters));
  workers.hidden_offset = form.hidden_offset;
  workers.owner = served.session().worker_owner;
  workers.on_turnaround = [profile = launch_.kernel.profile, shape, candidate](auto turnaround) {
    profile->OnTurnaround(shape, candidate, turnaround);
  };
  LaunchKind kind = KindOfKernel(form.function, shape.grid, shape.block, candidate.degree);
  kind.num_blocks = candidate.degree;
  {
    const GatedDispatch dispatch(served, stream, kind, HowItEnds::kWhenAsked);
    if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
    BeginTiming();
    const CUresult result = launch_.device.workers->Launch(stream.real, std::move(workers));
    if (result == CUDA_SUCCESS) served.session().counters.Add("worker_launches");
    if (result != CUDA_ERROR_NOT_READY) return result;
  }
  // Behind so many launches it may as well be one that does not yield.
  timing_.reset();
  is_sample_ = false;
  return RunOriginal();
}

}  // namespace tally::server
