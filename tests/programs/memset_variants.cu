// Every form of memset: bytes (synchronous and on a stream), 16- and 32-bit patterns through the driver, pitched 2-D
// and 3-D, odd offsets and lengths, zero length.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr size_t kBytes = 10007;

void Reference(Results& results) {
  std::vector<uint8_t> bytes(kBytes, 0);
  memset(&bytes[1], 0xa5, 333);
  memset(&bytes[400], 0x3c, 4097);
  results.Add("bytes", bytes);

  std::vector<uint8_t> patterns(kBytes, 0);
  for (size_t i = 0; i < 1001; ++i) memcpy(&patterns[2 + 2 * i], "\x34\x12", 2);
  for (size_t i = 0; i < 777; ++i) memcpy(&patterns[4000 + 4 * i], "\xef\xbe\xad\xde", 4);
  results.Add("16 and 32 bit", patterns);

  std::vector<uint8_t> rows(64 * 32, 0);
  for (size_t row = 0; row < 9; ++row) memset(&rows[row * 64 + 3], 0x77, 50);
  for (size_t row = 0; row < 5; ++row) {
    for (size_t i = 0; i < 6; ++i) memcpy(&rows[(20 + row) * 64 + 4 * i], "\x0d\xf0\xad\x8b", 4);
  }
  results.Add("2-D", rows);

  std::vector<uint8_t> volume(32 * 8 * 4, 1);
  for (size_t z = 0; z < 3; ++z) {
    for (size_t y = 0; y < 5; ++y) memset(&volume[(z * 8 + y) * 32], 0x42, 29);
  }
  results.Add("3-D", volume);
}

void Device(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  check::DeviceBuffer<uint8_t> buffer(kBytes);
  buffer.Zero();
  CHECK_CUDA(cudaMemset(buffer.get() + 1, 0xa5, 333));
  CHECK_CUDA(cudaMemset(buffer.get() + 5000, 0xff, 0));
  CHECK_CUDA(cudaMemsetAsync(buffer.get() + 400, 0x13c, 4097, stream));  // only the low byte counts
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("bytes", buffer.Download());

  buffer.Zero();
  CUdeviceptr address = reinterpret_cast<CUdeviceptr>(buffer.get());
  CHECK_DRIVER(DRIVER_ENTRY(cuMemsetD16)(address + 2, 0x1234, 1001));
  CHECK_DRIVER(DRIVER_ENTRY(cuMemsetD32Async)(address + 4000, 0xdeadbeefu, 777, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("16 and 32 bit", buffer.Download());

  check::DeviceBuffer<uint8_t> rows(64 * 32);
  rows.Zero();
  CHECK_CUDA(cudaMemset2D(rows.get() + 3, 64, 0x77, 50, 9));
  CHECK_DRIVER(DRIVER_ENTRY(cuMemsetD2D32)(reinterpret_cast<CUdeviceptr>(rows.get()) + 20 * 64, 64, 0x8badf00du, 6, 5));
  results.Add("2-D", rows.Download());

  check::DeviceBuffer<uint8_t> volume(32 * 8 * 4);
  CHECK_CUDA(cudaMemset(volume.get(), 1, 32 * 8 * 4));
  cudaPitchedPtr pitched = make_cudaPitchedPtr(volume.get(), 32, 32, 8);
  CHECK_CUDA(cudaMemset3DAsync(pitched, 0x42, make_cudaExtent(29, 5, 3), stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("3-D", volume.Download());
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
