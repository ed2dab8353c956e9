// A latency-critical program reduced to its core: a request is one tiny kernel, requests come at random moments.
//
//   arrivals [--seconds S] [--mean-us M] [--serve]
//
// Measures, for every request, the time from its arrival until its kernel runs, as the processor sees it: the kernel
// writes to memory that both can see and the processor looks there all the time. Prints "ready" when it is warm, then a
// line of JSON: microseconds of every request, in their order. With --serve it measures whenever a line with a number
// of seconds comes on stdin, until its end.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const cudaError_t result_of_call = (call);                                                           \
    if (result_of_call != cudaSuccess) {                                                                 \
      fprintf(stderr, "arrivals: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(result_of_call)); \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (false)

__global__ void Answer(volatile unsigned* seen, unsigned request) { *seen = request; }

class Service {
 public:
  Service() {
    CHECK(cudaHostAlloc(&seen_, sizeof(unsigned), cudaHostAllocMapped));
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    *seen_ = 0;
    for (int i = 0; i < 50; ++i) Request();
  }

  // How long it took until the kernel ran.
  Microseconds Request() {
    const auto arrived_at = Clock::now();
    ++request_;
    Answer<<<1, 1, 0, stream_>>>(seen_, request_);
    while (*seen_ != request_) {
      if (Clock::now() - arrived_at > std::chrono::seconds(20)) {
        fprintf(stderr, "arrivals: no answer within 20 s\n");
        exit(1);
      }
    }
    const Microseconds latency = Clock::now() - arrived_at;
    CHECK(cudaStreamSynchronize(stream_));
    return latency;
  }

 private:
  volatile unsigned* seen_ = nullptr;
  unsigned request_ = 0;
  cudaStream_t stream_ = nullptr;
};

void Measure(Service& service, double seconds, double mean_us) {
  std::mt19937 random(1);
  std::exponential_distribution<double> gap(1 / mean_us);
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  auto next = Clock::now();
  printf("{\"us\": [");
  for (const char* separator = ""; Clock::now() < until; separator = ", ") {
    next += std::chrono::duration_cast<Clock::duration>(Microseconds(gap(random)));
    if (next < Clock::now()) next = Clock::now();  // a request does not wait for the one before it
    std::this_thread::sleep_until(next);
    printf("%s%.2f", separator, service.Request().count());
  }
  printf("]}\n");
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1, mean_us = 3000;
  bool serves = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--serve") {
      serves = true;
    } else if (i + 1 < argc && word == "--seconds") {
      seconds = atof(argv[++i]);
    } else if (i + 1 < argc && word == "--mean-us") {
      mean_us = atof(argv[++i]);
    } else {
      fprintf(stderr, "arrivals: unknown option %s; see the comment in the source\n", word.c_str());
      return 2;
    }
  }
  Service service;
  printf("ready\n");
  fflush(stdout);
  if (!serves) Measure(service, seconds, mean_us);
  for (char line[64]; serves && fgets(line, sizeof(line), stdin) != nullptr;) Measure(service, atof(line), mean_us);
  return 0;
}
