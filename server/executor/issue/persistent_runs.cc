#include "server/executor/issue/persistent_runs.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "base/thread.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kLook = milliseconds(10);               // how often at least it looks what is complete
constexpr auto kLookInterrupted = microseconds(50);    // the same while a launch may have stopped half-way
constexpr auto kLongestTurnaround = milliseconds(20);  // then it counts as that and is no longer waited for

}  // namespace

void RunsOwner::NoteLongBlocks(const std::string& kernel, std::chrono::nanoseconds left) {
  if (name.empty() || has_long_blocks.exchange(true)) return;
  LOG_WARNING(
      "{}: blocks of kernel {:.200} ran on for {:.1f} ms when a service wanted the GPU, and no gate ends them; in a "
      "context of its own (tally-run --domain NAME) the program would make it wait for 0.2 ms",
      name, kernel, std::chrono::duration<double, std::milli>(left).count());
  figures.Set("has_long_blocks", 1);
  if (on_long_blocks) on_long_blocks(kernel, left);
}

std::unique_ptr<PersistentRuns> PersistentRuns::Create(const DriverTable& driver, CompletionSource& completions,
                                                       CUcontext context, int device, HighPriorityWatch* watch,
                                                       std::function<void(CUresult)> on_failure, const Clock& clock,
                                                       bool may_spin) {
  std::unique_ptr<PersistentRuns> runs(
      new PersistentRuns(driver, completions, context, device, watch, std::move(on_failure), clock, may_spin));
  if (const CUresult result = runs->Open(); result != CUDA_SUCCESS) {
    LOG_WARNING("device {}: kernels cannot be asked to yield ({})", device, CudaErrorName(driver, result));
    return nullptr;
  }
  return runs;
}

CUresult PersistentRuns::Open() {
  if (driver_.cuStreamWaitValue32_v2 == nullptr || driver_.cuStreamWriteValue32_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  int lowest = 0, highest = 0;
  driver_.cuCtxGetStreamPriorityRange(&lowest, &highest);
  CUresult result = driver_.cuStreamCreateWithPriority(&signal_, CU_STREAM_NON_BLOCKING, highest);
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&resume_, CU_STREAM_NON_BLOCKING, lowest);
  if (result == CUDA_SUCCESS) result = slots_.Open();
  if (result == CUDA_SUCCESS) result = driver_.cuMemAlloc_v2(&flag_, 2 * sizeof(uint32_t));
  if (result == CUDA_SUCCESS) result = driver_.cuMemsetD32Async(flag_, 0, 2, signal_);
  if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize(signal_);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuMemHostAlloc(&read_back_, sizeof(device::PersistentControl), CU_MEMHOSTALLOC_PORTABLE);
  }
  if (result != CUDA_SUCCESS) return result;
  auto thread = StartThread("persistent-runs", [this] {
    driver_.cuCtxSetCurrent(context_);
    Watch();
  });
  if (!thread) return CUDA_ERROR_OUT_OF_MEMORY;
  thread_ = std::move(*thread);
  return CUDA_SUCCESS;
}

PersistentRuns::~PersistentRuns() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  driver_.cuCtxSetCurrent(context_);
  if (read_back_ != nullptr) driver_.cuMemFreeHost(read_back_);
  if (flag_ != 0) driver_.cuMemFree_v2(flag_);
  for (CUstream stream : {signal_, resume_}) {
    if (stream != nullptr) driver_.cuStreamDestroy_v2(stream);
  }
}

CUresult PersistentRuns::Run(InFlight& run, CUstream stream, CUdeviceptr flag) {
  device::PersistentParameters hidden{};
  hidden.control = run.control;
  hidden.yield_flag = flag;
  std::memcpy(hidden.grid, run.launch.shape.grid.data(), sizeof(hidden.grid));
  std::memcpy(run.launch.parameters.data() + run.form.hidden_offset, &hidden, sizeof(hidden));
  size_t size_bytes = run.form.hidden_offset + sizeof(hidden);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, run.launch.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size_bytes, CU_LAUNCH_PARAM_END};
  const auto& block = run.launch.shape.block;
  return driver_.cuLaunchKernel(run.form.function, run.form.num_persistent_blocks, 1, 1, block[0], block[1], block[2],
                                run.launch.shape.shared_bytes + run.form.extra_shared_bytes, stream, nullptr, extra);
}

CUresult PersistentRuns::Launch(CUstream stream, const PersistentForm& form, std::shared_ptr<RunsOwner> owner,
                                PendingLaunch&& launch) {
  std::list<InFlight> runs(1);
  InFlight& run = runs.front();
  run.form = form;
  run.owner = std::move(owner);
  if (const CUresult r = completions_.Prepare(&run.run_ended); r != CUDA_SUCCESS) return r;
  {
    const std::lock_guard lock(mutex_);
    if (const CUresult r = slots_.Take(signal_, &run.control); r != CUDA_SUCCESS) return r;
    // Before the launch: should the flag change meanwhile, the run counts as one that may have seen it.
    run.phase = phase_;
  }
  run.launch = std::move(launch);
  run.launch.parameters.Resize(form.hidden_offset + sizeof(device::PersistentParameters));
  CUresult result = Run(run, stream, flag_);
  if (result != CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    slots_.Return(run.control);
    return result;
  }
  // From here on the kernel runs: what fails now fails because the context is lost.
  result = completions_.Put(stream, &run.run_ended);
  if (result == CUDA_SUCCESS) {
    const auto total = static_cast<cuuint32_t>(run.launch.shape.num_blocks());
    result = driver_.cuStreamWaitValue32_v2(stream, run.control + offsetof(device::PersistentControl, completed_blocks),
                                            total, CU_STREAM_WAIT_VALUE_GEQ);
  }
  if (result != CUDA_SUCCESS) return result;
  watch_.OnLaunch();
  const std::lock_guard lock(mutex_);
  ++counts_.num_launches;
  in_flight_.splice(in_flight_.end(), runs);
  if (in_flight_.size() == 1) changed_.notify_all();
  return CUDA_SUCCESS;
}

void PersistentRuns::BeginContextCall(bool is_urgent) {
  std::unique_lock lock(mutex_);
  if (is_urgent) ++num_context_calls_;
  while (is_any_interrupted_) {
    lock.unlock();
    std::this_thread::sleep_for(kLookInterrupted);
    lock.lock();
  }
  if (!is_urgent) ++num_context_calls_;
}

void PersistentRuns::EndContextCall() {
  const std::lock_guard lock(mutex_);
  --num_context_calls_;
}

void PersistentRuns::AwaitFunction(CUfunction function) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    for (const InFlight& run : in_flight_) {
      if (run.form.function == function) return false;
    }
    return true;
  });
}

PersistentRunCounts PersistentRuns::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

CUresult PersistentRuns::ReadControl(const InFlight& run, device::PersistentControl* control) {
  if (const CUresult r = driver_.cuMemcpyDtoHAsync_v2(read_back_, run.control, sizeof(*control), signal_);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r = driver_.cuStreamSynchronize(signal_); r != CUDA_SUCCESS) return r;
  std::memcpy(control, read_back_, sizeof(*control));
  return CUDA_SUCCESS;
}

void PersistentRuns::RetireLocked(std::list<InFlight>::iterator run) {
  slots_.Return(run->control);
  in_flight_.erase(run);
  changed_.notify_all();
}

bool PersistentRuns::Sweep(bool may_resume) {
  const std::lock_guard lock(mutex_);
  bool is_any_open = false;
  Look look;
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    const auto run = at++;
    const bool may_have_yielded = run->phase != phase_ || IsFlagUp();
    if (!look.HasEnded(run->run_ended)) {
      is_any_open = is_any_open || may_have_yielded;
      continue;
    }
    if (!may_have_yielded) {
      RetireLocked(run);
      continue;
    }
    device::PersistentControl control{};
    CUresult result = ReadControl(*run, &control);
    if (result == CUDA_SUCCESS && control.completed_blocks >= run->launch.shape.num_blocks()) {
      RetireLocked(run);
      continue;
    }
    const RunsOwner* owner = run->owner.get();
    const bool runs_through = owner != nullptr && owner->is_high_priority.load(std::memory_order_relaxed);
    const bool has_left = owner != nullptr && owner->has_left.load(std::memory_order_relaxed);
    if (result == CUDA_SUCCESS && !may_resume && !runs_through && !has_left) {
      is_any_open = true;
      continue;
    }
    if (result == CUDA_SUCCESS) result = has_left ? GiveUp(*run) : Resume(*run, runs_through);
    is_any_open = is_any_open || has_left;  // seen as complete the next time: its stream has then seen it, too
    if (result == CUDA_SUCCESS) continue;
    RetireLocked(run);
    on_failure_(result);
  }
  return is_any_open;
}

CUresult PersistentRuns::Resume(InFlight& run, bool runs_through) {
  run.phase = phase_;
  watch_.OnLaunch();
  ++counts_.num_resumes;
  if (run.owner != nullptr) run.owner->figures.Add("yields");
  const CUresult result = Run(run, resume_, runs_through ? flag_ + sizeof(uint32_t) : flag_);
  return result == CUDA_SUCCESS ? completions_.Put(resume_, &run.run_ended) : result;
}

CUresult PersistentRuns::GiveUp(const InFlight& run) {
  const CUdeviceptr completed = run.control + offsetof(device::PersistentControl, completed_blocks);
  const CUresult result =
      driver_.cuMemsetD32Async(completed, static_cast<unsigned>(run.launch.shape.num_blocks()), 1, signal_);
  return result == CUDA_SUCCESS ? driver_.cuStreamSynchronize(signal_) : result;
}

void PersistentRuns::Yield(TimePoint looked_at) {
  const TimePoint seen_at = clock_.Now();
  // One store in the order of the stream `signal_`, which needs no multiprocessor, and nobody waits for it here.
  // Without the mutex: a launch that comes in between has the old phase, so it counts as one that may have seen the
  // flag.
  driver_.cuStreamWriteValue32_v2(signal_, flag_, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  const TimePoint written_at = clock_.Now();
  const InFlight* running = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ++phase_;
    ++counts_.num_yields;
    // The oldest that has not ended is the one that runs, as a rule: those behind it in its stream wait for it.
    for (const InFlight& run : in_flight_) {
      if (run.run_ended.HasEnded()) continue;
      running = &run;
      break;
    }
  }
  if (running == nullptr) return;
  // Only this thread retires launches: it stays where it is.
  while (!running->run_ended.HasEnded() && clock_.Now() - written_at < kLongestTurnaround) {
    std::this_thread::yield();
  }
  const TimePoint left_at = clock_.Now();
  device::PersistentControl control{};
  {
    const std::lock_guard lock(mutex_);
    if (ReadControl(*running, &control) != CUDA_SUCCESS) return;
  }
  // One that had not begun says nothing about how long it takes to stop.
  if (control.next_block == 0) return;
  // What was announced before there was anything in flight to look for was not seen late.
  const TimePoint announced_at = std::clamp(watch_.ClosedSince(), std::min(looked_at, seen_at), seen_at);
  if (running->launch.on_turnaround) running->launch.on_turnaround(left_at - announced_at);
  if (running->owner == nullptr) return;
  running->owner->CountYield(seen_at - announced_at, written_at - seen_at, left_at - written_at);
}

void PersistentRuns::LowerFlag() {
  // What is launched from now on must not see it up any more.
  driver_.cuStreamWriteValue32_v2(signal_, flag_, 0, CU_STREAM_WRITE_VALUE_DEFAULT);
  driver_.cuStreamSynchronize(signal_);
  const std::lock_guard lock(mutex_);
  ++phase_;
}

void PersistentRuns::Watch() {
  bool is_flag_up = false;
  TimePoint looked_at{};  // when there was no high-priority work, and a launch that it could have asked to yield
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!is_flag_up && in_flight_.empty()) {
        changed_.wait(lock, [&] { return is_stopping_ || !in_flight_.empty(); });
        looked_at = clock_.Now();
      }
      if (is_stopping_ && in_flight_.empty()) return;
    }
    bool is_closed = watch_.IsClosed();
    if (is_closed) {
      const std::lock_guard lock(mutex_);
      is_closed = num_context_calls_ == 0;
      is_any_interrupted_ = is_any_interrupted_ || is_closed;
    }
    if (is_closed && !is_flag_up) {
      Yield(looked_at);
      is_flag_up = true;
    } else if (!is_closed && is_flag_up) {
      LowerFlag();
      is_flag_up = false;
    }
    if (!is_closed) looked_at = clock_.Now();
    const bool is_any_open = Sweep(!is_flag_up);
    if (!is_flag_up && !is_any_open) {
      const std::lock_guard lock(mutex_);
      is_any_interrupted_ = false;
    }
    if (is_flag_up) {
      watch_.WaitWhileClosed(kLook);
    } else {
      watch_.WaitWhileOpen(is_any_open ? kLookInterrupted : kLook);
    }
  }
}

}  // namespace tally::server
