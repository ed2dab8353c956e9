// Tiled matrix product: float with explicit fused multiply-adds (the host uses fmaf in the same order), and integer
// with a size that is not a multiple of the tile.
#include <cmath>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kTile = 16;
constexpr int kFloatSide = 96, kIntegerSide = 83;

template <class T, class MultiplyAdd>
std::vector<T> Product(const std::vector<T>& a, const std::vector<T>& b, int side, MultiplyAdd multiply_add) {
  std::vector<T> c(side * side);
  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column) {
      T sum = 0;
      for (int k = 0; k < side; ++k) sum = multiply_add(a[row * side + k], b[k * side + column], sum);
      c[row * side + column] = sum;
    }
  return c;
}

void Reference(Results& results) {
  results.Add("float", Product(check::RandomFloats(kFloatSide * kFloatSide, 81),
                               check::RandomFloats(kFloatSide * kFloatSide, 82), kFloatSide,
                               [](float x, float y, float sum) { return std::fmaf(x, y, sum); }));
  results.Add("integer", Product(check::RandomIntegers<uint32_t>(kIntegerSide * kIntegerSide, 83),
                                 check::RandomIntegers<uint32_t>(kIntegerSide * kIntegerSide, 84), kIntegerSide,
                                 [](uint32_t x, uint32_t y, uint32_t sum) { return x * y + sum; }));
}

__device__ float MultiplyAdd(float x, float y, float sum) { return __fmaf_rn(x, y, sum); }
__device__ uint32_t MultiplyAdd(uint32_t x, uint32_t y, uint32_t sum) { return x * y + sum; }

template <class T>
__global__ void Multiply(const T* a, const T* b, T* c, int side) {
  __shared__ T tile_a[kTile][kTile], tile_b[kTile][kTile];
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  T sum = 0;
  for (int begin = 0; begin < side; begin += kTile) {
    int k_a = begin + threadIdx.x, k_b = begin + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < side && k_a < side ? a[row * side + k_a] : T(0);
    tile_b[threadIdx.y][threadIdx.x] = column < side && k_b < side ? b[k_b * side + column] : T(0);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum = MultiplyAdd(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
    __syncthreads();
  }
  if (row < side && column < side) c[row * side + column] = sum;
}

template <class T>
std::vector<T> MultiplyOnDevice(const std::vector<T>& a, const std::vector<T>& b, int side) {
  check::DeviceBuffer<T> a_device(a), b_device(b), c_device(side * side);
  dim3 grid((side + kTile - 1) / kTile, (side + kTile - 1) / kTile);
  Multiply<<<grid, dim3(kTile, kTile)>>>(a_device.get(), b_device.get(), c_device.get(), side);
  CHECK_LAUNCH();
  return c_device.Download();
}

void Device(Results& results) {
  results.Add("float", MultiplyOnDevice(check::RandomFloats(kFloatSide * kFloatSide, 81),
                                        check::RandomFloats(kFloatSide * kFloatSide, 82), kFloatSide));
  results.Add("integer",
              MultiplyOnDevice(check::RandomIntegers<uint32_t>(kIntegerSide * kIntegerSide, 83),
                               check::RandomIntegers<uint32_t>(kIntegerSide * kIntegerSide, 84), kIntegerSide));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
