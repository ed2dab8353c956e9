#include "server/gpu/gpu_doorbell.h"

#include <chrono>

#include "base/log.h"

namespace tally::server {
namespace {

constexpr std::chrono::milliseconds kLongestWait{2};

}  // namespace

GpuDoorbell::GpuDoorbell(const DriverTable& driver, CUcontext context)
    : driver_(driver), context_(context), thread_([this] { Run(); }) {}

GpuDoorbell::~GpuDoorbell() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GpuDoorbell::Ring() {
  std::unique_lock lock(mutex_);
  const uint32_t mine = ++num_wanted_;
  changed_.notify_all();
  changed_.wait_for(lock, kLongestWait, [&] { return num_rung_ >= mine; });
}

bool GpuDoorbell::Make() {
  void* memory = nullptr;
  driver_.cuCtxSetCurrent(context_);
  if (driver_.cuStreamWriteValue32_v2 == nullptr ||
      driver_.cuMemHostAlloc(&memory, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
      driver_.cuMemHostGetDevicePointer_v2(&word_, memory, 0) != CUDA_SUCCESS ||
      driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    LOG_WARNING("suspended best-effort work may go on late: there is nothing to ring its doorbell with");
    return false;
  }
  return true;
}

// The stream and the memory go with the context.
void GpuDoorbell::Run() {
  const bool can_ring = Make();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || num_rung_ != num_wanted_; });
    if (is_stopping_) return;
    const uint32_t number = num_wanted_;
    lock.unlock();
    // Not an event: of those the driver may know without asking the GPU that there is nothing to do.
    if (can_ring) driver_.cuStreamWriteValue32_v2(stream_, word_, number, CU_STREAM_WRITE_VALUE_DEFAULT);
    lock.lock();
    num_rung_ = number;
    changed_.notify_all();
  }
}

}  // namespace tally::server
