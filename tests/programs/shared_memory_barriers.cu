// Shared memory between barriers: a tiled transpose, a bitonic sort of each block's elements, and the barriers that
// also reduce (__syncthreads_count, _and, _or).
#include <algorithm>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kSide = 96, kTile = 16;
constexpr int kBlocks = 10, kThreads = 256;

void Reference(Results& results) {
  std::vector<int> in = check::RandomIntegers<int>(kSide * kSide, 41), out(in.size());
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) out[x * kSide + y] = in[y * kSide + x];
  results.Add("transpose", out);

  std::vector<int> values = check::RandomIntegers<int>(kBlocks * kThreads, 42);
  std::vector<int> reduced;
  for (int block = 0; block < kBlocks; ++block) {
    auto begin = values.begin() + block * kThreads, end = begin + kThreads;
    reduced.push_back(static_cast<int>(std::count_if(begin, end, [](int v) { return v % 3 == 0; })));
    reduced.push_back(std::all_of(begin, end, [](int v) { return (v & 255) != 7; }));
    reduced.push_back(std::any_of(begin, end, [](int v) { return (v & 511) == 9; }));
    std::sort(begin, end);
  }
  results.Add("sorted", values);
  results.Add("barrier reductions", reduced);
}

__global__ void Transpose(const int* in, int* out) {
  __shared__ int tile[kTile][kTile + 1];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = in[y * kSide + x];
  __syncthreads();
  int tx = blockIdx.y * kTile + threadIdx.x, ty = blockIdx.x * kTile + threadIdx.y;
  out[ty * kSide + tx] = tile[threadIdx.x][threadIdx.y];
}

__global__ void SortBlocks(int* values, int* reduced) {
  __shared__ int shared[kThreads];
  int i = threadIdx.x;
  int value = values[blockIdx.x * kThreads + i];
  shared[i] = value;
  int count = __syncthreads_count(value % 3 == 0);
  int all = __syncthreads_and((value & 255) != 7);
  int any = __syncthreads_or((value & 511) == 9);
  if (i == 0) {
    reduced[blockIdx.x * 3] = count;
    reduced[blockIdx.x * 3 + 1] = all != 0;
    reduced[blockIdx.x * 3 + 2] = any != 0;
  }
  for (int size = 2; size <= kThreads; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      int partner = i ^ stride;
      if (partner > i) {
        bool ascending = (i & size) == 0;
        int low = shared[i], high = shared[partner];
        if ((low > high) == ascending) {
          shared[i] = high;
          shared[partner] = low;
        }
      }
      __syncthreads();
    }
  }
  values[blockIdx.x * kThreads + i] = shared[i];
}

void Device(Results& results) {
  check::DeviceBuffer<int> in(check::RandomIntegers<int>(kSide * kSide, 41)), out(kSide * kSide);
  Transpose<<<dim3(kSide / kTile, kSide / kTile), dim3(kTile, kTile)>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("transpose", out.Download());
  check::DeviceBuffer<int> values(check::RandomIntegers<int>(kBlocks * kThreads, 42)), reduced(kBlocks * 3);
  SortBlocks<<<kBlocks, kThreads>>>(values.get(), reduced.get());
  CHECK_LAUNCH();
  results.Add("sorted", values.Download());
  results.Add("barrier reductions", reduced.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
