// Kernels with much to be told: one struct of 4,000 bytes, twelve parameters of mixed types
// and alignments. The launch copies the bytes: the host changes them right afterwards.
#include "tests/programs/check.h"

using check::Results;

namespace {

struct Large {
  uint32_t words[1000];
};
struct alignas(16) Aligned {
  uint64_t low, high;
};
constexpr int kLaunches = 5;

uint32_t Word(uint32_t launch, uint32_t i) { return (launch * 1000 + i) * 2654435761u; }

void Reference(Results& results) {
  for (uint32_t launch = 0; launch < kLaunches; ++launch) {
    std::vector<uint32_t> out(1000);
    for (uint32_t i = 0; i < 1000; ++i) out[i] = Word(launch, 999 - i) ^ i;
    results.Add("struct", out);
  }
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 12; ++i) sum = sum * 31 + (i + 1);
  results.AddValue("mixed", sum);
}

__global__ void Copy(uint32_t* out, const Large large) {
  uint32_t i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < 1000) out[i] = large.words[999 - i] ^ i;
}

__global__ void Mixed(char a, double b, short c, Aligned d, bool e, uint64_t* out, float f, unsigned char g, int64_t h,
                      char i, uint16_t j, uint64_t k) {
  const uint64_t values[] = {static_cast<uint64_t>(a),
                             static_cast<uint64_t>(b),
                             static_cast<uint64_t>(c),
                             d.low,
                             d.high,
                             e ? 6u : 0u,
                             static_cast<uint64_t>(f),
                             g,
                             static_cast<uint64_t>(h),
                             static_cast<uint64_t>(i),
                             j,
                             k};
  uint64_t sum = 0;
  for (uint64_t value : values) sum = sum * 31 + value;
  *out = sum;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> out(1000 * kLaunches);
  Large large;
  for (uint32_t launch = 0; launch < kLaunches; ++launch) {
    for (uint32_t i = 0; i < 1000; ++i) large.words[i] = Word(launch, i);
    Copy<<<4, 256>>>(out.get() + launch * 1000, large);
    CHECK_LAUNCH();
    memset(&large, 0xff, sizeof(large));
  }
  std::vector<uint32_t> all = out.Download();
  for (int launch = 0; launch < kLaunches; ++launch) results.Add("struct", all.data() + launch * 1000, 1000);
  check::DeviceBuffer<uint64_t> sum(1);
  Mixed<<<1, 1>>>(1, 2.0, 3, Aligned{4, 5}, true, sum.get(), 7.0f, 8, 9, 10, 11, 12);
  CHECK_LAUNCH();
  results.AddValue("mixed", sum.Download()[0]);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
