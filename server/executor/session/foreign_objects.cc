#include "server/executor/session/foreign_objects.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <span>

#include "base/log.h"
#include "base/unix_socket.h"

namespace tally::server {
namespace {

// A door waits for nothing but who stands before it.
constexpr std::chrono::milliseconds kAnswerPatience{5000};

CUresult NotOpened(const char* why) {
  LOG_INFO("another executor's object is not opened: {}", why);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult ForeignObjects::Ask(const shm::SharedName& name, Answer* answer) const {
  if (doors_.directory.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto door = ConnectUnix(doors_.PathOf(name.process), kAnswerPatience);
  if (!door) return NotOpened("its executor is gone");
  const auto peer = GetPeerCredentials(door->get());
  if (!peer || peer->uid != ::geteuid()) return NotOpened("another user listens at the door");
  control::DoorRequest request{control::kDoorMagic, control::kDoorVersion, {}, name};
  if (doors_.owner.size() >= sizeof(request.owner)) return CUDA_ERROR_NOT_SUPPORTED;
  std::memcpy(request.owner, doors_.owner.c_str(), doors_.owner.size() + 1);
  if (!SendMessage(door->get(), std::as_bytes(std::span(&request, 1))).ok()) return NotOpened("the door is shut");
  auto message = ReceiveMessage(door->get(), kAnswerPatience);
  if (!message || message->bytes.size() != sizeof(answer->reply)) return NotOpened("no answer");
  std::memcpy(&answer->reply, message->bytes.data(), sizeof(answer->reply));
  const control::DoorReply& reply = answer->reply;
  if (reply.magic != control::kDoorMagic || reply.version != control::kDoorVersion) return NotOpened("another build");
  if (reply.cuda_result != CUDA_SUCCESS) return static_cast<CUresult>(reply.cuda_result);
  const bool is_physical = static_cast<shm::SharedKind>(name.kind) == shm::SharedKind::kPhysical;
  if (reply.device >= static_cast<uint32_t>(num_devices_)) return NotOpened("it is of a device that is not here");
  if (message->fds.size() != (is_physical ? 1 : 0)) return NotOpened("a descriptor is missing");
  if (is_physical) answer->descriptor = std::move(message->fds.front());
  return CUDA_SUCCESS;
}

CUresult ForeignObjects::OpenMemory(const shm::SharedName& name, int current_device, Allocation* opened) {
  Answer answer;
  if (const CUresult r = Ask(name, &answer); r != CUDA_SUCCESS) return r;  // also if it is open: its owner may be gone
  const std::lock_guard lock(mutex_);
  const Key key(name.token[0], name.token[1], current_device);
  if (const auto known = opened_.find(key); known != opened_.end()) {
    ++known->second.num_sessions;
    *opened = known->second.allocation;
    return CUDA_SUCCESS;
  }
  if (driver_.cuIpcOpenMemHandle_v2 == nullptr || driver_.cuIpcCloseMemHandle == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUipcMemHandle handle;
  std::memcpy(&handle, answer.reply.handle, sizeof(handle));
  CUdeviceptr address = 0;
  if (const CUresult r = driver_.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      r != CUDA_SUCCESS) {
    return r;
  }
  *opened = {address, answer.reply.size_bytes, static_cast<int>(answer.reply.device)};
  opened_[key] = {*opened, 1};
  by_address_[address] = key;
  return CUDA_SUCCESS;
}

void ForeignObjects::CloseMemory(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return;
  const auto opened = opened_.find(found->second);
  if (--opened->second.num_sessions != 0) return;
  opened_.erase(opened);
  by_address_.erase(found);
  driver_.cuIpcCloseMemHandle(address);
}

CUresult ForeignObjects::OpenEvent(const shm::SharedName& name, CUevent* event, int* device) const {
  if (driver_.cuIpcOpenEventHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Answer answer;
  if (const CUresult r = Ask(name, &answer); r != CUDA_SUCCESS) return r;
  CUipcEventHandle handle;
  std::memcpy(&handle, answer.reply.handle, sizeof(handle));
  *device = static_cast<int>(answer.reply.device);
  return driver_.cuIpcOpenEventHandle(event, handle);
}

CUresult ForeignObjects::Import(const Answer& answer, std::shared_ptr<PhysicalMemory>* memory) const {
  if (driver_.cuMemImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle real = 0;
  void* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(answer.descriptor.get()));
  if (const CUresult r =
          driver_.cuMemImportFromShareableHandle(&real, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      r != CUDA_SUCCESS) {
    return r;
  }
  *memory = std::make_shared<PhysicalMemory>(driver_, real);
  (*memory)->size_bytes = answer.reply.size_bytes;
  (*memory)->properties = answer.reply.properties;
  return CUDA_SUCCESS;
}

}  // namespace tally::server
