// The high-priority half of the demo: a service that answers a request every few milliseconds and measures how long
// each one took, from the moment it was due (open loop: a late answer makes the next ones late too, and that counts)
// to the moment its result was on the host. A request is a copy, a chain of small matrix products, and a copy back.
//
//   latency_service [--seconds 5] [--requests 0 = until time is up] [--period-ms 20] [--size 16] [--chain 3] [--warm-up
//   3]
//
// Sizes suit a GPU in software; on a real one try --size 512 --period-ms 4.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/programs/demo/options.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTile = 16;

__global__ void Multiply(const uint32_t* a, const uint32_t* b, uint32_t* c, int side) {
  __shared__ uint32_t tile_a[kTile][kTile], tile_b[kTile][kTile];
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  uint32_t sum = 0;
  for (int begin = 0; begin < side; begin += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * side + begin + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(begin + threadIdx.y) * side + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * side + column] = sum;
}

class Service {
 public:
  Service(int side, int chain)
      : side_(side),
        chain_(chain),
        weights_(check::RandomIntegers<uint32_t>(side * side, 1)),
        weights_device_(weights_),
        first_(side * side),
        second_(side * side) {
    int least, greatest;
    CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    CHECK_CUDA(cudaMallocHost(&in_, bytes()));
    CHECK_CUDA(cudaMallocHost(&out_, bytes()));
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  // One request; the result is in out_ when it returns.
  void Answer(uint32_t request) {
    for (int i = 0; i < side_ * side_; ++i) in_[i] = request * 2654435761u + i;
    CHECK_CUDA(cudaMemcpyAsync(first_.get(), in_, bytes(), cudaMemcpyHostToDevice, stream_));
    uint32_t *from = first_.get(), *to = second_.get();
    for (int step = 0; step < chain_; ++step) {
      Multiply<<<dim3(side_ / kTile, side_ / kTile), dim3(kTile, kTile), 0, stream_>>>(from, weights_device_.get(), to,
                                                                                       side_);
      CHECK_LAUNCH();
      std::swap(from, to);
    }
    CHECK_CUDA(cudaMemcpyAsync(out_, from, bytes(), cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }

  // The first row of the last answer, computed again on the host.
  bool IsCorrect() const {
    std::vector<uint32_t> row(in_, in_ + side_), next(side_);
    for (int step = 0; step < chain_; ++step) {
      for (int column = 0; column < side_; ++column) {
        next[column] = 0;
        for (int k = 0; k < side_; ++k) next[column] += row[k] * weights_[k * side_ + column];
      }
      row = next;
    }
    return std::equal(row.begin(), row.end(), out_);
  }

 private:
  size_t bytes() const { return sizeof(uint32_t) * side_ * side_; }

  const int side_, chain_;
  std::vector<uint32_t> weights_;
  check::DeviceBuffer<uint32_t> weights_device_, first_, second_;
  cudaStream_t stream_ = nullptr;
  uint32_t *in_ = nullptr, *out_ = nullptr;
};

double Microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

}  // namespace

int main(int argc, char** argv) {
  demo::Options options = demo::ParseOptions(
      argc, argv, {{"seconds", 5}, {"requests", 0}, {"period-ms", 20}, {"size", 16}, {"chain", 3}, {"warm-up", 3}});
  int side = static_cast<int>(options["size"]);
  if (side < kTile || side % kTile != 0) check::Fail("--size must be a multiple of %d", kTile);
  Service service(side, std::max(1, static_cast<int>(options["chain"])));
  for (uint32_t i = 0; i < options["warm-up"]; ++i) service.Answer(i);

  auto period =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(options["period-ms"]));
  Clock::time_point begin = Clock::now(), due = begin;
  auto end = begin + std::chrono::duration<double>(options["seconds"]);
  std::vector<double> latencies;
  bool correct = true;
  for (uint32_t request = 0; options["requests"] > 0 ? request < options["requests"] : due < end; ++request) {
    std::this_thread::sleep_until(due);
    service.Answer(request);
    latencies.push_back(Microseconds(Clock::now() - due));
    correct = correct && service.IsCorrect();
    due += period;
  }
  if (!correct) check::Fail("an answer was wrong");
  if (latencies.empty()) check::Fail("no request was made");
  std::sort(latencies.begin(), latencies.end());
  double p50 = Quantile(latencies, 0.50), p90 = Quantile(latencies, 0.90), p99 = Quantile(latencies, 0.99);
  printf("latency_service: %zu requests, p50 %.0f us, p90 %.0f us, p99 %.0f us, max %.0f us\n", latencies.size(), p50,
         p90, p99, latencies.back());
  printf(
      "{\"program\": \"latency_service\", \"requests\": %zu, \"period_ms\": %g, \"size\": %d, \"p50_us\": %.1f, "
      "\"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
      latencies.size(), options["period-ms"], side, p50, p90, p99, latencies.back());
  return fflush(stdout) == 0 ? 0 : 1;
}
