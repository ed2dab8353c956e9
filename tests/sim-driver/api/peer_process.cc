#include "tests/sim-driver/api/peer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/unix_socket.h"
#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

CUfunction Increment() {
  static CUmodule module = nullptr;
  if (module == nullptr) cuModuleLoadData(&module, kTestPtx);
  CUfunction function = nullptr;
  cuModuleGetFunction(&function, module, "increment");
  return function;
}

CUresult RunIncrement(CUdeviceptr address, uint32_t num_words) {
  void* parameters[] = {&address, &num_words};
  const CUresult launched =
      cuLaunchKernel(Increment(), (num_words + 31) / 32, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
  return launched == CUDA_SUCCESS ? cuCtxSynchronize() : launched;
}

CUresult Map(CUdeviceptr address, size_t num_bytes, CUmemGenericAllocationHandle memory) {
  if (const CUresult r = cuMemMap(address, num_bytes, 0, memory, 0); r != CUDA_SUCCESS) return r;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuMemSetAccess(address, num_bytes, &access, 1);
}

CUresult Create(size_t num_bytes, uint64_t* value, UniqueFd* fd) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory = 0;
  if (const CUresult r = cuMemCreate(&memory, num_bytes, &properties, 0); r != CUDA_SUCCESS) return r;
  int exported = -1;
  const CUresult r = cuMemExportToShareableHandle(&exported, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  *fd = UniqueFd(exported);
  *value = memory;
  return r;
}

CUresult UseDevice(int ordinal) {
  CUcontext context = nullptr;
  if (const CUresult r = cuDevicePrimaryCtxRetain(&context, ordinal); r != CUDA_SUCCESS) return r;
  return cuCtxSetCurrent(context);
}

PeerReply Answer(const PeerRequest& request, int fd, UniqueFd* sent) {
  PeerReply reply;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  const auto give = [&reply](CUresult result, uint64_t value) {
    reply.result = result;
    reply.value = value;
    return reply;
  };
  switch (request.call) {
    case PeerCall::kAllocate: {
      const CUresult result = cuMemAlloc_v2(&address, request.a);
      return give(result, address);
    }
    case PeerCall::kFree:
      return give(cuMemFree_v2(request.a), 0);
    case PeerCall::kExport:
      return reply.result = cuIpcGetMemHandle(&reply.handle, request.a), reply;
    case PeerCall::kOpen: {
      const CUresult result = cuIpcOpenMemHandle_v2(&address, request.handle, static_cast<unsigned>(request.a));
      return give(result, address);
    }
    case PeerCall::kClose:
      return give(cuIpcCloseMemHandle(request.a), 0);
    case PeerCall::kIncrement:
      return give(RunIncrement(request.a, static_cast<uint32_t>(request.b)), 0);
    case PeerCall::kRead: {
      uint32_t word = 0;
      const CUresult result = cuMemcpyDtoH_v2(&word, request.a, sizeof word);
      return give(result, word);
    }
    case PeerCall::kImport: {
      const CUresult result = cuMemImportFromShareableHandle(
          &memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      return give(result, memory);
    }
    case PeerCall::kCreate: {
      uint64_t value = 0;
      const CUresult result = Create(request.a, &value, sent);
      return give(result, value);
    }
    case PeerCall::kReserve: {
      const CUresult result = cuMemAddressReserve(&address, request.a, 0, request.b, 0);
      return give(result, address);
    }
    case PeerCall::kMap:
      return give(Map(request.a, request.b, request.c), 0);
    case PeerCall::kUseDevice:
      return give(UseDevice(static_cast<int>(request.a)), 0);
  }
  return give(CUDA_ERROR_UNKNOWN, 0);
}

}  // namespace

PeerProcess::PeerProcess() {
  auto pair = CreateSocketPair();
  EXPECT_TRUE(pair.has_value());
  fcntl(pair->second.get(), F_SETFD, 0);
  const std::string fd = std::to_string(pair->second.get());
  pid_ = vfork();
  if (pid_ == 0) {
    execl("/proc/self/exe", "peer", kPeerOption, fd.c_str(), nullptr);
    _exit(127);
  }
  socket_ = std::move(pair->first);
}

PeerProcess::~PeerProcess() {
  socket_.Reset();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void PeerProcess::Kill() {
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, 0), nullptr, 0);
}

UniqueFd PeerProcess::TakeFd() { return std::move(received_); }

PeerReply PeerProcess::Ask(const PeerRequest& request, int fd) {
  PeerReply reply;
  reply.result = CUDA_ERROR_UNKNOWN;
  const int fds[] = {fd};
  EXPECT_TRUE(SendMessage(socket_.get(), std::as_bytes(std::span(&request, 1)),
                          fd < 0 ? std::span<const int>() : std::span<const int>(fds))
                  .ok());
  auto message = ReceiveMessage(socket_.get(), std::chrono::seconds(60));
  if (!message || message->bytes.size() != sizeof reply) {
    ADD_FAILURE() << "the other process does not answer";
    return reply;
  }
  std::memcpy(&reply, message->bytes.data(), sizeof reply);
  if (!message->fds.empty()) received_ = std::move(message->fds[0]);
  return reply;
}

void ServePeer(int socket) {
  cuInit(0);
  UseDevice(0);
  for (;;) {
    auto message = ReceiveMessage(socket, std::chrono::milliseconds(-1));
    if (!message || message->bytes.size() != sizeof(PeerRequest)) return;
    PeerRequest request{};
    std::memcpy(&request, message->bytes.data(), sizeof request);
    UniqueFd sent;
    const PeerReply reply = Answer(request, message->fds.empty() ? -1 : message->fds[0].get(), &sent);
    const int fds[] = {sent.get()};
    if (!SendMessage(socket, std::as_bytes(std::span(&reply, 1)),
                     sent.valid() ? std::span<const int>(fds) : std::span<const int>())
             .ok())
      return;
  }
}

}  // namespace tally::sim_driver
