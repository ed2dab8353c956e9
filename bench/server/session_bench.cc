// What the executor costs per request, over a driver that does nothing: ring, sequence number, validation, handle
// tables, reply.
//
// The BM_Queued... fill the ring before the first request is looked at, and count the channel's thread's processor
// time: they mean something on a busy machine too. Round trips need two free processors.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor/executor.h"
#include "server/executor/executor_config.h"
#include "tests/server/executor/fakes/fake_driver.h"
#include "tests/server/executor/fakes/scripted_client.h"

namespace tally::fakes {
namespace {

using Clock = std::chrono::steady_clock;
using shm::Op;

// Launches of so many blocks mark where the measured ones begin and end.
constexpr unsigned int kBegin = 3;
constexpr unsigned int kEnd = 5;

std::atomic<bool> g_is_held{false};  // the channel's thread is in the launch of kBegin
std::atomic<bool> g_go_on{false};
std::chrono::nanoseconds g_begin;
std::chrono::nanoseconds g_end;

std::chrono::nanoseconds ThreadTime() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

CUresult LaunchNothing(CUfunction, unsigned int num_blocks, unsigned int, unsigned int, unsigned int, unsigned int,
                       unsigned int, unsigned int, CUstream, void**, void**) {
  if (num_blocks == kBegin) {
    g_is_held = true;
    while (!g_go_on.exchange(false)) std::this_thread::yield();
    g_begin = ThreadTime();
  }
  if (num_blocks == kEnd) g_end = ThreadTime();
  return CUDA_SUCCESS;
}

constexpr auto kSlowLaunch = std::chrono::nanoseconds(2000);

CUresult LaunchSlowly(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                      unsigned int, CUstream, void**, void**) {
  const auto until = Clock::now() + kSlowLaunch;
  while (Clock::now() < until) {
  }
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult Made(Handle* handle) {
  static std::atomic<uintptr_t> next{0x1000};
  *handle = reinterpret_cast<Handle>(next += 16);
  return CUDA_SUCCESS;
}

constexpr uint64_t kMemoryBytes = uint64_t{1} << 20;
constexpr const char* kText = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u32 unused, .param .u64 in)
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r2, [%rd5];
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

// One session with one channel, a kernel, and device memory.
struct Bed {
  explicit Bed(decltype(server::DriverTable::cuLaunchKernel) launch_kernel = &LaunchNothing,
               control::WindowMode window = control::WindowMode::kOff) {
    table = driver.table();
    // The fake keeps a trace and takes a lock; here only the executor is to be seen.
    table.cuLaunchKernel = launch_kernel;
    table.cuEventRecord = [](CUevent, CUstream) -> CUresult { return CUDA_SUCCESS; };
    table.cuEventQuery = [](CUevent) -> CUresult { return CUDA_SUCCESS; };
    table.cuEventElapsedTime = [](float* time, CUevent, CUevent) -> CUresult { return *time = 0, CUDA_SUCCESS; };
    table.cuStreamSynchronize = [](CUstream) -> CUresult { return CUDA_SUCCESS; };
    table.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) -> CUresult { return CUDA_SUCCESS; };
    table.cuFuncGetName = [](const char** name, CUfunction) -> CUresult { return *name = "kernel", CUDA_SUCCESS; };
    table.cuGraphCreate = [](CUgraph* graph, unsigned int) -> CUresult { return Made(graph); };
    table.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                                       const CUDA_KERNEL_NODE_PARAMS*) -> CUresult { return Made(node); };
    table.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) -> CUresult {
      return Made(exec);
    };
    table.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) -> CUresult {
      return CUDA_SUCCESS;
    };
    table.cuGraphLaunch = [](CUgraphExec, CUstream) -> CUresult { return CUDA_SUCCESS; };
    table.cuGraphUpload = nullptr;
    table.cuGraphExecDestroy = [](CUgraphExec) -> CUresult { return CUDA_SUCCESS; };
    table.cuGraphDestroy = [](CUgraph) -> CUresult { return CUDA_SUCCESS; };
    server::ExecutorConfig config;
    config.driver_table_for_testing = &table;
    executor = std::move(*server::Executor::Create(config));
    auto pair = CreateSocketPair();
    server::SessionIdentity identity;
    identity.session_id = 1;
    identity.window = window;
    static_cast<void>(executor->AddSession(std::move(pair->first), identity));
    client = std::make_unique<ScriptedClient>(std::move(pair->second));
    client->Attach();
    channel = client->OpenChannel();
    const std::string text = kText;
    const shm::WriteImage piece{1, static_cast<uint32_t>(text.size() + 1), text.size() + 1, 0};
    channel->Post(Op::kWriteImage, Payload().Put(piece).PutBytes(text.c_str(), text.size() + 1));
    shm::LoadImage load{};
    load.image = 1;
    load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
    const auto module = channel->Call(Op::kLoadModule, Payload().Put(load)).Get<shm::LoadedImage>().handle;
    const shm::GetByName get{module, 6, 0};
    kernel = channel->Call(Op::kGetFunction, Payload().Put(get).PutBytes("kernel", 6)).Get<uint64_t>();
    memory = channel->Call(Op::kAllocate, Payload().Put(shm::Allocate{kMemoryBytes, 0, 0, 0})).Get<uint64_t>();
  }

  Payload Launch(size_t parameter_bytes = 24, uint32_t num_blocks = 1) const {
    shm::Launch launch{};
    launch.function = kernel;
    launch.stream = 1;
    launch.grid[0] = num_blocks;
    launch.parameter_bytes = static_cast<uint32_t>(parameter_bytes);
    const std::string parameters(parameter_bytes, 'p');
    return Payload().Put(launch).PutBytes(parameters.data(), parameters.size());
  }
  // out[i] = in[i]: 512 bytes each, of place `out` and `in` of the memory.
  Payload Copying(uint64_t out, uint64_t in) const {
    shm::Launch launch{};
    launch.function = kernel;
    launch.stream = 1;
    for (uint32_t& extent : launch.grid) extent = 1;
    launch.block[0] = 128;
    launch.block[1] = launch.block[2] = 1;
    const std::array<uint64_t, 3> parameters = {memory + out * 512, 0, memory + in * 512};
    launch.parameter_bytes = sizeof(parameters);
    return Payload().Put(launch).PutBytes(reinterpret_cast<const char*>(parameters.data()), sizeof(parameters));
  }
  // To pageable memory, as far as the executor is concerned: into the channel's arena.
  Payload CopyDown() const {
    const shm::Copy copy{
        0, memory, 4096, 1, static_cast<uint32_t>(shm::Place::kArena), static_cast<uint32_t>(shm::Place::kAddress)};
    return Payload().Put(copy);
  }
  void Ask(Op op, const Payload& payload) const {
    channel->Publish(static_cast<uint16_t>(op), payload, shm::kWantReply, 0);
  }
  bool Synchronize() const { return channel->Call(Op::kSynchronizeStream, Payload().PutWord(1)).arrived; }

  FakeDriver driver;
  server::DriverTable table;
  std::unique_ptr<server::Executor> executor;
  std::unique_ptr<ScriptedClient> client;
  std::unique_ptr<ScriptedChannel> channel;
  uint64_t kernel = 0;
  uint64_t memory = 0;
};

void ReportMedian(benchmark::State& state, std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  state.counters["median_ns"] = *middle;
}

double NanosecondsEach(std::chrono::nanoseconds duration, int count) {
  return static_cast<double>(duration.count()) / count;
}

// `put` puts what is measured into the ring, of which half is enough for `count` times; it wants `num_replies`.
void MeasureQueued(benchmark::State& state, Bed& bed, int count, int num_replies, const std::function<void()>& put) {
  const Payload begin = bed.Launch(24, kBegin);
  const Payload end = bed.Launch(24, kEnd);
  std::vector<double> samples;
  for (auto _ : state) {
    bed.channel->Post(Op::kLaunch, begin);
    while (!g_is_held.exchange(false)) std::this_thread::yield();
    for (int i = 0; i < count; ++i) put();
    bed.channel->Post(Op::kLaunch, end);
    bed.Ask(Op::kSynchronizeStream, Payload().PutWord(1));
    g_go_on = true;
    for (int i = 0; i < num_replies * count + 1; ++i) {
      if (!bed.channel->Await().arrived) return state.SkipWithError("the session ended");
    }
    samples.push_back(NanosecondsEach(g_end - g_begin, count));
  }
  ReportMedian(state, samples);
}

void BM_QueuedLaunches(benchmark::State& state) {
  Bed bed;
  const Payload launch = bed.Launch(static_cast<size_t>(state.range(0)));
  const int count = static_cast<int>(shm::kRequestRingBytes / 2 / (launch.bytes().size() + 48));
  MeasureQueued(state, bed, count, 0, [&] { bed.channel->Post(Op::kLaunch, launch); });
}
BENCHMARK(BM_QueuedLaunches)->ArgName("bytes")->Arg(24)->Arg(4000)->Iterations(100);

// What a window costs beyond BM_QueuedLaunches, by mode. 0: none; 1: shadow, which compares a part; 2: on, where
// launches that are known are held, 64 at a time, and issued as a graph that is known, with nothing to be told; the
// graph's launch takes no time.
void BM_QueuedLaunchesInAWindow(benchmark::State& state) {
  const auto mode = static_cast<control::WindowMode>(state.range(0));
  if (mode == control::WindowMode::kOn) ::setenv("TALLY_FORCE_WINDOW", "graphs", 1);
  Bed bed(&LaunchNothing, mode);
  ::unsetenv("TALLY_FORCE_WINDOW");
  std::vector<Payload> step;
  for (uint64_t i = 0; i < 64; ++i) step.push_back(bed.Copying(i, i >= 4 ? i - 4 : 100 + i));
  const auto launch_step = [&] {
    for (const Payload& launch : step) bed.channel->Post(Op::kLaunch, launch);
  };
  for (int i = 0; i < 10; ++i) {
    launch_step();
    bed.Synchronize();
  }
  const Payload begin = bed.Launch(24, kBegin);
  const Payload end = bed.Launch(24, kEnd);
  constexpr int kSteps = 16;
  std::vector<double> samples;
  for (auto _ : state) {
    bed.Ask(Op::kLaunch, begin);  // who waits for the answer is not held
    while (!g_is_held.exchange(false)) std::this_thread::yield();
    for (int i = 0; i < kSteps; ++i) launch_step();
    bed.Ask(Op::kLaunch, end);
    g_go_on = true;
    for (int i = 0; i < 2; ++i) {
      if (!bed.channel->Await().arrived) return state.SkipWithError("the session ended");
    }
    samples.push_back(NanosecondsEach(g_end - g_begin, kSteps * 64));
  }
  ReportMedian(state, samples);
  const auto figures = bed.executor->Snapshot().at(0).figures;
  state.counters["in_graphs"] = static_cast<double>(figures["window_in_graphs"]);
}
BENCHMARK(BM_QueuedLaunchesInAWindow)->ArgName("window")->DenseRange(0, 2)->Iterations(300);

// Launches that are barriers, here by their attributes: what a window costs a program that it can do nothing for.
void BM_QueuedBarriers(benchmark::State& state) {
  Bed bed(&LaunchNothing, static_cast<control::WindowMode>(state.range(0)));
  shm::Launch launch{};
  launch.function = bed.kernel;
  launch.stream = 1;
  launch.num_attributes = 1;
  for (uint32_t& extent : launch.grid) extent = 1;
  for (uint32_t& extent : launch.block) extent = 1;
  launch.parameter_bytes = 24;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  const std::array<uint64_t, 3> parameters = {bed.memory, 0, bed.memory};
  const Payload payload = Payload().Put(launch).Put(attribute).PutBytes(
      reinterpret_cast<const char*>(parameters.data()), sizeof(parameters));
  MeasureQueued(state, bed, 2000, 0, [&] { bed.channel->Post(Op::kLaunch, payload); });
}
BENCHMARK(BM_QueuedBarriers)->ArgName("window")->DenseRange(0, 2)->Iterations(100);

// A launch of known memory, and a wait for it, each time.
void BM_QueuedLoneLaunches(benchmark::State& state) {
  Bed bed(&LaunchNothing, static_cast<control::WindowMode>(state.range(0)));
  const Payload launch = bed.Copying(0, 1);
  const auto put = [&] {
    bed.channel->Post(Op::kLaunch, launch);
    bed.Ask(Op::kSynchronizeStream, Payload().PutWord(1));
  };
  MeasureQueued(state, bed, 2000, 1, put);
  const auto figures = bed.executor->Snapshot().at(0).figures;
  state.counters["held"] = static_cast<double>(figures["window_held"]);
}
BENCHMARK(BM_QueuedLoneLaunches)->ArgName("window")->DenseRange(0, 2)->Iterations(100);

// While the session is recorded (tallyctl trace), beyond BM_QueuedLaunches: marks cost nothing here, so what is seen is
// the clock and the book-keeping. Once it was recorded: as if it had never been.
void BM_QueuedLaunchesRecorded(benchmark::State& state) {
  Bed bed;
  bed.Synchronize();  // its device has a context
  static_cast<void>(bed.executor->StartTrace(std::nullopt));
  const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (state.range(0) == 0) static_cast<void>(bed.executor->EndTrace(nowhere.get()));
  const Payload launch = bed.Launch();
  MeasureQueued(state, bed, 4000, 0, [&] { bed.channel->Post(Op::kLaunch, launch); });
  static_cast<void>(bed.executor->EndTrace(nowhere.get()));
}
BENCHMARK(BM_QueuedLaunchesRecorded)->ArgName("recorded")->Arg(0)->Arg(1)->Iterations(100);

void BM_QueuedLaunchesAndSynchronisations(benchmark::State& state) {
  Bed bed;
  const Payload launch = bed.Launch();
  MeasureQueued(state, bed, 2000, 1, [&] {
    bed.channel->Post(Op::kLaunch, launch);
    bed.Ask(Op::kSynchronizeStream, Payload().PutWord(1));
  });
}
BENCHMARK(BM_QueuedLaunchesAndSynchronisations)->Iterations(100);

void BM_QueuedCopiesDown(benchmark::State& state) {
  Bed bed;
  const Payload copy = bed.CopyDown();
  MeasureQueued(state, bed, 4000, 1, [&] { bed.Ask(Op::kCopy, copy); });
}
BENCHMARK(BM_QueuedCopiesDown)->Iterations(100);

// A client that is faster than the driver: time of one launch beyond the driver's, and how often the client slept.
void BM_SustainedLaunches(benchmark::State& state) {
  Bed bed(&LaunchSlowly);
  const Payload payload = bed.Launch();
  constexpr int kLaunches = 15000;
  std::vector<double> samples;
  bed.Synchronize();
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < kLaunches; ++i) bed.channel->Post(Op::kLaunch, payload);
    if (!bed.Synchronize()) return state.SkipWithError("the session ended");
    samples.push_back(NanosecondsEach(Clock::now() - begin - kLaunches * kSlowLaunch, kLaunches));
  }
  ReportMedian(state, samples);
  state.counters["waits_per_1000"] =
      static_cast<double>(bed.channel->num_waits()) * 1000 / (static_cast<double>(state.iterations()) * kLaunches);
}
BENCHMARK(BM_SustainedLaunches)->Iterations(15)->UseRealTime();

void BM_RoundTrip(benchmark::State& state) {
  Bed bed;
  for (auto _ : state) bed.channel->CallNumber(kOp_cuCtxGetLimit, Payload().PutWord(0));
}
BENCHMARK(BM_RoundTrip)->UseRealTime();

void BM_LaunchAndSynchronize(benchmark::State& state) {
  Bed bed;
  const Payload launch = bed.Launch();
  for (auto _ : state) {
    bed.channel->Post(Op::kLaunch, launch);
    bed.Synchronize();
  }
}
BENCHMARK(BM_LaunchAndSynchronize)->UseRealTime();

}  // namespace
}  // namespace tally::fakes
