// Two programs that share memory and events: one makes them, a second one (this program started again) opens them by
// what came through a socket. An allocation by its IPC handle, with an event each way; then physical memory by a
// descriptor that travels through the socket.
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/programs/check.h"
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr int kCount = 200000;

void Reference(Results& results) {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < kCount; ++i) values.push_back((i * 7 + 3) * 5);
  results.Add("changed by the other program", values);
  results.Add("through physical memory", std::vector<uint32_t>(1000, 41 + 1));
  results.Add("through a pool", std::vector<uint32_t>(1000, 17));
  results.AddValue<uint32_t>("the other program's end", 0);
}

__global__ void Make(uint32_t* values, uint32_t count) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * 7 + 3;
}
__global__ void Times(uint32_t* values, uint32_t count, uint32_t what) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= what;
}
__global__ void Plus(uint32_t* values, uint32_t count, uint32_t what) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what;
}
__global__ void Spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

void Send(int socket, const void* bytes, size_t size, int fd = -1) {
  iovec piece = {const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) check::Fail("send: %s", strerror(errno));
}

void Receive(int socket, void* bytes, size_t size, int* fd = nullptr) {
  iovec piece = {bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != static_cast<ssize_t>(size)) check::Fail("the other program sent nothing");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (fd != nullptr) {
    if (header == nullptr) check::Fail("no descriptor came");
    memcpy(fd, CMSG_DATA(header), sizeof(*fd));
  }
}

struct Shared {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t made;
  cudaIpcEventHandle_t changed;
};

struct Space {
  decltype(cuMemAddressReserve)* reserve = DRIVER_ENTRY(cuMemAddressReserve);
  decltype(cuMemAddressFree)* free = DRIVER_ENTRY(cuMemAddressFree);
  decltype(cuMemCreate)* create = DRIVER_ENTRY(cuMemCreate);
  decltype(cuMemRelease)* release = DRIVER_ENTRY(cuMemRelease);
  decltype(cuMemMap)* map = DRIVER_ENTRY(cuMemMap);
  decltype(cuMemUnmap)* unmap = DRIVER_ENTRY(cuMemUnmap);
  decltype(cuMemSetAccess)* set_access = DRIVER_ENTRY(cuMemSetAccess);
  decltype(cuMemGetAllocationGranularity)* granularity = DRIVER_ENTRY(cuMemGetAllocationGranularity);
  decltype(cuMemExportToShareableHandle)* give = DRIVER_ENTRY(cuMemExportToShareableHandle);
  decltype(cuMemImportFromShareableHandle)* take = DRIVER_ENTRY(cuMemImportFromShareableHandle);

  CUmemAllocationProp properties = {};
  size_t size = 0;
  Space() {
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_DRIVER(granularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  uint32_t* Map(CUmemGenericAllocationHandle handle) const {
    CUdeviceptr address = 0;
    CHECK_DRIVER(reserve(&address, size, 0, 0, 0));
    CHECK_DRIVER(map(address, size, 0, handle, 0));
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(set_access(address, size, &access, 1));
    return reinterpret_cast<uint32_t*>(address);
  }
  void Unmap(uint32_t* values) const {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_DRIVER(unmap(reinterpret_cast<CUdeviceptr>(values), size));
    CHECK_DRIVER(free(reinterpret_cast<CUdeviceptr>(values), size));
  }
};

int OtherProgram(int socket) {
  Shared shared;
  Receive(socket, &shared, sizeof(shared));
  CHECK_CUDA(cudaSetDevice(0));
  uint32_t* values = nullptr;
  void* again = nullptr;
  cudaEvent_t made, changed;
  CHECK_CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), shared.memory, cudaIpcMemLazyEnablePeerAccess));
  // Opened twice is counted; the first form of the driver's call did not count yet and refuses what is open.
  CHECK_CUDA(cudaIpcOpenMemHandle(&again, shared.memory, cudaIpcMemLazyEnablePeerAccess));
  if (again != values) check::Fail("opened twice, at two addresses");
  CUipcMemHandle old_handle;
  static_assert(sizeof(old_handle) == sizeof(shared.memory), "one handle by two names");
  memcpy(&old_handle, &shared.memory, sizeof(old_handle));
  const auto old_open = DRIVER_ENTRY_OF(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010);
  const auto open_by_old = [&](void** address) {
    return old_open(reinterpret_cast<CUdeviceptr*>(address), old_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  void* nowhere = nullptr;
  int num_unmet = 0;
  if (const CUresult result = open_by_old(&nowhere); result != CUDA_ERROR_ALREADY_MAPPED) {
    printf("opened by the first form while open: driver error %d\n", static_cast<int>(result));
    ++num_unmet;
  }
  CHECK_CUDA(cudaIpcCloseMemHandle(again));
  CHECK_CUDA(cudaIpcCloseMemHandle(values));
  if (const CUresult result = open_by_old(reinterpret_cast<void**>(&values)); result != CUDA_SUCCESS) {
    printf("opened by the first form: driver error %d\n", static_cast<int>(result));
    ++num_unmet;
    CHECK_CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), shared.memory, cudaIpcMemLazyEnablePeerAccess));
  }
  CHECK_CUDA(cudaIpcOpenEventHandle(&made, shared.made));
  CHECK_CUDA(cudaIpcOpenEventHandle(&changed, shared.changed));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamWaitEvent(stream, made, 0));
  Times<<<(kCount + 255) / 256, 256, 0, stream>>>(values, kCount, 5);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaEventRecord(changed, stream));
  const char word = 'c';
  Send(socket, &word, 1);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaEventDestroy(made));
  CHECK_CUDA(cudaEventDestroy(changed));
  CHECK_CUDA(cudaIpcCloseMemHandle(values));
  if (cudaIpcCloseMemHandle(values) == cudaSuccess) check::Fail("closed twice");
  cudaGetLastError();

  int fd = -1;
  char byte;
  Receive(socket, &byte, 1, &fd);
  const Space driver;
  CUmemGenericAllocationHandle handle = 0;
  CHECK_DRIVER(driver.take(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  values = driver.Map(handle);
  CHECK_DRIVER(driver.release(handle));
  Plus<<<4, 256>>>(values, 1000, 1);
  CHECK_LAUNCH();
  driver.Unmap(values);
  Send(socket, &word, 1);

  cudaMemPoolPtrExportData exported;
  Receive(socket, &exported, sizeof(exported), &fd);
  cudaMemPool_t pool;
  CHECK_CUDA(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  close(fd);
  CHECK_CUDA(cudaMemPoolImportPointer(reinterpret_cast<void**>(&values), pool, &exported));
  Plus<<<4, 256, 0, stream>>>(values, 1000, 7);
  CHECK_LAUNCH();
  void* refused = nullptr;
  if (cudaMallocFromPoolAsync(&refused, 64, pool, stream) == cudaSuccess) check::Fail("allocated from another's pool");
  cudaGetLastError();
  CHECK_CUDA(cudaFreeAsync(values, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  Send(socket, &word, 1);
  Receive(socket, &byte, 1);  // the end
  return num_unmet;
}

void Device(Results& results) {
  // Both programs begin before CUDA does.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) check::Fail("socketpair: %s", strerror(errno));
  const pid_t child = fork();
  if (child < 0) check::Fail("fork: %s", strerror(errno));
  if (child == 0) {
    close(ends[0]);
    const std::string number = std::to_string(ends[1]);
    execl("/proc/self/exe", "/proc/self/exe", "--socket", number.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  const int socket = ends[0];

  CHECK_CUDA(cudaSetDevice(0));
  check::DeviceBuffer<uint32_t> values(kCount);
  cudaStream_t stream;
  cudaEvent_t made, changed;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&made, cudaEventInterprocess | cudaEventDisableTiming));
  CHECK_CUDA(cudaEventCreateWithFlags(&changed, cudaEventInterprocess | cudaEventDisableTiming));
  Shared shared;
  CHECK_CUDA(cudaIpcGetMemHandle(&shared.memory, values.get()));
  CHECK_CUDA(cudaIpcGetEventHandle(&shared.made, made));
  CHECK_CUDA(cudaIpcGetEventHandle(&shared.changed, changed));
  // The other program is told while this is still to be done: it has to wait for the event.
  Spin<<<1, 1, 0, stream>>>(2000000);
  Make<<<(kCount + 255) / 256, 256, 0, stream>>>(values.get(), kCount);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaEventRecord(made, stream));
  Send(socket, &shared, sizeof(shared));
  char word = 0;
  Receive(socket, &word, 1);
  CHECK_CUDA(cudaStreamWaitEvent(stream, changed, 0));
  std::vector<uint32_t> back(kCount);
  CHECK_CUDA(cudaMemcpyAsync(back.data(), values.get(), kCount * 4, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("changed by the other program", back);

  const Space driver;
  CUmemGenericAllocationHandle handle = 0;
  CHECK_DRIVER(driver.create(&handle, driver.size, &driver.properties, 0));
  uint32_t* mapped = driver.Map(handle);
  CHECK_CUDA(cudaMemset(mapped, 0, 4000));
  Plus<<<4, 256>>>(mapped, 1000, 41);
  CHECK_CUDA(cudaDeviceSynchronize());
  int fd = -1;
  CHECK_DRIVER(driver.give(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Send(socket, &word, 1, fd);
  close(fd);
  Receive(socket, &word, 1);
  std::vector<uint32_t> seen(1000);
  CHECK_CUDA(cudaMemcpy(seen.data(), mapped, 4000, cudaMemcpyDeviceToHost));
  results.Add("through physical memory", seen);
  CHECK_DRIVER(driver.release(handle));
  driver.Unmap(mapped);

  cudaMemPoolProps pool_properties = {};
  pool_properties.allocType = cudaMemAllocationTypePinned;
  pool_properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  pool_properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  CHECK_CUDA(cudaMemPoolCreate(&pool, &pool_properties));
  uint32_t* pooled;
  CHECK_CUDA(cudaMallocFromPoolAsync(&pooled, 4000, pool, stream));
  CHECK_CUDA(cudaMemsetAsync(pooled, 0, 4000, stream));
  Plus<<<4, 256, 0, stream>>>(pooled, 1000, 10);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  cudaMemPoolPtrExportData exported;
  CHECK_CUDA(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
  CHECK_CUDA(cudaMemPoolExportPointer(&exported, pooled));
  Send(socket, &exported, sizeof(exported), fd);
  close(fd);
  Receive(socket, &word, 1);
  CHECK_CUDA(cudaMemcpyAsync(seen.data(), pooled, 4000, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaFreeAsync(pooled, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("through a pool", seen);
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  Send(socket, &word, 1);
  int status = -1;
  waitpid(child, &status, 0);
  results.AddValue<uint32_t>("the other program's end", static_cast<uint32_t>(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--socket") == 0) return OtherProgram(atoi(argv[2]));
  return check::RunProgram(argc, argv, Reference, Device);
}
