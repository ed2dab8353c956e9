// Several devices in one program: kernels on each, copies between them (blocking, in a stream, of boxes), an event of
// one device that the other's stream waits for, a thread for each device, kernels that use the other device's memory,
// fills of it, and what enabling access twice answers. With one device both roles are played by it, and what needs two
// is left out (PROGRAM_NEEDS_DEVICES=2 makes that a failure).
#include <thread>

#include "tests/programs/device_count.h"

using check::Results;

namespace {

constexpr int kCount = 3000;

void Reference(Results& results) {
  std::vector<uint32_t> there, in_place;
  for (uint32_t i = 0; i < kCount; ++i) {
    there.push_back(i * 3 + 1 + 1000);
    in_place.push_back((i * 3 + 1) * 2);
  }
  results.Add("over there and back", there);
  results.Add("after an event", there);
  results.Add("box", std::vector<uint32_t>(there.begin(), there.begin() + 256));
  results.Add("in place", in_place);
  results.Add("pageable, by turns", std::vector<uint32_t>(300000, 0x01020304));
  results.Add("two threads", std::vector<uint32_t>{8 * 5000u, 8 * 5000u});
  results.AddValue<uint32_t>("answers", 1);
}

__global__ void Make(uint32_t* values, uint32_t count) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * 3 + 1;
}

__global__ void Plus(uint32_t* values, uint32_t count, uint32_t what) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what;
}

__global__ void Twice(const uint32_t* from, uint32_t* to, uint32_t count) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i] * 2;
}

__global__ void Count(uint32_t* counter, int rounds) {
  for (int i = 0; i < rounds; ++i) atomicAdd(counter, 1);
}

uint32_t CountOn(int device) {
  CHECK_CUDA(cudaSetDevice(device));
  check::DeviceBuffer<uint32_t> counter(1);
  counter.Zero();
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  for (int launch = 0; launch < 50; ++launch) Count<<<1, 8, 0, stream>>>(counter.get(), 100);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamDestroy(stream));
  int current = -1;
  CHECK_CUDA(cudaGetDevice(&current));
  if (current != device) check::Fail("thread of device %d is on device %d", device, current);
  return counter.Download()[0];
}

void Device(Results& results) {
  const int num_devices = check::CountDevices();
  const int other = num_devices > 1 ? 1 : 0;

  uint32_t *here, *there;
  cudaStream_t here_stream, there_stream;
  cudaEvent_t here_event, there_event;
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaMalloc(&here, kCount * 4));
  CHECK_CUDA(cudaStreamCreateWithFlags(&here_stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&here_event, cudaEventDisableTiming));
  CHECK_CUDA(cudaSetDevice(other));
  CHECK_CUDA(cudaMalloc(&there, kCount * 4));
  CHECK_CUDA(cudaStreamCreateWithFlags(&there_stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&there_event, cudaEventDisableTiming));

  bool as_expected = true;
  const auto expect = [&](const char* what, cudaError_t got, cudaError_t wanted) {
    cudaGetLastError();
    if (got == wanted) return;
    printf("%s: %s, expected %s\n", what, cudaGetErrorName(got), cudaGetErrorName(wanted));
    as_expected = false;
  };

  std::vector<uint32_t> values(kCount);
  const auto download = [&](uint32_t* from) {
    CHECK_CUDA(cudaMemcpy(values.data(), from, kCount * 4, cudaMemcpyDefault));
    return values;
  };

  // Over, changed there, and back, each device's own legacy stream.
  CHECK_CUDA(cudaSetDevice(0));
  Make<<<12, 256>>>(here, kCount);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaMemcpyPeer(there, other, here, 0, kCount * 4));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaSetDevice(other));
  Plus<<<12, 256>>>(there, kCount, 1000);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaMemcpyPeer(here, 0, there, other, kCount * 4));
  CHECK_CUDA(cudaDeviceSynchronize());
  results.Add("over there and back", download(here));

  // The same in streams that wait for each other's events, many times; the last round is what counts.
  for (int round = 0; round < 20; ++round) {
    CHECK_CUDA(cudaSetDevice(0));
    Make<<<12, 256, 0, here_stream>>>(here, kCount);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyPeerAsync(there, other, here, 0, kCount * 4, here_stream));
    CHECK_CUDA(cudaEventRecord(here_event, here_stream));
    CHECK_CUDA(cudaSetDevice(other));
    CHECK_CUDA(cudaStreamWaitEvent(there_stream, here_event, 0));
    Plus<<<12, 256, 0, there_stream>>>(there, kCount, 1000);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(there_event, there_stream));
    CHECK_CUDA(cudaStreamWaitEvent(here_stream, there_event, 0));
  }
  CHECK_CUDA(
      cudaMemcpyAsync(here, there, kCount * 4, cudaMemcpyDeviceToDevice, here_stream));  // while `other` is current
  CHECK_CUDA(cudaStreamSynchronize(here_stream));
  results.Add("after an event", download(here));

  cudaMemcpy3DPeerParms box = {};
  box.srcDevice = other;
  box.dstDevice = 0;
  box.srcPtr = make_cudaPitchedPtr(there, 64, 64, 16);
  box.dstPtr = make_cudaPitchedPtr(here, 64, 64, 16);
  box.extent = make_cudaExtent(64, 16, 1);
  // Copies may name memory of any device, whichever is current; a fill may not, without access to it.
  if (other != 0) {
    expect("fill another device's memory", cudaMemset(here, 0, kCount * 4), cudaErrorInvalidValue);
    expect("... in a stream", cudaMemsetAsync(here, 0, kCount * 4, there_stream), cudaErrorInvalidValue);
  }
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaMemset(here, 0, kCount * 4));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaSetDevice(other));
  CHECK_CUDA(cudaMemcpy3DPeer(&box));
  CHECK_CUDA(cudaDeviceSynchronize());
  values.resize(256);
  CHECK_CUDA(cudaMemcpy(values.data(), here, 1024, cudaMemcpyDeviceToHost));
  results.Add("box", values);
  values.resize(kCount);

  // A kernel of one device that reads the other's memory.
  CHECK_CUDA(cudaSetDevice(0));
  Make<<<12, 256>>>(here, kCount);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaSetDevice(other));
  int can_access = 1;
  if (other != 0) CHECK_CUDA(cudaDeviceCanAccessPeer(&can_access, other, 0));
  if (other != 0 && can_access != 0) CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
  if (can_access != 0) {
    Twice<<<12, 256>>>(here, there, kCount);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
  } else {
    printf("no peer access between these devices: copied instead\n");
    CHECK_CUDA(cudaMemcpyPeer(there, other, here, 0, kCount * 4));
    Twice<<<12, 256>>>(there, there, kCount);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  results.Add("in place", download(there));

  // Pageable copies of more than one piece, to and from the two devices by turns.
  std::vector<uint32_t> large(300000, 0x01020304), back(300000);
  check::DeviceBuffer<uint32_t> there_large(large.size());
  CHECK_CUDA(cudaSetDevice(0));
  check::DeviceBuffer<uint32_t> here_large(large.size());
  for (int round = 0; round < 4; ++round) {
    CHECK_CUDA(cudaSetDevice(0));
    here_large.Upload(large);
    CHECK_CUDA(cudaSetDevice(other));
    there_large.Upload(here_large.Download());
    back = there_large.Download();
  }
  results.Add("pageable, by turns", back);

  uint32_t counted[2] = {};
  std::thread first([&] { counted[0] = CountOn(0); });
  std::thread second([&] { counted[1] = CountOn(other); });
  first.join();
  second.join();
  results.Add("two threads", std::vector<uint32_t>{counted[0], counted[1]});

  if (other != 0 && can_access != 0) {
    CHECK_CUDA(cudaSetDevice(other));
    expect("enable again", cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    expect("disable", cudaDeviceDisablePeerAccess(0), cudaSuccess);
    expect("disable again", cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
    expect("enable anew", cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    expect("fill with access", cudaMemset(here, 0, kCount * 4), cudaSuccess);
    expect("wait for it", cudaDeviceSynchronize(), cudaSuccess);
    CHECK_CUDA(cudaSetDevice(0));
    expect("launch into another device's stream", (Count<<<1, 1, 0, there_stream>>>(here, 0), cudaGetLastError()),
           cudaErrorInvalidResourceHandle);
    cudaDeviceProp properties[2];
    for (int device = 0; device < 2; ++device) CHECK_CUDA(cudaGetDeviceProperties(&properties[device], device));
    if (memcmp(&properties[0].uuid, &properties[1].uuid, sizeof(cudaUUID_t)) == 0 ||
        (properties[0].pciBusID == properties[1].pciBusID && properties[0].pciDeviceID == properties[1].pciDeviceID &&
         properties[0].pciDomainID == properties[1].pciDomainID)) {
      check::Fail("two devices cannot be told apart");
    }
  }
  results.AddValue<uint32_t>("answers", as_expected);
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaFree(here));
  CHECK_CUDA(cudaFree(there));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
