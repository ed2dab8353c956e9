// A GPU for tests of what waits for launches: events of a stream complete in their order, when the test says so.
//
// One at a time: the driver's functions take no state of ours. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class ScriptedGpu {
 public:
  static DriverTable Table() {
    DriverTable table{};
    table.cuCtxGetCurrent = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    table.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    table.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
    table.cuDeviceGetCount = [](int* count) { return *count = kDevices, CUDA_SUCCESS; };
    table.cuDeviceGet = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
    table.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      return *value = kMultiprocessors, CUDA_SUCCESS;
    };
    table.cuEventCreate = [](CUevent* event, unsigned) {
      const std::lock_guard lock(mutex);
      return *event = reinterpret_cast<CUevent>(++num_events), CUDA_SUCCESS;
    };
    table.cuEventDestroy_v2 = [](CUevent) {
      const std::lock_guard lock(mutex);
      return ++num_destroyed, CUDA_SUCCESS;
    };
    table.cuEventRecord = [](CUevent event, CUstream stream) {
      const std::lock_guard lock(mutex);
      if (error != CUDA_SUCCESS) return error;
      places[event] = {stream, ++num_recorded[stream]};
      ++num_records;
      return CUDA_SUCCESS;
    };
    table.cuEventSynchronize = [](CUevent event) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return IsDone(event); });
      return CUDA_SUCCESS;
    };
    table.cuEventQuery = [](CUevent event) {
      const std::lock_guard lock(mutex);
      ++num_queries;
      if (error != CUDA_SUCCESS) return error;
      return IsDone(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    table.cuEventElapsedTime = [](float* milliseconds, CUevent begin, CUevent end) {
      const std::lock_guard lock(mutex);
      if (error != CUDA_SUCCESS) return error;
      if (!IsDone(begin) || !IsDone(end)) return CUDA_ERROR_NOT_READY;
      return *milliseconds = duration_ms, CUDA_SUCCESS;
    };
    return table;
  }

  static constexpr int kMultiprocessors = 100;
  static constexpr int kDevices = 2;

  static void Reset() {
    const std::lock_guard lock(mutex);
    is_stopped = false;
    error = CUDA_SUCCESS;
    duration_ms = 0.05f;
    num_queries = 0;
    num_records = 0;
    num_destroyed = 0;
    places.clear();
    num_recorded.clear();
    num_done.clear();
  }
  // From now on nothing completes / everything does.
  static void Stop() {
    const std::lock_guard lock(mutex);
    if (is_stopped) return;
    is_stopped = true;
    num_done = num_recorded;
  }
  static void Go() {
    const std::lock_guard lock(mutex);
    is_stopped = false;
    changed.notify_all();
  }
  // The next of what has not ended on that stream does.
  static void EndOne(CUstream stream) {
    const std::lock_guard lock(mutex);
    ++num_done[stream];
  }
  // The context is lost.
  static void Fail(CUresult with) {
    const std::lock_guard lock(mutex);
    error = with;
  }
  static void SetDuration(float milliseconds) {
    const std::lock_guard lock(mutex);
    duration_ms = milliseconds;
  }
  static uint64_t NumQueries() {
    const std::lock_guard lock(mutex);
    return num_queries;
  }
  // How far a count of launches gets: `most`, or where it stays while the GPU is asked so often that the next launch is
  // kept, not slow.
  static int AwaitKept(const std::atomic<int>& count, int most) {
    int last = -1;
    for (uint64_t queries_then = 0; last != count && last != most;) {
      last = count;
      queries_then = NumQueries();
      while (last == count && last != most && NumQueries() < queries_then + 100)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return last;
  }
  // Ever made / destroyed since Reset.
  static uint64_t NumEvents() {
    const std::lock_guard lock(mutex);
    return num_events;
  }
  static uint64_t NumDestroyed() {
    const std::lock_guard lock(mutex);
    return num_destroyed;
  }
  static uint64_t NumRecorded() {
    const std::lock_guard lock(mutex);
    return num_records;
  }

 private:
  struct Place {
    CUstream stream = nullptr;
    uint64_t number = 0;
  };
  static bool IsDone(CUevent event) {
    const Place place = places[event];
    return !is_stopped || place.number <= num_done[place.stream];
  }
  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool is_stopped = false;
  static inline CUresult error = CUDA_SUCCESS;
  static inline float duration_ms = 0.05f;
  static inline uint64_t num_queries = 0;
  static inline uint64_t num_records = 0;
  static inline uint64_t num_destroyed = 0;
  static inline uintptr_t num_events = 0;
  static inline std::map<CUevent, Place> places;
  static inline std::map<CUstream, uint64_t> num_recorded;
  static inline std::map<CUstream, uint64_t> num_done;
};

}  // namespace tally::server
