// What kernels that hold the GPU cost a request beside them, by how long each is and how many queue.
//
//   holding [--driver cuda|sim] [--requests N]        all queues of the table below, each in a process of its own, as
//                                                     the state that one brings about would be there for the next
//   holding ... --queue NUM_KERNELS,EACH_US           that one; 0,0: nothing holds
//
// A request is a kernel, a graph of 400 kernels of about a microsecond, and a kernel; then comes a pause. Medians of
// the first and the last fifth, and once nothing holds any more. Nobody else should use the GPU.
#include <cuda.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/holding_kernels.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using Us = std::chrono::duration<double, std::micro>;

constexpr int kGraphKernels = 400;
constexpr microseconds kPause{50};
constexpr microseconds kLook{30};  // of the thread that fills the queue up
constexpr std::pair<uint32_t, uint32_t> kQueues[] = {{0, 0},  {64, 5},  {32, 10}, {16, 20}, {8, 40},
                                                     {4, 80}, {2, 160}, {8, 80},  {2, 1000}};

constexpr const char* kText = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 duration) {
  .reg .pred %p<2>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [duration];
  mov.u64 %d1, %globaltimer;
again:
  mov.u64 %d2, %globaltimer;
  sub.u64 %d3, %d2, %d1;
  setp.lt.u64 %p1, %d3, %d0;
  @%p1 bra again;
  ret;
}
)";

struct Options {
  std::string driver = "cuda";
  int num_requests = 500;
  std::string queue;
};

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fmt::print(stderr, "holding: {}: error {}\n", what, static_cast<int>(result));
  std::exit(1);
}

class Service {
 public:
  explicit Service(const DriverTable& driver) : driver_(driver) {
    Check(driver.cuModuleLoadData(&module_, kText), "load a kernel");
    Check(driver.cuModuleGetFunction(&spin_, module_, "spin"), "find a kernel");
    Check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream");
    Check(driver.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    for (int i = 0; i < kGraphKernels; ++i) Spin(64);
    CUgraph graph = nullptr;
    Check(driver.cuStreamEndCapture(stream_, &graph), "end the capture");
    Check(driver.cuGraphInstantiateWithFlags(&graph_, graph, 0), "instantiate a graph");
  }
  Us Request() {
    const auto begin = std::chrono::steady_clock::now();
    Spin(1);
    Check(driver_.cuGraphLaunch(graph_, stream_), "launch a graph");
    Spin(1);
    Check(driver_.cuStreamSynchronize(stream_), "wait");
    return std::chrono::steady_clock::now() - begin;
  }

 private:
  void Spin(unsigned num_blocks) {
    uint64_t duration_ns = 1000;
    void* parameters[] = {&duration_ns};
    Check(driver_.cuLaunchKernel(spin_, num_blocks, 1, 1, 128, 1, 1, 0, stream_, parameters, nullptr), "launch");
  }

  const DriverTable& driver_;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
};

double Median(std::vector<Us> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2].count();
}

std::vector<Us> Serve(Service& service, int num_requests) {
  std::vector<Us> times;
  for (int i = 0; i < num_requests; ++i) {
    times.push_back(service.Request());
    std::this_thread::sleep_for(kPause);
  }
  return times;
}

void MeasureOne(const Options& options) {
  HoldingKernels::Queue queue{};
  unsigned each_us = 0;
  if (std::sscanf(options.queue.c_str(), "%u,%u", &queue.num_kernels, &each_us) != 2) {
    fmt::print(stderr, "holding: --queue NUM_KERNELS,EACH_US, not '{}'\n", options.queue);
    std::exit(2);
  }
  queue.each = microseconds(each_us);
  auto loaded =
      LoadDriver({.choice = options.driver == "sim" ? control::DriverChoice::kSim : control::DriverChoice::kCuda,
                  .cuda_path = {},
                  .sim_path = {}});
  if (!loaded) {
    fmt::print(stderr, "holding: {}\n", loaded.error().message());
    std::exit(1);
  }
  const DriverTable& driver = loaded->table;
  CUcontext context = nullptr;
  Check(driver.cuDevicePrimaryCtxRetain(&context, 0), "make a context");
  Check(driver.cuCtxSetCurrent(context), "make a context current");
  Service service(driver);
  HoldingKernels kernels(driver);
  Check(kernels.Load(), "load what holds");
  Serve(service, 3);

  std::atomic<bool> is_over{false};
  std::thread filler([&] {
    driver.cuCtxSetCurrent(context);
    while (!is_over) {
      if (queue.num_kernels != 0) kernels.Keep(queue);
      std::this_thread::sleep_for(kLook);
    }
    kernels.Release();
  });
  const std::vector<Us> times = Serve(service, options.num_requests);
  is_over = true;
  filler.join();
  const std::vector<Us> later = Serve(service, options.num_requests / 5 + 1);
  const auto fifth = static_cast<std::ptrdiff_t>(times.size() / 5 + 1);
  fmt::print("| {} of {} us | {:.0f} | {:.0f} | {:.0f} |\n", queue.num_kernels, each_us,
             Median({times.begin(), times.begin() + fifth}), Median({times.end() - fifth, times.end()}), Median(later));
}

int MeasureAll(const Options& options, const char* program) {
  fmt::print("| kernels that queue | first requests, us | last | behind that, nothing held |\n|---|---:|---:|---:|\n");
  std::fflush(stdout);
  for (const auto& [num_kernels, each_us] : kQueues) {
    const std::string command = fmt::format("'{}' --driver {} --requests {} --queue {},{}", program, options.driver,
                                            options.num_requests, num_kernels, each_us);
    if (std::system(command.c_str()) != 0) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tally::server

int main(int argc, char** argv) {
  tally::server::Options options;
  CLI::App app("What kernels that hold the GPU cost a request beside them, by how long each is and how many queue");
  app.add_option("--driver", options.driver, "cuda, or sim: does it run?")->check(CLI::IsMember({"cuda", "sim"}));
  app.add_option("--requests", options.num_requests, "with each queue")->check(CLI::Range(5, 1'000'000));
  app.add_option("--queue", options.queue, "only NUM_KERNELS,EACH_US");
  CLI11_PARSE(app, argc, argv);
  if (options.queue.empty()) return tally::server::MeasureAll(options, argv[0]);
  tally::server::MeasureOne(options);
  return 0;
}
