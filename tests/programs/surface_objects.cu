// Surface objects: reads and writes in one to three dimensions and layers, elements of 1 to 16 bytes, and what happens
// outside: clamped to the edge, or zero and dropped.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kWidth = 32, kHeight = 8, kDepth = 4;

// Every thread writes its own texel and reads, from another surface, that of its mirror image.
__global__ void Invert(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x);
  const unsigned value = surf2Dread<unsigned>(from, (kWidth - 1 - x) * 4, kHeight - 1 - y);
  surf2Dwrite<unsigned>(value * 2 + 1, to, x * 4, y);
}
// Two to the left and right of the row.
__global__ void Outside(cudaSurfaceObject_t surface, unsigned* clamped, unsigned* zeros) {
  const int x = static_cast<int>(threadIdx.x) - 2;
  clamped[threadIdx.x] = surf2Dread<unsigned>(surface, x * 4, -3, cudaBoundaryModeClamp);
  zeros[threadIdx.x] = surf2Dread<unsigned>(surface, x * 4, 1, cudaBoundaryModeZero);
  surf2Dwrite<unsigned>(0xbad, surface, x * 4, kHeight + 1, cudaBoundaryModeZero);  // dropped
}
__global__ void WriteRow(cudaSurfaceObject_t surface) {
  const unsigned short x = static_cast<unsigned short>(threadIdx.x);
  surf1Dwrite(make_ushort2(x, static_cast<unsigned short>(x * 3)), surface, x * 4);
}
__global__ void WriteVolume(cudaSurfaceObject_t surface) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x), z = static_cast<int>(blockIdx.y);
  surf3Dwrite(make_float4(x, y, z, x + y + z), surface, x * 16, y, z);
}
__global__ void SumVolume(cudaSurfaceObject_t surface, float* out) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x), z = static_cast<int>(blockIdx.y);
  float4 value;
  surf3Dread(&value, surface, x * 16, y, z);
  out[(z * kHeight + y) * kWidth + x] = value.x * 100 + value.y * 10 + value.z - value.w;
}
__global__ void WriteLayers(cudaSurfaceObject_t surface) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x), layer = static_cast<int>(blockIdx.y);
  if (x % 2 == 0) surf2DLayeredwrite(static_cast<unsigned char>(x + 8 * y + 64 * layer), surface, x, y, layer);
}

void Reference(Results& results) {
  std::vector<unsigned> inverted, clamped, zeros;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      inverted.push_back(static_cast<unsigned>((kHeight - 1 - y) * 1000 + kWidth - 1 - x) * 2 + 1);
    }
  }
  results.Add("inverted", inverted);
  for (int i = 0; i < kWidth + 4; ++i) {
    const int x = i - 2, edge = x < 0 ? 0 : x >= kWidth ? kWidth - 1 : x;
    clamped.push_back(static_cast<unsigned>(edge));
    zeros.push_back(x == edge ? static_cast<unsigned>(1000 + x) : 0);
  }
  results.Add("clamped", clamped);
  results.Add("zero outside", zeros);
  std::vector<unsigned short> row;
  for (int x = 0; x < kWidth; ++x) {
    row.push_back(static_cast<unsigned short>(x));
    row.push_back(static_cast<unsigned short>(x * 3));
  }
  results.Add("row", row);
  std::vector<float> sums;
  std::vector<unsigned char> layers;
  for (int z = 0; z < kDepth; ++z) {
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        sums.push_back(static_cast<float>(x * 100 + y * 10 + z - (x + y + z)));
        layers.push_back(x % 2 == 0 ? static_cast<unsigned char>(x + 8 * y + 64 * z) : 7);
      }
    }
  }
  results.Add("volume", sums);
  results.Add("layers", layers);
}

cudaArray_t MakeArray(const cudaChannelFormatDesc& format, int width, int height, int depth, unsigned flags = 0) {
  cudaArray_t array = nullptr;
  CHECK_CUDA(cudaMalloc3DArray(
      &array, &format,
      make_cudaExtent(static_cast<size_t>(width), static_cast<size_t>(height), static_cast<size_t>(depth)),
      cudaArraySurfaceLoadStore | flags));
  return array;
}

cudaSurfaceObject_t Surface(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
  return surface;
}

void Device(Results& results) {
  cudaArray_t from = MakeArray(cudaCreateChannelDesc<unsigned>(), kWidth, kHeight, 0);
  cudaArray_t to = MakeArray(cudaCreateChannelDesc<unsigned>(), kWidth, kHeight, 0);
  std::vector<unsigned> texels;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) texels.push_back(static_cast<unsigned>(y * 1000 + x));
  }
  CHECK_CUDA(cudaMemcpy2DToArray(from, 0, 0, texels.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  cudaSurfaceObject_t source = Surface(from), target = Surface(to);
  Invert<<<kHeight, kWidth>>>(source, target);
  CHECK_LAUNCH();
  std::vector<unsigned> inverted(texels.size());
  CHECK_CUDA(cudaMemcpy2DFromArray(inverted.data(), kWidth * 4, to, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToHost));
  results.Add("inverted", inverted);
  check::DeviceBuffer<unsigned> clamped(kWidth + 4), zeros(kWidth + 4);
  Outside<<<1, kWidth + 4>>>(source, clamped.get(), zeros.get());
  CHECK_LAUNCH();
  results.Add("clamped", clamped.Download());
  results.Add("zero outside", zeros.Download());
  CHECK_CUDA(cudaDestroySurfaceObject(source));
  CHECK_CUDA(cudaDestroySurfaceObject(target));
  CHECK_CUDA(cudaFreeArray(from));
  CHECK_CUDA(cudaFreeArray(to));

  cudaArray_t row = MakeArray(cudaCreateChannelDesc<ushort2>(), kWidth, 0, 0);
  cudaSurfaceObject_t surface = Surface(row);
  WriteRow<<<1, kWidth>>>(surface);
  CHECK_LAUNCH();
  std::vector<unsigned short> shorts(kWidth * 2);
  CHECK_CUDA(cudaMemcpy2DFromArray(shorts.data(), kWidth * 4, row, 0, 0, kWidth * 4, 1, cudaMemcpyDeviceToHost));
  results.Add("row", shorts);
  CHECK_CUDA(cudaDestroySurfaceObject(surface));
  CHECK_CUDA(cudaFreeArray(row));

  cudaArray_t volume = MakeArray(cudaCreateChannelDesc<float4>(), kWidth, kHeight, kDepth);
  surface = Surface(volume);
  WriteVolume<<<dim3(kHeight, kDepth), kWidth>>>(surface);
  CHECK_LAUNCH();
  check::DeviceBuffer<float> sums(kWidth * kHeight * kDepth);
  SumVolume<<<dim3(kHeight, kDepth), kWidth>>>(surface, sums.get());
  CHECK_LAUNCH();
  results.Add("volume", sums.Download());
  CHECK_CUDA(cudaDestroySurfaceObject(surface));
  CHECK_CUDA(cudaFreeArray(volume));

  cudaArray_t layered = MakeArray(cudaCreateChannelDesc<unsigned char>(), kWidth, kHeight, kDepth, cudaArrayLayered);
  std::vector<unsigned char> bytes(kWidth * kHeight * kDepth, 7);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(bytes.data(), kWidth, kWidth, kHeight);
  copy.dstArray = layered;
  copy.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaMemcpy3D(&copy));
  surface = Surface(layered);
  WriteLayers<<<dim3(kHeight, kDepth), kWidth>>>(surface);
  CHECK_LAUNCH();
  copy = {};
  copy.srcArray = layered;
  copy.dstPtr = make_cudaPitchedPtr(bytes.data(), kWidth, kWidth, kHeight);
  copy.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK_CUDA(cudaMemcpy3D(&copy));
  results.Add("layers", bytes);
  CHECK_CUDA(cudaDestroySurfaceObject(surface));
  CHECK_CUDA(cudaFreeArray(layered));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
