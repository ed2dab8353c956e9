// What orders small kernels besides their stream, and what must not wait for a further call: a mapped word that the
// host only looks at, events, the legacy stream, host functions, captures begun in mid-step, other threads, streams
// that are destroyed with work in them.
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 320;
constexpr uint32_t kSteps = 20;
constexpr int kThreadsOfHost = 3;
constexpr double kPatienceSeconds = 60;

__host__ __device__ inline uint32_t Next(uint32_t value, uint32_t k, uint32_t i) {
  return value * (2 * k + 3) + 5 * i + k;
}

__global__ void Advance(uint32_t* words, uint32_t k) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) words[i] = Next(words[i], k, i);
}
__global__ void AddTo(uint32_t* out, const uint32_t* in) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] += in[i];
}
__global__ void CountEach(uint32_t* counters) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) atomicAdd(&counters[i % 4], i);
}
// A sum into mapped memory, then the number of the step, which tells the host that it is there.
__global__ void Tell(const uint32_t* words, volatile uint32_t* mapped, uint32_t step) {
  uint32_t sum = 0;
  for (int i = 0; i < kCount; ++i) sum += words[i];
  mapped[1] = sum;
  __threadfence_system();
  mapped[0] = step + 1;
}
// Both in one ordinary store: nothing in the kernel says that somebody may be looking.
__global__ void TellPlainly(const uint32_t* words, unsigned long long* mapped, uint32_t step) {
  uint32_t sum = 0;
  for (int i = 0; i < kCount; ++i) sum += words[i];
  *mapped = static_cast<unsigned long long>(sum) << 32 | (step + 1);
}

// The same on the host.
using Words = std::vector<uint32_t>;
void Advance(Words& words, uint32_t k) {
  for (uint32_t i = 0; i < kCount; ++i) words[i] = Next(words[i], k, i);
}
void AddTo(Words& out, const Words& in) {
  for (uint32_t i = 0; i < kCount; ++i) out[i] += in[i];
}
uint32_t SumOf(const Words& words) {
  uint32_t sum = 0;
  for (const uint32_t word : words) sum += word;
  return sum;
}
Words Start(uint64_t seed) { return check::RandomIntegers<uint32_t>(kCount, seed); }

void Reference(Results& results) {
  Words told, a = Start(1), b = Start(2);
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(a, step), Advance(b, step + 1);
    Advance(a, step + 2), AddTo(a, b);
    told.push_back(SumOf(a));
  }
  results.Add("told by mapped memory", told);

  a = Start(3), b = Start(4);
  for (uint32_t step = 0; step < kSteps; ++step) Advance(a, step), AddTo(b, a), Advance(b, step), AddTo(a, b);
  results.Add("events", b);

  a = Start(5);
  for (uint32_t k = 0; k < 4 * kSteps; ++k) Advance(a, k);
  results.Add("legacy stream", a);

  a = Start(6);
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(a, step), Advance(a, step + 1);
    for (uint32_t& word : a) word = word % 1000003 + step;
    Advance(a, step);
  }
  results.Add("host functions", a);

  a = Start(7), b = Start(8);
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(a, step), Advance(b, step), Advance(b, step + 5);
    Advance(a, step), AddTo(b, a);                              // after the capture
    Advance(a, step), AddTo(a, b), Advance(b, 1), AddTo(b, a);  // its graph
    Advance(a, step + 7);
  }
  results.Add("capture in mid-step", a);
  results.Add("beside it", b);

  for (uint32_t t = 0; t < kThreadsOfHost; ++t) {
    a = Start(20 + t);
    for (uint32_t step = 0; step < kSteps; ++step) Advance(a, step + t);
    results.Add("thread with a stream of its own", a);
  }
  a = Start(9);
  for (uint32_t k = 0; k < 2 * kSteps; ++k) Advance(a, k);
  results.Add("threads in turns", a);
  Words counters(4, 0);
  for (uint32_t i = 0; i < kCount; ++i) counters[i % 4] += i * 2 * kSteps;
  results.Add("threads at once", counters);

  a = Start(10);
  for (uint32_t step = 0; step < kSteps; ++step) Advance(a, step), Advance(a, step + 3);
  results.Add("destroyed streams", a);
  results.AddValue<uint32_t>("became idle", kSteps);
}

cudaStream_t NewStream(unsigned flags) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
cudaEvent_t NewEvent() {
  cudaEvent_t event;
  CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
uint32_t* Pinned(size_t count) {
  uint32_t* words;
  CHECK_CUDA(cudaHostAlloc(&words, count * 4, cudaHostAllocMapped | cudaHostAllocPortable));
  return words;
}

// There for every stream: a copy of pageable memory may return before it has arrived.
struct Array : check::DeviceBuffer<uint32_t> {
  explicit Array(const Words& words) : DeviceBuffer(words) { CHECK_CUDA(cudaDeviceSynchronize()); }
};

constexpr int kBlock = 64, kGrid = kCount / kBlock;
void Advance(cudaStream_t stream, const Array& words, uint32_t k) {
  Advance<<<kGrid, kBlock, 0, stream>>>(words.get(), k);
  CHECK_LAUNCH();
}
void AddTo(cudaStream_t stream, const Array& out, const Array& in) {
  AddTo<<<kGrid, kBlock, 0, stream>>>(out.get(), in.get());
  CHECK_LAUNCH();
}

template <class Condition>
void WaitUntil(const char* what, Condition condition) {
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (!condition()) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (static_cast<double>(now.tv_sec - begin.tv_sec) > kPatienceSeconds) check::Fail("no end: %s", what);
  }
}

// Not one call between the launches and the answer.
void LookOnly(Results& results) {
  const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
  Array a(Start(1)), b(Start(2));
  uint32_t *mapped = Pinned(2), *mapped_device;
  CHECK_CUDA(cudaHostGetDevicePointer(&mapped_device, mapped, 0));
  mapped[0] = mapped[1] = 0;
  Words told;
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(stream, a, step);
    Advance(stream, b, step + 1);
    Advance(stream, a, step + 2);
    AddTo(stream, a, b);
    if (step % 2 == 0) Tell<<<1, 1, 0, stream>>>(a.get(), mapped_device, step);
    if (step % 2 == 1) {
      TellPlainly<<<1, 1, 0, stream>>>(a.get(), reinterpret_cast<unsigned long long*>(mapped_device), step);
    }
    CHECK_LAUNCH();
    WaitUntil("a kernel that writes mapped memory",
              [&] { return __atomic_load_n(mapped, __ATOMIC_ACQUIRE) == step + 1; });
    told.push_back(__atomic_load_n(mapped + 1, __ATOMIC_RELAXED));
  }
  results.Add("told by mapped memory", told);
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(mapped));
}

void Events(Results& results) {
  const cudaStream_t one = NewStream(cudaStreamNonBlocking), other = NewStream(cudaStreamNonBlocking);
  const cudaEvent_t there = NewEvent(), back = NewEvent();
  Array a(Start(3)), b(Start(4));
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(one, a, step);
    CHECK_CUDA(cudaEventRecord(there, one));
    CHECK_CUDA(cudaStreamWaitEvent(other, there, 0));
    AddTo(other, b, a);
    Advance(other, b, step);
    CHECK_CUDA(cudaEventRecord(back, other));
    CHECK_CUDA(cudaStreamWaitEvent(one, back, 0));
    AddTo(one, a, b);
  }
  CHECK_CUDA(cudaStreamSynchronize(one));
  results.Add("events", b.Download());
  CHECK_CUDA(cudaStreamDestroy(one));
  CHECK_CUDA(cudaStreamDestroy(other));
}

void LegacyStream(Results& results) {
  const cudaStream_t blocking = NewStream(cudaStreamDefault), another = NewStream(cudaStreamDefault);
  Array a(Start(5));
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(nullptr, a, 4 * step);
    Advance(blocking, a, 4 * step + 1);
    Advance(nullptr, a, 4 * step + 2);
    Advance(another, a, 4 * step + 3);
  }
  results.Add("legacy stream", a.Download());
  CHECK_CUDA(cudaStreamDestroy(blocking));
  CHECK_CUDA(cudaStreamDestroy(another));
}

struct OnHost {
  uint32_t* words;
  uint32_t step;
};
void CUDART_CB Reduce(void* argument) {
  const OnHost* const call = static_cast<OnHost*>(argument);
  for (int i = 0; i < kCount; ++i) call->words[i] = call->words[i] % 1000003 + call->step;
}

void HostFunctions(Results& results) {
  const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
  Array a(Start(6));
  uint32_t* const pinned = Pinned(kCount);
  OnHost calls[kSteps];
  for (uint32_t step = 0; step < kSteps; ++step) {
    calls[step] = {pinned, step};
    Advance(stream, a, step);
    Advance(stream, a, step + 1);
    CHECK_CUDA(cudaMemcpyAsync(pinned, a.get(), a.size_bytes(), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaLaunchHostFunc(stream, Reduce, &calls[step]));
    CHECK_CUDA(cudaMemcpyAsync(a.get(), pinned, a.size_bytes(), cudaMemcpyHostToDevice, stream));
    Advance(stream, a, step);
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("host functions", a.Download());
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(pinned));
}

// One stream begins to capture while it and another have work that has only just been launched.
void Captures(Results& results) {
  const cudaStream_t stream = NewStream(cudaStreamNonBlocking), beside = NewStream(cudaStreamNonBlocking);
  const cudaEvent_t joined = NewEvent();
  Array a(Start(7)), b(Start(8));
  for (uint32_t step = 0; step < kSteps; ++step) {
    Advance(stream, a, step);
    Advance(beside, b, step);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    Advance(stream, a, step);
    Advance(beside, b, step + 5);  // is not captured
    AddTo(stream, a, b);
    Advance(stream, b, 1);
    AddTo(stream, b, a);
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaEventRecord(joined, beside));
    CHECK_CUDA(cudaStreamWaitEvent(stream, joined, 0));
    Advance(stream, a, step);
    AddTo(stream, b, a);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    Advance(stream, a, step + 7);
    CHECK_CUDA(cudaEventRecord(joined, stream));
    CHECK_CUDA(cudaStreamWaitEvent(beside, joined, 0));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("capture in mid-step", a.Download());
  results.Add("beside it", b.Download());
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaStreamDestroy(beside));
}

void OwnStreams(Results& results) {
  std::vector<Words> ends(kThreadsOfHost);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreadsOfHost; ++t) {
    threads.emplace_back([t, &ends] {
      const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
      Array a(Start(20 + t));
      for (uint32_t step = 0; step < kSteps; ++step) Advance(stream, a, step + t);
      CHECK_CUDA(cudaStreamSynchronize(stream));
      ends[t] = a.Download();
      CHECK_CUDA(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Words& end : ends) results.Add("thread with a stream of its own", end);
}

// Two threads and one stream: in turns that a mutex gives, then without any order.
void OneStream(Results& results) {
  const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
  Array a(Start(9)), counters(Words(4, 0));
  std::mutex mutex;
  std::condition_variable passed;
  uint32_t turn = 0;
  const auto play = [&](uint32_t parity) {
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::unique_lock lock(mutex);
      passed.wait(lock, [&] { return turn % 2 == parity; });
      Advance(stream, a, turn);
      ++turn;
      passed.notify_all();
    }
    for (uint32_t step = 0; step < kSteps; ++step) {
      CountEach<<<kGrid, kBlock, 0, stream>>>(counters.get());
      CHECK_LAUNCH();
    }
  };
  std::thread second([&] { play(1); });
  play(0);
  second.join();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("threads in turns", a.Download());
  results.Add("threads at once", counters.Download());
  CHECK_CUDA(cudaStreamDestroy(stream));
}

// What was launched in a stream runs though the stream is gone; others come after it by an event.
void DestroyedStreams(Results& results) {
  Array a(Start(10));
  const cudaEvent_t ended = NewEvent();
  for (uint32_t step = 0; step < kSteps; ++step) {
    const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
    CHECK_CUDA(cudaStreamWaitEvent(stream, ended, 0));
    Advance(stream, a, step);
    Advance(stream, a, step + 3);
    CHECK_CUDA(cudaEventRecord(ended, stream));
    CHECK_CUDA(cudaStreamDestroy(stream));
  }
  CHECK_CUDA(cudaEventSynchronize(ended));
  results.Add("destroyed streams", a.Download());
}

// Asking alone, again and again, must see the end; of a stream, of an event.
void Idle(Results& results) {
  const cudaStream_t stream = NewStream(cudaStreamNonBlocking);
  const cudaEvent_t event = NewEvent();
  Array a(Start(11));
  uint32_t num_idle = 0;
  const auto is_ready = [](cudaError_t answer) {
    if (answer == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    CHECK_CUDA(answer);
    return true;
  };
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t k = 0; k < 5; ++k) Advance(stream, a, k);
    if (step % 2 == 0) {
      WaitUntil("cudaStreamQuery", [&] { return is_ready(cudaStreamQuery(stream)); });
    } else {
      CHECK_CUDA(cudaEventRecord(event, stream));
      WaitUntil("cudaEventQuery", [&] { return is_ready(cudaEventQuery(event)); });
    }
    ++num_idle;
  }
  results.AddValue("became idle", num_idle);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

void Device(Results& results) {
  LookOnly(results);
  Events(results);
  LegacyStream(results);
  HostFunctions(results);
  Captures(results);
  OwnStreams(results);
  OneStream(results);
  DestroyedStreams(results);
  Idle(results);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
