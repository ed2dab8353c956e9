// Pitched copies: cudaMemcpy2D(Async) and cudaMemcpy3D with different pitches on either side, sub-boxes, and
// device-to-device. Only the logical rows are results: the pitch that cudaMallocPitch chooses is the driver's business.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr size_t kWidth = 237, kHeight = 61, kDepth = 7;  // bytes, rows, slices
constexpr size_t kHostPitch = 251;

std::vector<uint8_t> Source2D() { return check::RandomIntegers<uint8_t>(kHostPitch * kHeight, 11); }
std::vector<uint8_t> Source3D() { return check::RandomIntegers<uint8_t>(kHostPitch * kHeight * kDepth, 12); }

void Reference(Results& results) {
  std::vector<uint8_t> source = Source2D(), target(kWidth * kHeight);
  for (size_t row = 0; row < kHeight; ++row) memcpy(&target[row * kWidth], &source[row * kHostPitch], kWidth);
  results.Add("2-D", target);
  std::vector<uint8_t> box(kWidth * kHeight, 0);  // a 100 x 20 box from (17, 5) to (31, 40)
  for (size_t row = 0; row < 20; ++row)
    memcpy(&box[(40 + row) * kWidth + 31], &source[(5 + row) * kHostPitch + 17], 100);
  results.Add("2-D box", box);

  std::vector<uint8_t> source_3d = Source3D(), volume(kWidth * kHeight * kDepth);
  for (size_t row = 0; row < kHeight * kDepth; ++row) {
    memcpy(&volume[row * kWidth], &source_3d[row * kHostPitch], kWidth);
  }
  results.Add("3-D", volume);
  std::vector<uint8_t> inner(kWidth * kHeight * kDepth, 0x5a);  // a 64 x 10 x 3 box from (9, 8, 1) to (33, 20, 4)
  for (size_t z = 0; z < 3; ++z) {
    for (size_t y = 0; y < 10; ++y) {
      memcpy(&inner[((4 + z) * kHeight + 20 + y) * kWidth + 33],
             &source_3d[((1 + z) * kHeight + 8 + y) * kHostPitch + 9], 64);
    }
  }
  results.Add("3-D box", inner);
}

cudaMemcpy3DParms Box(cudaPitchedPtr source, cudaPos from, cudaPitchedPtr target, cudaPos to, cudaExtent extent,
                      cudaMemcpyKind kind) {
  cudaMemcpy3DParms parameters = {};
  parameters.srcPtr = source;
  parameters.srcPos = from;
  parameters.dstPtr = target;
  parameters.dstPos = to;
  parameters.extent = extent;
  parameters.kind = kind;
  return parameters;
}

void Device(Results& results) {
  std::vector<uint8_t> source = Source2D(), target(kWidth * kHeight, 0xff);
  uint8_t *first, *second;
  size_t first_pitch, second_pitch;
  CHECK_CUDA(cudaMallocPitch(&first, &first_pitch, kWidth, kHeight));
  CHECK_CUDA(cudaMallocPitch(&second, &second_pitch, kWidth + 600, kHeight));
  CHECK_CUDA(cudaMemcpy2D(first, first_pitch, source.data(), kHostPitch, kWidth, kHeight, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy2D(second, second_pitch, first, first_pitch, kWidth, kHeight, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaMemcpy2D(target.data(), kWidth, second, second_pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  results.Add("2-D", target);

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  std::vector<uint8_t> box(kWidth * kHeight, 0xff);
  CHECK_CUDA(cudaMemset2DAsync(second, second_pitch, 0, kWidth, kHeight, stream));
  CHECK_CUDA(cudaMemcpy2DAsync(second + 40 * second_pitch + 31, second_pitch, first + 5 * first_pitch + 17, first_pitch,
                               100, 20, cudaMemcpyDeviceToDevice, stream));
  CHECK_CUDA(
      cudaMemcpy2DAsync(box.data(), kWidth, second, second_pitch, kWidth, kHeight, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("2-D box", box);

  std::vector<uint8_t> source_3d = Source3D(), volume(kWidth * kHeight * kDepth, 0xff);
  cudaExtent all = make_cudaExtent(kWidth, kHeight, kDepth);
  cudaPos origin = make_cudaPos(0, 0, 0);
  cudaPitchedPtr host_source = make_cudaPitchedPtr(source_3d.data(), kHostPitch, kWidth, kHeight);
  cudaPitchedPtr host_target = make_cudaPitchedPtr(volume.data(), kWidth, kWidth, kHeight);
  cudaPitchedPtr left, right;
  CHECK_CUDA(cudaMalloc3D(&left, all));
  CHECK_CUDA(cudaMalloc3D(&right, make_cudaExtent(kWidth + 300, kHeight + 3, kDepth)));
  cudaMemcpy3DParms up = Box(host_source, origin, left, origin, all, cudaMemcpyHostToDevice);
  cudaMemcpy3DParms across = Box(left, origin, right, origin, all, cudaMemcpyDeviceToDevice);
  cudaMemcpy3DParms down = Box(right, origin, host_target, origin, all, cudaMemcpyDeviceToHost);
  CHECK_CUDA(cudaMemcpy3D(&up));
  CHECK_CUDA(cudaMemcpy3DAsync(&across, stream));
  CHECK_CUDA(cudaMemcpy3DAsync(&down, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("3-D", volume);

  CHECK_CUDA(cudaMemset3D(right, 0x5a, all));
  cudaMemcpy3DParms inner = Box(left, make_cudaPos(9, 8, 1), right, make_cudaPos(33, 20, 4), make_cudaExtent(64, 10, 3),
                                cudaMemcpyDeviceToDevice);
  CHECK_CUDA(cudaMemcpy3D(&inner));
  CHECK_CUDA(cudaMemcpy3D(&down));
  results.Add("3-D box", volume);
  CHECK_CUDA(cudaFree(first));
  CHECK_CUDA(cudaFree(second));
  CHECK_CUDA(cudaFree(left.ptr));
  CHECK_CUDA(cudaFree(right.ptr));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
