// Ten steps of a five-point stencil on a torus, float, each step its own launch with buffers swapped; shared-memory
// halo. Every operation is rounded on its own, so the host gets the same bits.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kSide = 80, kTile = 16, kSteps = 10;

std::vector<float> Source() { return check::RandomFloats(kSide * kSide, 91); }

void Reference(Results& results) {
  std::vector<float> now = Source(), next(now.size());
  for (int step = 0; step < kSteps; ++step) {
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        auto at = [&](int ax, int ay) { return now[(ay + kSide) % kSide * kSide + (ax + kSide) % kSide]; };
        float sum = at(x - 1, y) + at(x + 1, y);
        sum = sum + at(x, y - 1);
        sum = sum + at(x, y + 1);
        next[y * kSide + x] = 0.5f * at(x, y) + 0.125f * sum;
      }
    now.swap(next);
  }
  results.Add("grid", now);
}

__global__ void Step(const float* in, float* out) {
  __shared__ float tile[kTile + 2][kTile + 2];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  int left = (x + kSide - 1) % kSide, right = (x + 1) % kSide, up = (y + kSide - 1) % kSide, down = (y + 1) % kSide;
  tile[ty][tx] = in[y * kSide + x];
  if (threadIdx.x == 0) tile[ty][0] = in[y * kSide + left];
  if (threadIdx.x == kTile - 1) tile[ty][kTile + 1] = in[y * kSide + right];
  if (threadIdx.y == 0) tile[0][tx] = in[up * kSide + x];
  if (threadIdx.y == kTile - 1) tile[kTile + 1][tx] = in[down * kSide + x];
  __syncthreads();
  float sum = __fadd_rn(tile[ty][tx - 1], tile[ty][tx + 1]);
  sum = __fadd_rn(sum, tile[ty - 1][tx]);
  sum = __fadd_rn(sum, tile[ty + 1][tx]);
  out[y * kSide + x] = __fadd_rn(__fmul_rn(0.5f, tile[ty][tx]), __fmul_rn(0.125f, sum));
}

void Device(Results& results) {
  check::DeviceBuffer<float> first(Source()), second(kSide * kSide);
  float *now = first.get(), *next = second.get();
  for (int step = 0; step < kSteps; ++step) {
    Step<<<dim3(kSide / kTile, kSide / kTile), dim3(kTile, kTile)>>>(now, next);
    CHECK_LAUNCH();
    std::swap(now, next);
  }
  results.Add("grid", kSteps % 2 == 0 ? first.Download() : second.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
