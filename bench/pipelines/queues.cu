// Bandwidth of pipelines/queue: pairs of blocks, one on each multiprocessor, every 16 bytes made by the producer's
// threads and checked by the consumer's. Plain CUDA: it knows nothing of Tally. A wrong byte or a stuck pair is exit
// status 1.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/pipelines/queue_kernels.cuh"

namespace {

using tally_queue::kStages;
using tally_queue::kWordsPerLine;
using tally_queue::Run;

constexpr uint32_t kThreadCounts[] = {256, 512};  // of a block
constexpr uint32_t kDepth = 4;
constexpr uint32_t kSharedBytes = 227 * 1024;  // of a block
constexpr int kRepetitions = 5;
constexpr uint32_t kBytesPerPair = 96 << 20;  // in one launch
constexpr auto kPatience = std::chrono::seconds(10);

struct Form {
  const char* name;
  void (*kernels[3])(Run);  // bulk copies: in 1, 2, 4 pieces
  bool is_bulk, is_cluster;
  uint32_t target_kb;  // 0: none
  double target_gbs;   // of the issue's table, on 132 multiprocessors
};
const Form kForms[] = {
    {"release/acquire", {pass_plain}, false, false, 128, 3000},
    {"bulk copies", {pass_bulk_1, pass_bulk_2, pass_bulk_4}, true, false, 128, 4000},
    {"cluster, copied", {pass_cluster_copies}, false, true, 64, 5000},
    {"cluster, stored", {pass_cluster_stores}, false, true, 0, 0},
};

void Must(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "queues: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

// One way of passing slots, prepared.
class Passing {
 public:
  Passing(const Form& form, uint32_t pairs, uint32_t threads, uint32_t slot_bytes, uint32_t count)
      : form_(form), pairs_(pairs), threads_(threads) {
    const uint32_t pieces = !form.is_bulk || slot_bytes <= 32 * 1024 ? 1 : slot_bytes / (32 * 1024);
    kernel_ = form.kernels[pieces / 2];
    run_.depth = form.is_cluster ? std::min(kDepth, (kSharedBytes - 128) / slot_bytes) : kDepth;
    run_.slot_bytes = slot_bytes;
    run_.consumers = 1;
    run_.count = count;
    run_.producer_ends_at = run_.consumer_ends_at = run_.producer_aborts_at = tally_queue::kNever;
    shared_bytes_ = form.is_cluster ? run_.depth * slot_bytes + 8 * (2 * run_.depth + 1)
                    : form.is_bulk  ? kStages * (slot_bytes / pieces + 8)
                                    : 0;
    Must(cudaMalloc(&run_.slots, size_t{pairs} * run_.depth * slot_bytes), "cudaMalloc");
    Must(cudaMalloc(&run_.words, WordsBytes()), "cudaMalloc");
    Must(cudaMalloc(&run_.wrong, 4 * (1 + pairs)), "cudaMalloc");
    run_.taken = run_.wrong + 1;
    Must(cudaHostAlloc(&abort_, 4, cudaHostAllocMapped), "cudaHostAlloc");
    Must(cudaHostGetDevicePointer(&run_.abort, abort_, 0), "cudaHostGetDevicePointer");
    Must(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes_)),
         "cudaFuncSetAttribute");
    for (cudaEvent_t& event : events_) Must(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~Passing() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaFree(run_.slots);
    cudaFree(run_.words);
    cudaFree(run_.wrong);
    cudaFreeHost(abort_);
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

  // ms; negative: stuck, or wrong data, which is printed.
  float Once() {
    *static_cast<volatile uint32_t*>(abort_) = 0;
    Must(cudaMemset(run_.words, 0, WordsBytes()), "cudaMemset");
    Must(cudaMemset(run_.wrong, 0, 4 * (1 + pairs_)), "cudaMemset");
    Must(cudaEventRecord(events_[0]), "cudaEventRecord");
    void* parameters[] = {&run_};
    const void* const kernel = reinterpret_cast<const void*>(kernel_);
    // Both blocks of a pair run at once: the whole grid does, or their cluster.
    Must(form_.is_cluster
             ? cudaLaunchKernel(kernel, 2 * pairs_, threads_, parameters, shared_bytes_, nullptr)
             : cudaLaunchCooperativeKernel(kernel, 2 * pairs_, threads_, parameters, shared_bytes_, nullptr),
         form_.name);
    Must(cudaEventRecord(events_[1]), "cudaEventRecord");
    const bool was_stuck = !AwaitEnd();
    Must(cudaDeviceSynchronize(), form_.name);
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, events_[0], events_[1]), "cudaEventElapsedTime");
    return IsRight() && !was_stuck ? ms : -1;
  }
  uint32_t depth() const { return run_.depth; }

 private:
  size_t WordsBytes() const { return size_t{pairs_} * 2 * kWordsPerLine * 4; }
  // False: the host gave up, and ended it.
  bool AwaitEnd() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (cudaEventQuery(events_[1]) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() > deadline) {
        *static_cast<volatile uint32_t*>(abort_) = 1;
        std::fprintf(stderr, "queues: %s is stuck\n", form_.name);
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  bool IsRight() const {
    std::vector<uint32_t> counts(1 + pairs_);
    Must(cudaMemcpy(counts.data(), run_.wrong, 4 * counts.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const bool all_came = std::count(counts.begin() + 1, counts.end(), run_.count) == static_cast<long>(pairs_);
    if (counts[0] != 0 || !all_came) {
      std::fprintf(stderr, "queues: %s: %u times 16 bytes are wrong%s\n", form_.name, counts[0],
                   all_came ? "" : ", and not all slots came");
    }
    return counts[0] == 0 && all_came;
  }

  const Form& form_;
  uint32_t pairs_, threads_;
  void (*kernel_)(Run) = nullptr;
  Run run_{};
  uint32_t shared_bytes_ = 0;
  uint32_t* abort_ = nullptr;
  cudaEvent_t events_[2] = {};
};

// False: something went wrong.
bool Measure(const Form& form, uint32_t pairs, uint32_t threads, uint32_t kb, bool is_smoke) {
  const uint32_t count = is_smoke ? 6 : kBytesPerPair / (kb * 1024);
  Passing passing(form, pairs, threads, kb * 1024, count);
  std::vector<float> times;
  for (int k = -1; k < (is_smoke ? 1 : kRepetitions); ++k) {  // the first one warms up
    const float ms = passing.Once();
    if (ms < 0) return false;
    if (k >= 0) times.push_back(ms);
  }
  if (is_smoke) {
    std::printf("| %-16s | %7u | %4u | %5u | right |\n", form.name, threads, kb, passing.depth());
    return true;
  }
  std::sort(times.begin(), times.end());
  const auto gbs = [&](float ms) { return 2e-6 * pairs * count * kb * 1024 / ms; };
  const double median = gbs(times[times.size() / 2]);
  std::printf("| %-16s | %7u | %4u | %5u | %7.0f | %7.0f |", form.name, threads, kb, passing.depth(), median,
              gbs(times[0]));
  if (form.target_kb == kb) {
    std::printf(" >= %.0f: %s |\n", form.target_gbs, median >= form.target_gbs ? "reached" : "not reached");
  } else {
    std::printf(" |\n");
  }
  std::fflush(stdout);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_smoke = argc == 2 && std::strcmp(argv[1], "--smoke") == 0;
  if (argc > 1 && !is_smoke) {
    std::fprintf(stderr, "queues [--smoke]\n  --smoke: little of everything; its times mean nothing\n");
    return 2;
  }
  cudaDeviceProp device{};
  Must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const uint32_t pairs = is_smoke ? 2 : static_cast<uint32_t>(device.multiProcessorCount) / 2;
  std::printf("%s, %u pairs of blocks\n\n", device.name, pairs);
  std::printf(
      is_smoke
          ? "| form | threads | KB | depth | contents |\n|---|---|---|---|---|\n"
          : "tx+rx GB/s:\n\n| form | threads | KB | depth | median | best | reach |\n|---|---|---|---|---|---|---|\n");
  bool is_right = true;
  for (const Form& form : kForms) {
    for (const uint32_t kb : {4u, 8u, 16u, 32u, 64u, 128u}) {
      if (form.is_cluster && kb > 64) continue;  // two slots do not fit
      if (is_smoke && kb != 4 && kb != 64 && kb != 128) continue;
      for (const uint32_t threads : kThreadCounts) is_right &= Measure(form, pairs, threads, kb, is_smoke);
    }
  }
  return is_right ? 0 : 1;
}
