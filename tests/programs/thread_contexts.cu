// Threads and contexts: six threads with a context each that they made, pushed and popped around the primary one; work
// queued in a context by a thread that has ended is waited for by another; and 256 threads at once on the primary
// context.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/programs/check.h"
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr int kContexts = 6, kCount = 500, kMany = 256;

void Reference(Results& results) {
  for (int t = 0; t < kContexts; ++t) {
    std::vector<uint32_t> values(kCount);
    for (uint32_t i = 0; i < kCount; ++i) values[i] = (i + t) * 3 + t;
    results.Add("own context", values);
    results.Add("nesting", std::vector<int>{1, 1, 1, 1, 1});
  }
  std::vector<uint32_t> values(kMany);
  for (uint32_t t = 0; t < kMany; ++t) values[t] = 7 * t + 1;
  results.Add("many threads", values);
  results.AddValue<uint32_t>("sum of many threads", 10 * kMany);
}

const char kSource[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry affine(.param .u64 values, .param .u32 count, .param .u32 constant) {
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r2, [count];
  setp.ge.u32 %p, %r1, %r2;
  @%p bra done;
  ld.param.u64 %d1, [values];
  ld.param.u32 %r3, [constant];
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d1, %d1, %d2;
  ld.global.u32 %r4, [%d1];
  mul.lo.u32 %r4, %r4, 3;
  add.u32 %r4, %r4, %r3;
  st.global.u32 [%d1], %r4;
done:
  ret;
}
)";

struct Driver {
  using Create = CUresult(CUcontext*, unsigned int, CUdevice);  // before CUDA 13, whose header has another prototype
  Create* create = check::DriverEntry<Create>("cuCtxCreate", 3020);
  decltype(cuCtxDestroy)* destroy = DRIVER_ENTRY(cuCtxDestroy);
  decltype(cuCtxPushCurrent)* push = DRIVER_ENTRY(cuCtxPushCurrent);
  decltype(cuCtxPopCurrent)* pop = DRIVER_ENTRY(cuCtxPopCurrent);
  decltype(cuCtxGetCurrent)* current = DRIVER_ENTRY(cuCtxGetCurrent);
  decltype(cuCtxSetCurrent)* set_current = DRIVER_ENTRY(cuCtxSetCurrent);
  decltype(cuCtxSynchronize)* synchronize = DRIVER_ENTRY(cuCtxSynchronize);
  decltype(cuModuleLoadData)* load = DRIVER_ENTRY(cuModuleLoadData);
  decltype(cuModuleGetFunction)* function = DRIVER_ENTRY(cuModuleGetFunction);
  decltype(cuMemAlloc)* allocate = DRIVER_ENTRY(cuMemAlloc);
  decltype(cuMemcpyHtoD)* upload = DRIVER_ENTRY(cuMemcpyHtoD);
  decltype(cuMemcpyDtoH)* download = DRIVER_ENTRY(cuMemcpyDtoH);
  decltype(cuLaunchKernel)* launch = DRIVER_ENTRY(cuLaunchKernel);
};

struct Own {
  CUcontext context = nullptr;
  CUdeviceptr values = 0;
  std::vector<int> nesting;
};

// Makes a context, queues work in it and ends without waiting.
void MakeAndLaunch(const Driver& driver, uint32_t t, CUcontext primary, Own* own) {
  CUcontext before = reinterpret_cast<CUcontext>(1), inner = nullptr, popped = nullptr, outer = nullptr;
  CHECK_DRIVER(driver.current(&before));
  own->nesting.push_back(before == nullptr);  // a new thread has no context
  CHECK_DRIVER(driver.create(&own->context, 0, 0));
  CHECK_DRIVER(driver.current(&inner));
  own->nesting.push_back(inner == own->context && inner != primary);
  CHECK_DRIVER(driver.push(primary));
  CHECK_DRIVER(driver.current(&outer));
  own->nesting.push_back(outer == primary);
  CHECK_DRIVER(driver.pop(&popped));
  CHECK_DRIVER(driver.current(&inner));
  own->nesting.push_back(popped == primary && inner == own->context);

  CUmodule module;
  CUfunction affine;
  CHECK_DRIVER(driver.load(&module, kSource));
  CHECK_DRIVER(driver.function(&affine, module, "affine"));
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i + t;
  CHECK_DRIVER(driver.allocate(&own->values, kCount * 4));
  CHECK_DRIVER(driver.upload(own->values, values.data(), kCount * 4));
  uint32_t count = kCount;
  void* parameters[] = {&own->values, &count, &t};
  CHECK_DRIVER(driver.launch(affine, (kCount + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
}

__global__ void StoreAndAdd(uint32_t* values, uint32_t index, uint32_t* sum) {
  values[index] = 7 * index + 1;
  atomicAdd(sum, 1u);
}

// All of them exist at the same time: nobody begins before everybody is there, nobody ends before everybody is done.
class Barrier {
 public:
  explicit Barrier(int count) : left_(count) {}
  void Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
    changed_.wait(lock, [this] { return left_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

struct Many {
  Barrier begin{kMany}, end{kMany};
  uint32_t *values, *sum;
};
struct OneOfMany {
  Many* many;
  uint32_t index;
};

void* RunOneOfMany(void* argument) {
  const OneOfMany& one = *static_cast<OneOfMany*>(argument);
  one.many->begin.Await();
  for (int round = 0; round < 10; ++round) {
    StoreAndAdd<<<1, 1>>>(one.many->values, one.index, one.many->sum);
    CHECK_LAUNCH();
  }
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  one.many->end.Await();
  return nullptr;
}

void Device(Results& results) {
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaFree(nullptr));
  const Driver driver;
  CUcontext primary;
  CHECK_DRIVER(driver.current(&primary));
  std::vector<Own> owns(kContexts);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kContexts; ++t)
    threads.emplace_back([&, t] { MakeAndLaunch(driver, t, primary, &owns[t]); });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : owns) {
    std::vector<uint32_t> values(kCount);
    std::thread([&] {
      CHECK_DRIVER(driver.set_current(own.context));
      CHECK_DRIVER(driver.synchronize());
      CHECK_DRIVER(driver.download(values.data(), own.values, kCount * 4));
      CHECK_DRIVER(driver.destroy(own.context));
      CUcontext after = reinterpret_cast<CUcontext>(1);
      CHECK_DRIVER(driver.current(&after));
      own.nesting.push_back(after == nullptr);
    }).join();
    results.Add("own context", values);
    results.Add("nesting", own.nesting);
  }

  check::DeviceBuffer<uint32_t> values(kMany), sum(1);
  values.Zero();
  sum.Zero();
  Many many{.values = values.get(), .sum = sum.get()};
  std::vector<OneOfMany> each(kMany);
  std::vector<pthread_t> handles(kMany);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  for (uint32_t t = 0; t < kMany; ++t) {
    each[t] = {&many, t};
    if (int error = pthread_create(&handles[t], &attributes, RunOneOfMany, &each[t]))
      check::Fail("thread %u: %s", t, strerror(error));
  }
  for (pthread_t handle : handles) pthread_join(handle, nullptr);
  results.Add("many threads", values.Download());
  results.Add("sum of many threads", sum.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
