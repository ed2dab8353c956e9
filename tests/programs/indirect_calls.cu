// Control flow that the compiler cannot flatten: recursion, calls through function pointers and virtual functions, a
// dense switch (indirect branch), and a deep stack set by cudaDeviceSetLimit.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kThreads = 192;

__host__ __device__ inline uint32_t SwitchOn(uint32_t x) {
  switch (x % 8) {
    case 0:
      return x * 3;
    case 1:
      return x ^ 0x55;
    case 2:
      return x + 1000;
    case 3:
      return x << 3;
    case 4:
      return ~x;
    case 5:
      return x * x;
    case 6:
      return x / 3;
    default:
      return x % 11;
  }
}

uint32_t HostAckermann(uint32_t m, uint32_t n) {
  if (m == 0) return n + 1;
  if (n == 0) return HostAckermann(m - 1, 1);
  return HostAckermann(m - 1, HostAckermann(m, n - 1));
}

void Reference(Results& results) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < kThreads; ++i) {
    out.push_back(HostAckermann(2, i % 6));
    const uint32_t through_pointer[] = {i + 3, i * 3, i ^ 3};
    out.push_back(through_pointer[i % 3]);
    out.push_back(i % 2 ? i * i + 1 : i + 100);
    uint32_t x = i;
    for (int k = 0; k < 20; ++k) x = SwitchOn(x) + k;
    out.push_back(x);
  }
  results.Add("out", out);
  results.AddValue<uint32_t>("stack limit is at least what was asked for", 1);
}

__device__ __noinline__ uint32_t Ackermann(uint32_t m, uint32_t n) {
  if (m == 0) return n + 1;
  if (n == 0) return Ackermann(m - 1, 1);
  return Ackermann(m - 1, Ackermann(m, n - 1));
}

using Operation = uint32_t (*)(uint32_t, uint32_t);
__device__ __noinline__ uint32_t Add(uint32_t a, uint32_t b) { return a + b; }
__device__ __noinline__ uint32_t Multiply(uint32_t a, uint32_t b) { return a * b; }
__device__ __noinline__ uint32_t ExclusiveOr(uint32_t a, uint32_t b) { return a ^ b; }
__device__ Operation operations[] = {Add, Multiply, ExclusiveOr};

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual uint32_t Area(uint32_t x) const = 0;
};
struct Square : Shape {
  uint32_t extra = 1;
  __device__ uint32_t Area(uint32_t x) const override { return x * x + extra; }
};
struct Strip : Shape {
  __device__ uint32_t Area(uint32_t x) const override { return x + 100; }
};

__global__ void Run(uint32_t* out) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i * 4] = Ackermann(2, i % 6);
  out[i * 4 + 1] = operations[i % 3](i, 3);
  Square square;
  Strip strip;
  const Shape* shape = i % 2 ? static_cast<const Shape*>(&square) : &strip;
  out[i * 4 + 2] = shape->Area(i);
  uint32_t x = i;
  for (int k = 0; k < 20; ++k) x = SwitchOn(x) + k;
  out[i * 4 + 3] = x;
}

void Device(Results& results) {
  CHECK_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  check::DeviceBuffer<uint32_t> out(kThreads * 4);
  Run<<<3, kThreads / 3>>>(out.get());
  CHECK_LAUNCH();
  results.Add("out", out.Download());
  size_t limit = 0;
  CHECK_CUDA(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
  results.AddValue<uint32_t>("stack limit is at least what was asked for", limit >= 8192);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
