#include "server/executor/mirror/mirror_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "base/futex.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "server/executor/mirror/step_queue.h"

namespace tally::server {
namespace {

using shm::MirrorCommandKind;
using std::chrono::milliseconds;

// Home has sent it before the command: only a home that lies is waited for.
constexpr milliseconds kLongestWaitForParcel{10'000};
constexpr milliseconds kLookWhileBusy{1}, kLookWhileIdle{100};
// Dynamic shared memory beyond that has to be asked for.
constexpr uint32_t kSharedBytesAsked = 48 << 10;
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

Status FromCuda(const DriverTable& driver, CUresult result, const char* what) {
  return Status(StatusCode::kUnavailable, fmt::format("{}: {}", what, CudaErrorName(driver, result)));
}

}  // namespace

Result<std::unique_ptr<MirrorService>> MirrorService::Open(const DriverTable& driver, int ordinal, UniqueFd page,
                                                           UniqueFd socket, WantTimeSlice want_time_slice) {
  if (Status status = CheckSealedMemfd(page.get(), sizeof(shm::MirrorPage)); !status.ok()) {
    return std::unexpected(status.With("the page"));
  }
  auto region = MappedRegion::Map(page.get(), sizeof(shm::MirrorPage));
  if (!region) return std::unexpected(region.error().With("the page"));
  const auto& header = reinterpret_cast<const shm::MirrorPage*>(region->data())->header;
  if (header.magic != shm::kMirrorMagic || header.version != shm::kMirrorVersion) {
    return Error(StatusCode::kInvalidArgument, "the page is of another version");
  }
  std::unique_ptr<MirrorService> service(
      new MirrorService(driver, ordinal, std::move(*region), std::move(socket), std::move(want_time_slice)));
  if (Status status = service->OpenDevice(ordinal); !status.ok()) {
    service->BreakWith(CUDA_ERROR_INVALID_DEVICE, status.ToString());
    return std::unexpected(std::move(status));
  }
  service->page().header.state.store(shm::MirrorState::kReady, std::memory_order_release);
  return service;
}

Status MirrorService::OpenDevice(int ordinal) {
  for (const bool is_there :
       {driver_.cuMemAddressReserve != nullptr, driver_.cuMemImportFromShareableHandle != nullptr,
        driver_.cuMemExportToShareableHandle != nullptr, driver_.cuStreamWriteValue32_v2 != nullptr}) {
    if (!is_there) return Status(StatusCode::kUnimplemented, "the driver cannot share memory between processes");
  }
  if (const CUresult r = driver_.cuDeviceGet(&device_, ordinal); r != CUDA_SUCCESS) {
    return FromCuda(driver_, r, "cuDeviceGet");
  }
  if (const CUresult r = driver_.cuDevicePrimaryCtxRetain(&context_, device_); r != CUDA_SUCCESS) {
    return FromCuda(driver_, r, "cuDevicePrimaryCtxRetain");
  }
  driver_.cuCtxSetCurrent(context_);
  for (CUstream& stream : streams_) {
    const CUresult r = driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    if (r != CUDA_SUCCESS) return FromCuda(driver_, r, "cuStreamCreateWithPriority");
  }
  if (const CUresult r = driver_.cuStreamCreateWithPriority(&recording_stream_, CU_STREAM_NON_BLOCKING, 0);
      r != CUDA_SUCCESS) {
    return FromCuda(driver_, r, "cuStreamCreateWithPriority");
  }
  const auto flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (const CUresult r = driver_.cuMemHostRegister_v2(region_.data(), region_.size_bytes(), flags); r != CUDA_SUCCESS) {
    return FromCuda(driver_, r, "cuMemHostRegister");
  }
  if (const CUresult r = driver_.cuMemHostGetDevicePointer_v2(&page_on_device_, region_.data(), 0); r != CUDA_SUCCESS) {
    return FromCuda(driver_, r, "cuMemHostGetDevicePointer");
  }
  return OkStatus();
}

// The context and all that it owns ends with the process: after a fault nothing of it could be given back.
MirrorService::~MirrorService() = default;

void MirrorService::Run() {
  std::atomic<uint32_t>& bell = page().header.num_posted;
  for (uint64_t next = 0;;) {
    const uint32_t posted = bell.load(std::memory_order_acquire);
    const uint32_t num_waiting = posted - static_cast<uint32_t>(next);
    if (num_waiting == 0 || is_broken_) {
      const bool is_busy = !is_broken_ && LookAtStreams();
      if (PeerHungUp(socket_.get())) return;
      FutexWait(bell, posted, is_busy ? kLookWhileBusy : kLookWhileIdle);
      continue;
    }
    if (num_waiting > shm::kMirrorSlots) {
      BreakWith(CUDA_ERROR_INVALID_VALUE, "more commands than the page holds");
      continue;
    }
    Serve(next++);
  }
}

void MirrorService::Serve(uint64_t position) {
  shm::MirrorSlot& slot = page().slot[position % shm::kMirrorSlots];
  const auto order = ReadOrder(slot);
  if (!order) return BreakWith(CUDA_ERROR_INVALID_VALUE, order.error().ToString());
  const CUresult result = CarryOut(*order, position);
  if (is_broken_) return;
  if (IsSticky(result)) return BreakWith(result, "a command met it");
  const bool is_work = order->command.kind >= MirrorCommandKind::kLaunch && !IsRecorded(order->command.kind);
  slot.result.store(result, std::memory_order_relaxed);
  if (is_work && result == CUDA_SUCCESS) {
    // The GPU says so, behind the work.
    const CUdeviceptr done =
        page_on_device_ + static_cast<uint64_t>(reinterpret_cast<std::byte*>(&slot.done) - region_.data());
    const CUresult written =
        driver_.cuStreamWriteValue32_v2(streams_[order->command.stream], done, static_cast<uint32_t>(position + 1), 0);
    if (written != CUDA_SUCCESS) BreakWith(written, "a completion word could not be written");
    return;
  }
  slot.done.store(static_cast<uint32_t>(position + 1), std::memory_order_release);
}

CUresult MirrorService::CarryOut(const MirrorOrder& order, uint64_t position) {
  if (order.command.kind < MirrorCommandKind::kLoadImage) return CarryOutMapping(order, position);
  if (order.command.kind < MirrorCommandKind::kBeginTask) return CarryOutCode(order, position);
  if (order.command.kind < MirrorCommandKind::kLaunch) return CarryOutSetting(order.command);
  return CarryOutWork(order);
}

CUresult MirrorService::CarryOutMapping(const MirrorOrder& order, uint64_t position) {
  const shm::MirrorCommand& command = order.command;
  switch (command.kind) {
    case MirrorCommandKind::kReserve:
      return memory_.Reserve(command);
    case MirrorCommandKind::kRelease:
      driver_.cuCtxSynchronize();
      return memory_.Release(command.allocation);
    case MirrorCommandKind::kUnmap:
      driver_.cuCtxSynchronize();
      return memory_.Unmap(command);
    case MirrorCommandKind::kMapOwn: {
      UniqueFd exported;
      const CUresult result = memory_.MapOwn(command, &exported);
      if (result == CUDA_SUCCESS && !SendParcel(position, exported.get())) return CUDA_ERROR_OPERATING_SYSTEM;
      return result;
    }
    default: {
      const UniqueFd fd = TakeParcel(position);
      if (!fd.valid()) return CUDA_ERROR_INVALID_VALUE;
      return command.kind == MirrorCommandKind::kMapShared ? memory_.MapShared(command, fd.get())
                                                           : memory_.MapOther(command, fd.get());
    }
  }
}

CUresult MirrorService::CarryOutCode(const MirrorOrder& order, uint64_t position) {
  switch (order.command.kind) {
    case MirrorCommandKind::kLoadImage:
      return LoadImage(order.command, position);
    case MirrorCommandKind::kUnloadImage:
      return UnloadImage(order.command.image);
    default:
      return FindFunction(order);
  }
}

CUresult MirrorService::LoadImage(const shm::MirrorCommand& command, uint64_t position) {
  const UniqueFd fd = TakeParcel(position);
  if (!fd.valid() || images_.contains(command.image)) return CUDA_ERROR_INVALID_VALUE;
  if (command.num_bytes == 0 || command.num_bytes > kMaxImageBytes ||
      !CheckSealedMemfd(fd.get(), command.num_bytes).ok()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto file = MappedRegion::Map(fd.get(), command.num_bytes);
  if (!file) return CUDA_ERROR_OUT_OF_MEMORY;
  // A copy that nobody changes while it is parsed, with an end for images that are text.
  std::string image(reinterpret_cast<const char*>(file->data()), command.num_bytes);
  CUmodule module = nullptr;
  const CUresult result = driver_.cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr);
  if (result == CUDA_SUCCESS) images_[command.image] = module;
  return result;
}

CUresult MirrorService::UnloadImage(uint32_t image) {
  const auto found = images_.find(image);
  if (found == images_.end()) return CUDA_ERROR_INVALID_VALUE;
  driver_.cuCtxSynchronize();
  std::erase_if(functions_, [image](const auto& entry) { return entry.second.image == image; });
  const CUresult result = driver_.cuModuleUnload(found->second);
  images_.erase(found);
  return result;
}

CUresult MirrorService::FindFunction(const MirrorOrder& order) {
  const auto image = images_.find(order.command.image);
  if (image == images_.end() || functions_.contains(order.command.function)) return CUDA_ERROR_INVALID_VALUE;
  const std::string name(reinterpret_cast<const char*>(order.bytes.data()), order.bytes.size());
  CUfunction function = nullptr;
  const CUresult result = driver_.cuModuleGetFunction(&function, image->second, name.c_str());
  if (result == CUDA_SUCCESS) functions_[order.command.function] = {.function = function, .image = order.command.image};
  return result;
}

CUresult MirrorService::CarryOutSetting(const shm::MirrorCommand& command) {
  if (command.kind == MirrorCommandKind::kBeginTask) return BeginTask(command.task);
  if (command.kind == MirrorCommandKind::kEndTask) return EndTask();
  if (command.kind == MirrorCommandKind::kTimeSlice) {
    want_time_slice_(std::chrono::microseconds(command.value));
    return CUDA_SUCCESS;
  }
  const auto task = tasks_.find(command.task);
  if (task == tasks_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver_.cuGraphExecDestroy(task->second);
  tasks_.erase(task);
  return result;
}

CUresult MirrorService::BeginTask(uint32_t task) {
  if (recording_ || tasks_.contains(task)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver_.cuStreamBeginCapture_v2(recording_stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == CUDA_SUCCESS) recording_ = {.task = task};
  return result;
}

CUresult MirrorService::EndTask() {
  if (!recording_) return CUDA_ERROR_INVALID_VALUE;
  const Recording recorded = *std::exchange(recording_, std::nullopt);
  CUgraph graph = nullptr;
  const CUresult ended = driver_.cuStreamEndCapture(recording_stream_, &graph);
  CUresult result = recorded.result != CUDA_SUCCESS ? recorded.result : ended;
  CUgraphExec task = nullptr;
  if (result == CUDA_SUCCESS) result = driver_.cuGraphInstantiateWithFlags(&task, graph, 0);
  if (result == CUDA_SUCCESS) tasks_[recorded.task] = task;
  if (graph != nullptr) driver_.cuGraphDestroy(graph);
  return result;
}

CUresult MirrorService::CarryOutWork(const MirrorOrder& order) {
  const shm::MirrorCommand& command = order.command;
  const CUstream stream = IsRecorded(command.kind) ? recording_stream_ : streams_[command.stream];
  CUresult result = CUDA_SUCCESS;
  switch (command.kind) {
    case MirrorCommandKind::kLaunch:
      result = Launch(order, stream);
      break;
    case MirrorCommandKind::kFill:
      result = Fill(command, stream);
      break;
    case MirrorCommandKind::kRun: {
      const auto task = tasks_.find(command.task);
      return task != tasks_.end() ? driver_.cuGraphLaunch(task->second, stream) : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      return Copy(command);
  }
  if (recording_ && recording_->result == CUDA_SUCCESS) recording_->result = result;
  return result;
}

CUresult MirrorService::Launch(const MirrorOrder& order, CUstream stream) {
  const shm::MirrorCommand& command = order.command;
  const auto found = functions_.find(command.function);
  if (found == functions_.end()) return CUDA_ERROR_INVALID_VALUE;
  Function& known = found->second;
  if (command.shared_bytes > kSharedBytesAsked && command.shared_bytes > known.shared_bytes) {
    // Home has asked for it before it launched this.
    const CUresult allowed =
        driver_.cuFuncSetAttribute(known.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(std::min<uint32_t>(command.shared_bytes, INT32_MAX)));
    if (allowed != CUDA_SUCCESS) return allowed;
    known.shared_bytes = command.shared_bytes;
  }
  return LaunchCommand(driver_, known.function, command, order.bytes, stream);
}

CUresult MirrorService::Copy(const shm::MirrorCommand& command) {
  const auto own = memory_.InOwn(command), other = memory_.InOther(command);
  if (!own || !other) return CUDA_ERROR_INVALID_VALUE;
  const bool is_fetch = command.kind == MirrorCommandKind::kFetch;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = is_fetch ? *other : *own;
  copy.dstDevice = is_fetch ? *own : *other;
  copy.srcPitch = copy.dstPitch = command.rows == 1 ? command.row_bytes : command.pitch;
  copy.WidthInBytes = command.row_bytes;
  copy.Height = command.rows;
  const CUresult result = driver_.cuMemcpy2DAsync_v2(&copy, streams_[command.stream]);
  if (result == CUDA_SUCCESS) {
    auto& counted = is_fetch ? page().header.fetched_bytes : page().header.written_back_bytes;
    counted.fetch_add(command.row_bytes * command.rows, std::memory_order_relaxed);
  }
  return result;
}

CUresult MirrorService::Fill(const shm::MirrorCommand& command, CUstream stream) {
  const auto own = memory_.InOwn(command);
  if (!own) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = command.rows == 1 ? command.row_bytes : command.pitch;
  return driver_.cuMemsetD2D8Async(*own, pitch, static_cast<unsigned char>(command.value), command.row_bytes,
                                   command.rows, stream);
}

UniqueFd MirrorService::TakeParcel(uint64_t position) {
  auto message = ReceiveMessage(socket_.get(), kLongestWaitForParcel);
  shm::MirrorParcel parcel{};
  if (!message || message->bytes.size() != sizeof parcel || message->fds.size() != 1) {
    BreakWith(CUDA_ERROR_INVALID_VALUE, "a descriptor did not come");
    return UniqueFd();
  }
  std::memcpy(&parcel, message->bytes.data(), sizeof parcel);
  if (parcel.position == position) return std::move(message->fds[0]);
  BreakWith(CUDA_ERROR_INVALID_VALUE, "a descriptor is another command's");
  return UniqueFd();
}

bool MirrorService::SendParcel(uint64_t position, int fd) {
  const shm::MirrorParcel parcel{position};
  const int fds[] = {fd};
  return SendMessage(socket_.get(), std::as_bytes(std::span(&parcel, 1)), fds).ok();
}

bool MirrorService::LookAtStreams() {
  bool is_busy = false;
  for (CUstream stream : streams_) {
    const CUresult result = driver_.cuStreamQuery(stream);
    is_busy = is_busy || result == CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) continue;
    BreakWith(result, "a kernel or copy");
    return false;
  }
  return is_busy;
}

void MirrorService::BreakWith(CUresult error, const std::string& why) {
  if (std::exchange(is_broken_, true)) return;
  page().header.error.store(error, std::memory_order_release);
  LOG_WARNING("mirror: {}: {}", CudaErrorName(driver_, error), why);
}

}  // namespace tally::server
