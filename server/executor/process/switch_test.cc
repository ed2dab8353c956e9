// tally-switch-test: how long a forced switch from best-effort to high-priority work takes on this GPU with this
// driver. Two processes, one of which fills the GPU with kernels of 10 ms, with the driver's time slices, with the
// shortest, and suspended between the kernels of a burst.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/command_line.h"
#include "base/thread.h"
#include "base/unique_fd.h"
#include "proto/control/version.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/process/channel_groups.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr microseconds kShortest{1};
constexpr microseconds kLongest{1'000'000};
constexpr uint64_t kSpinNs = 10'000'000;
constexpr int kSpinsInFlight = 4;
constexpr int kRequests = 200;
// Of short kernels, each a moment after the one before it.
constexpr int kBursts = 20;
constexpr int kKernelsOfBurst = 10;
constexpr uint64_t kBurstKernelNs = 100'000;
constexpr microseconds kBurstGap{60};
// What is suspended with nobody else on the GPU.
constexpr int kSuspensions = 40;
constexpr milliseconds kLongestGoingOn{50};

constexpr const char* kPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 duration) {
  .reg .pred %p; .reg .b64 %d<4>;
  ld.param.u64 %d0, [duration];
  mov.u64 %d1, %globaltimer;
again:
  mov.u64 %d2, %globaltimer;
  sub.u64 %d3, %d2, %d1;
  setp.lt.u64 %p, %d3, %d0;
  @%p bra again;
  ret;
}
)";

// A context with the kernel; ends with the process.
class Gpu {
 public:
  // Empty: it works; else why not.
  std::string Open() {
    auto loaded = LoadDriver({.choice = control::DriverChoice::kCuda, .cuda_path = {}, .sim_path = {}});
    if (!loaded) return loaded.error().message();
    driver_ = loaded->table;
    CUdevice device = 0;
    CUmodule module = nullptr;
    CUresult result = driver_.cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS) result = driver_.cuDevicePrimaryCtxRetain(&context_, device);
    if (result == CUDA_SUCCESS) result = driver_.cuCtxSetCurrent(context_);
    if (result == CUDA_SUCCESS) result = driver_.cuModuleLoadData(&module, kPtx);
    if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&spin_, module, "spin");
    if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) result = driver_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return CudaErrorName(driver_, result);
    driver_.cuDeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    return Launch(0) && Await() ? "" : "a kernel failed";
  }
  // In another thread than the one that opened it.
  void Enter() { driver_.cuCtxSetCurrent(context_); }
  // On all of the GPU.
  bool Launch(uint64_t duration_ns) {
    void* parameters[] = {&duration_ns};
    return driver_.cuLaunchKernel(spin_, static_cast<unsigned>(2 * multiprocessors_), 1, 1, 1024, 1, 1, 0, stream_,
                                  parameters, nullptr) == CUDA_SUCCESS;
  }
  bool Await() { return driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; }
  bool IsDoneWithin(milliseconds limit) {
    const auto until = steady_clock::now() + limit;
    while (driver_.cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
      if (steady_clock::now() > until) return false;
      std::this_thread::sleep_for(microseconds(50));
    }
    return true;
  }

 private:
  DriverTable driver_{};
  CUcontext context_ = nullptr;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  int multiprocessors_ = 1;
};

bool Tell(int fd, char word) { return ::write(fd, &word, 1) == 1; }
bool Hear(int fd, char* word, milliseconds limit) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(limit.count())) == 1 && ::read(fd, word, 1) == 1;
}

// The best-effort process: `own` time slices, `short` ones, suspended, going on, `rest`; and, at rest, whether what is
// suspended in the middle of its work gets on with it. Ends with the pipe.
constexpr char kOwn = 'o', kShort = 's', kSuspend = 'h', kGoOn = 'g', kRest = 'r', kGetOn = 'n';
constexpr char kReady = '+', kFailed = '-';

bool GetsOn(Gpu& gpu) {
  ChannelGroups& groups = ChannelGroups::OfThisProcess();
  gpu.Enter();
  int num_stuck = 0;
  for (int i = 0; i < kSuspensions; ++i) {
    for (int kernel = 0; kernel < kSpinsInFlight; ++kernel) gpu.Launch(kBurstKernelNs * 3);
    std::this_thread::sleep_for(microseconds(50 + i * 97 % 700));
    if (groups.Suspend(0, true) == 0) return false;
    std::this_thread::sleep_for(microseconds(100 + i * 61 % 900));
    groups.Suspend(0, false);
    if (gpu.IsDoneWithin(kLongestGoingOn)) continue;
    ++num_stuck;
    if (!gpu.Launch(0) || !gpu.IsDoneWithin(milliseconds(1000))) return false;  // which helps
  }
  return num_stuck == 0;
}

// Whether the time slices are as they should be, or all groups that run kernels are.
bool Obey(char word) {
  ChannelGroups& groups = ChannelGroups::OfThisProcess();
  if (word == kSuspend || word == kGoOn) return (groups.Suspend(0, word == kSuspend) > 0) == (word == kSuspend);
  if (word != kRest) groups.WantTimeSlice(word == kShort ? kShortest : microseconds(0));
  const auto slices = groups.CheckTimeSlices();
  return slices.num_groups > 0 && slices.num_refused == 0;
}

[[noreturn]] void BeBestEffort(int commands, int answers) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Gpu gpu;
  const std::string failure = gpu.Open();
  Tell(answers, failure.empty() ? kReady : kFailed);
  std::atomic<bool> is_working = false;
  auto worker = StartThread("best-effort", [&] {
    gpu.Enter();
    for (bool works = failure.empty(); works;) {
      for (int i = 0; is_working && i < kSpinsInFlight; ++i) gpu.Launch(kSpinNs);
      works = gpu.Await();
      if (!is_working) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  if (!worker) ::_exit(1);
  worker->detach();
  for (char word = 0; Hear(commands, &word, milliseconds(60'000));) {
    is_working = word != kRest && word != kGetOn;
    const bool is_done = word == kGetOn ? GetsOn(gpu) : Obey(word);
    Tell(answers, is_done ? kReady : kFailed);
  }
  ChannelGroups::OfThisProcess().Suspend(0, false);
  ::_exit(0);
}

struct Latency {
  double p50_us = 0;
  double p99_us = 0;
};

Latency Summary(std::vector<double> us) {
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[us.size() * 99 / 100]};
}

Latency Measure(Gpu& gpu) {
  std::vector<double> us;
  for (int i = 0; i < kRequests; ++i) {
    std::this_thread::sleep_for(microseconds(2000 + i * 37 % 1900));  // at all points of a slice
    const auto since = steady_clock::now();
    if (!gpu.Launch(0) || !gpu.Await()) break;
    us.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - since).count());
  }
  return Summary(std::move(us));
}

// Of the kernels of bursts but the first of each.
Latency MeasureBursts(Gpu& gpu) {
  std::vector<double> us;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::this_thread::sleep_for(milliseconds(3));
    for (int i = 0; i < kKernelsOfBurst; ++i) {
      const auto since = steady_clock::now();
      if (!gpu.Launch(kBurstKernelNs) || !gpu.Await()) return {};
      const auto now = steady_clock::now();
      if (i > 0) us.push_back(std::chrono::duration<double, std::micro>(now - since).count());
      while (steady_clock::now() - now < kBurstGap) {
      }
    }
  }
  return Summary(std::move(us));
}

struct Suspension {
  Latency without, with;  // of bursts, beside best-effort work with short slices
  microseconds suspending{0}, going_on{0};
  bool is_possible = false;
  bool gets_on = false;  // with nobody else on the GPU
  bool is_of_use() const { return is_possible && with.p50_us > 0 && with.p50_us < without.p50_us; }
};

// `order` tells the best-effort process, which works, and says whether it did as told.
template <typename Order>
Suspension MeasureSuspension(Gpu& gpu, const Order& order) {
  Suspension found;
  const auto timed = [&](char word, microseconds* took) {
    const auto since = steady_clock::now();
    const bool is_done = order(word);
    *took = std::chrono::duration_cast<microseconds>(steady_clock::now() - since);
    return is_done;
  };
  found.without = MeasureBursts(gpu);
  const bool can_suspend = timed(kSuspend, &found.suspending);
  found.with = MeasureBursts(gpu);
  found.is_possible = timed(kGoOn, &found.going_on) && can_suspend;
  if (found.is_possible && order(kRest)) {
    std::this_thread::sleep_for(milliseconds(100));  // what is in flight
    found.gets_on = order(kGetOn);
  }
  return found;
}

void Print(const char* what, const Latency& latency) {
  fmt::print("{:<58} {:8.1f} us p50 {:8.1f} us p99\n", what, latency.p50_us, latency.p99_us);
}

constexpr const char* kDescription =
    "tally-switch-test measures how soon this GPU can be taken from best-effort work by the driver's time slices,\n"
    "what suspending that work spares the kernels of a burst, and whether it gets on afterwards.\n"
    "It takes a few seconds; end other programs that use the GPU first. tallyd runs it when it starts.";
constexpr const char* kFooter =
    "\nExit status:\n"
    "  0  time slices can be set and act\n"
    "  1  it could not be measured\n"
    "  2  time slices cannot be set, or do not act";

// Forks: the process must not have used a driver yet.
int Run(bool as_json) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  int to_child[2], from_child[2];
  if (::pipe(to_child) != 0 || ::pipe(from_child) != 0) return 1;
  const pid_t child = ::fork();
  if (child < 0) return 1;
  if (child == 0) {
    ::close(to_child[1]);
    ::close(from_child[0]);
    BeBestEffort(to_child[0], from_child[1]);
  }
  UniqueFd commands(to_child[1]), answers(from_child[0]);
  ::close(to_child[0]);
  ::close(from_child[1]);
  const auto order = [&](char word) {
    char answer = kFailed;
    return Tell(commands.get(), word) && Hear(answers.get(), &answer, milliseconds(20'000)) && answer == kReady;
  };
  ChannelGroups::OfThisProcess().WantTimeSlice(kLongest);
  Gpu gpu;
  const std::string failure = gpu.Open();
  char answer = kFailed;
  const bool is_child_ready = Hear(answers.get(), &answer, milliseconds(60'000)) && answer == kReady;
  if (!failure.empty() || !is_child_ready) {
    fmt::print(stderr, "tally-switch-test: the GPU cannot be used: {}\n",
               failure.empty() ? "the second process failed" : failure);
    return 1;
  }
  const ChannelGroups::TimeSlices slices = ChannelGroups::OfThisProcess().CheckTimeSlices();
  const Latency alone = Measure(gpu);
  const Latency burst_alone = as_json ? Latency{} : MeasureBursts(gpu);
  bool is_set = slices.num_groups > 0 && slices.num_refused == 0;
  is_set = order(kOwn) && is_set;
  const Latency own = Measure(gpu);
  is_set = order(kShort) && is_set;
  const Latency forced = Measure(gpu);
  const Suspension suspension = as_json ? Suspension{} : MeasureSuspension(gpu, order);
  order(kRest);
  commands.Reset();
  ::waitpid(child, nullptr, 0);
  // The driver's own slices are 1 ms and more.
  const bool acts = is_set && forced.p99_us > 0 && forced.p99_us < 1000;
  if (as_json) {
    fmt::print("{{\"acts\": {}, \"p50_us\": {:.1f}, \"p99_us\": {:.1f}, \"own_p99_us\": {:.1f}}}\n", acts,
               forced.p50_us, forced.p99_us, own.p99_us);
    return acts ? 0 : 2;
  }
  fmt::print("time slices of {} channel groups: {} to {} us; {} refused\n", slices.num_groups, slices.shortest.count(),
             slices.longest.count(), slices.num_refused);
  Print("a kernel alone", alone);
  Print("beside kernels of 10 ms, with the driver's time slices", own);
  Print("beside kernels of 10 ms, with time slices of 1 us", forced);
  Print("a kernel of 100 us in a burst, alone", burst_alone);
  Print("the same, with time slices of 1 us", suspension.without);
  if (suspension.is_of_use()) {
    Print("the same, best-effort work suspended", suspension.with);
    fmt::print("suspending took {} us, going on {} us\n", suspension.suspending.count(), suspension.going_on.count());
    fmt::print("with nobody else on the GPU, what was suspended gets on with it: {}\n",
               suspension.gets_on ? "always" : "not always");
  } else {
    fmt::print("best-effort work cannot be suspended, or that is of no use\n");
  }
  if (!is_set) fmt::print("the driver refuses to set time slices\n");
  if (is_set && !acts) fmt::print("time slices are set but do not act\n");
  if (acts) fmt::print("a switch from best-effort work takes {:.1f} us at the 99th percentile\n", forced.p99_us);
  return acts ? 0 : 2;
}

}  // namespace
}  // namespace tally::server

int main(int argc, char** argv) {
  bool as_json = false;
  CLI::App app(tally::server::kDescription, "tally-switch-test");
  app.footer(tally::server::kFooter);
  app.set_version_flag("--version", tally::control::VersionLine("tally-switch-test"));
  app.add_flag("--json", as_json, "print one JSON object instead of sentences, about the time slices only");
  if (const auto exit_status = tally::ParseCommandLine(app, argc, argv, {.wrong_usage = 1})) return *exit_status;
  return tally::server::Run(as_json);
}
