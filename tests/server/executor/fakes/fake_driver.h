// A CUDA driver in memory, for tests of the executor: enough of it to serve sessions, nothing that computes.
//
// Device memory is malloc'ed, copies and fills happen at once, kernels only count; host functions run on a thread of
// the fake, in order, and everything that waits for a stream waits for them. Every object is counted, so that a test
// can say that nothing leaked. One at a time in a process.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/executor/driver/driver_table.h"
#include "tests/server/executor/fakes/fake_graphs.h"

namespace tally::fakes {

class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const server::DriverTable& table() const { return table_; }

  // Objects alive now, by kind: "stream", "event", "memory", "module", "library", "registration", "pool", and those of
  // graphs().
  std::map<std::string, int> live() const;
  const FakeGraphs& graphs() const { return graphs_; }
  // What happened on real streams: "record s1 e1", "wait s2 e1", "launch s1", "copy s1", in order.
  std::vector<std::string> TakeTrace();
  // Parameter bytes of the last launch, one string per parameter.
  std::vector<std::string> last_parameters() const;
  uint64_t num_launches() const;
  // Every call that waits fails with it from now on; 0: none.
  void BreakContext(CUresult error);

  // Who asks whether work is done hears that it is not. Not who waits for it.
  std::atomic<bool> is_work_unfinished{false};

  // All with one context. Before the executor is made.
  std::atomic<int> num_devices{1};

  // For the table's functions.
  struct Object {
    std::string kind;
    int number = 0;
  };
  template <typename T>
  T Make(const std::string& kind) {
    return reinterpret_cast<T>(MakeObject(kind));
  }
  CUresult Drop(const void* object, const std::string& kind);
  bool IsLive(const void* object, const std::string& kind) const;
  void Trace(const std::string& what, const void* stream, const void* event = nullptr);
  CUresult Allocate(CUdeviceptr* address, size_t size_bytes);
  CUresult Free(CUdeviceptr address);
  void Post(std::function<void()> host_function);
  CUresult Wait();
  CUresult Launch(CUfunction function, void** parameters, void** extra, CUstream stream);
  CUresult Register(void* address);
  CUresult Unregister(void* address);

 private:
  void* MakeObject(const std::string& kind);
  void RunHostFunctions();
  std::string NameOf(const void* object) const;  // mutex_ held

  server::DriverTable table_;
  FakeGraphs graphs_{table_};
  mutable std::mutex mutex_;
  std::map<const void*, Object> objects_;
  std::map<std::string, int> numbers_;
  std::map<CUdeviceptr, size_t> memory_;
  std::set<const void*> registrations_;
  std::vector<std::string> trace_;
  std::vector<std::string> parameters_;
  uint64_t num_launches_ = 0;
  CUresult broken_ = CUDA_SUCCESS;
  std::deque<std::function<void()>> posted_;
  bool running_ = false;
  bool stop_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

// Parameters of every kernel of the fake: {offset, size}.
inline constexpr size_t kFakeParameters[][2] = {{0, 8}, {8, 4}, {16, 8}};

}  // namespace tally::fakes
