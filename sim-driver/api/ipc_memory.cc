#include "sim-driver/api/ipc_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/live_objects.h"
#include "sim-driver/api/memory_map.h"
#include "sim-driver/api/virtual_memory.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kHandleMagic = 0x6d'656d'6970'6331;  // "1cpimem"

// In the tail of the window's file. The maker writes it under its lock, `token` last; readers are other processes.
struct ExportRecord {
  std::atomic<uint64_t> token;   // random; 0: the record is free
  std::atomic<uint64_t> offset;  // of the allocation's first byte in the window
  std::atomic<uint64_t> num_bytes;
  std::atomic<uint64_t> device;  // ordinal
};
static_assert(sizeof(ExportRecord) * kMaxExports <= DeviceWindow::kSharedTailBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// What stands in a CUipcMemHandle.
struct HandleContents {
  uint64_t magic;
  uint64_t token;
  int32_t process;
  int32_t window_fd;
  uint32_t record;
  uint32_t reserved[9];
};
static_assert(sizeof(HandleContents) == sizeof(CUipcMemHandle));

struct OpenedMemory {
  uint64_t reservation = 0;
  uint64_t context = 0;
  uint64_t token = 0;
  uint32_t num_opens = 1;
};

// Guards both books and the records of this process. Taken before MemoryMap's lock.
struct IpcState {
  std::mutex mutex;
  std::map<uint64_t, uint32_t> exported;    // address: record
  std::map<uint64_t, OpenedMemory> opened;  // by address

  IpcState() {
    RegisterLive("ipc-opened", [this] {
      const std::lock_guard lock(mutex);
      return opened.size();
    });
  }
};
IpcState& GetIpcState() {
  static auto& state = *new IpcState();
  return state;
}

ExportRecord* RecordsOf(std::byte* tail) { return reinterpret_cast<ExportRecord*>(tail); }

uint64_t RandomToken() {
  uint64_t token = 0;
  while (token == 0) {
    Require(getrandom(&token, sizeof token, 0) == sizeof token, CUDA_ERROR_OPERATING_SYSTEM);
  }
  return token;
}

uint32_t FreeRecord(const ExportRecord* records) {
  for (uint32_t i = 0; i < kMaxExports; ++i) {
    if (records[i].token.load(std::memory_order_relaxed) == 0) return i;
  }
  Fail(CUDA_ERROR_OUT_OF_MEMORY);
}

// The file of the process that made the handle: sealed, so nobody can take pages from under our mapping.
struct ForeignWindow {
  UniqueFd fd;
  uint64_t window_bytes = 0;
};
ForeignWindow OpenWindowOf(const HandleContents& contents) {
  const std::string path = fmt::format("/proc/{}/fd/{}", contents.process, contents.window_fd);
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  // Looked at before it is opened: opening anything else might have effects.
  Require(length > 0 && std::string_view(target.data(), static_cast<size_t>(length)).starts_with("/memfd:tally-sim-"),
          CUDA_ERROR_INVALID_HANDLE);
  ForeignWindow window{UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), 0};
  struct stat file {};
  Require(window.fd.valid() && CheckSealedMemfd(window.fd.get(), DeviceWindow::kSharedTailBytes).ok() &&
              fstat(window.fd.get(), &file) == 0,
          CUDA_ERROR_INVALID_HANDLE);
  window.window_bytes = static_cast<uint64_t>(file.st_size) - DeviceWindow::kSharedTailBytes;
  Require(window.window_bytes % DeviceWindow::kPage == 0, CUDA_ERROR_INVALID_HANDLE);
  return window;
}

struct ForeignMemory {
  uint64_t offset, num_bytes, device;
};
// Read once, checked, and only then used: the other process may write there at any time.
ForeignMemory ReadRecord(const ForeignWindow& window, const HandleContents& contents) {
  Require(contents.record < kMaxExports, CUDA_ERROR_INVALID_HANDLE);
  std::array<uint64_t, sizeof(ExportRecord) / sizeof(uint64_t)> words{};
  const uint64_t at = window.window_bytes + uint64_t{contents.record} * sizeof(ExportRecord);
  Require(pread(window.fd.get(), words.data(), sizeof words, static_cast<off_t>(at)) == sizeof words,
          CUDA_ERROR_INVALID_HANDLE);
  const ForeignMemory memory{words[1], words[2], words[3]};
  Require(words[0] == contents.token && memory.num_bytes != 0 && memory.offset <= window.window_bytes &&
              memory.num_bytes <= window.window_bytes - memory.offset,
          CUDA_ERROR_INVALID_HANDLE);
  Require(memory.device < static_cast<uint64_t>(NumDevices()), CUDA_ERROR_INVALID_DEVICE);
  return memory;
}

// Maps it in a reservation of its own, so that nothing of ours shares its pages. Fills `reservation`.
uint64_t MapForeign(const ForeignWindow& window, const ForeignMemory& memory, uint64_t& reservation) {
  const uint64_t inside_page = memory.offset % DeviceWindow::kPage;
  const uint64_t granularity = MemoryMap::kPageGranularity;
  const uint64_t reserved = (inside_page + memory.num_bytes + granularity - 1) / granularity * granularity;
  reservation = ReserveAddresses(reserved, 0, 0);
  MemoryRegion region;
  region.base = reservation + inside_page;
  region.num_bytes = memory.num_bytes;
  region.kind = MemoryKind::kImported;
  region.device = static_cast<int>(memory.device);
  region.buffer_id = MemoryMap::NextBufferId();
  if (!MemoryMap::Get().MapPhysical(region, window.fd.get(), memory.offset - inside_page)) {
    MemoryMap::Get().Remove(reservation);
    Fail(CUDA_ERROR_MAP_FAILED);
  }
  return region.base;
}

void CloseIpcLocked(IpcState& state, std::map<uint64_t, OpenedMemory>::iterator opened) {
  MemoryMap::Get().UnmapPhysical(opened->first, MemoryKind::kImported);
  MemoryMap::Get().Remove(opened->second.reservation);
  state.opened.erase(opened);
}

}  // namespace

bool IsExportable(const MemoryRegion& region) {
  return region.kind == MemoryKind::kDevice && region.pool == 0 && !region.is_graph_owned && !region.is_module_owned;
}

CUipcMemHandle ExportMemory(uint64_t address) {
  IpcState& state = GetIpcState();
  const std::lock_guard lock(state.mutex);
  const auto region = MemoryMap::Get().Find(address);
  Require(region && IsExportable(*region), CUDA_ERROR_INVALID_VALUE);
  const DeviceWindow& window = MemoryMap::Get().window();
  ExportRecord* const records = RecordsOf(window.tail());
  auto known = state.exported.find(region->base);
  if (known == state.exported.end()) {
    const uint32_t index = FreeRecord(records);
    ExportRecord& record = records[index];
    const uint64_t token = RandomToken();
    known = state.exported.emplace(region->base, index).first;
    record.offset.store(region->base - window.start(), std::memory_order_relaxed);
    record.num_bytes.store(region->num_bytes, std::memory_order_relaxed);
    record.device.store(static_cast<uint64_t>(region->device), std::memory_order_relaxed);
    record.token.store(token, std::memory_order_release);
    MemoryMap::Get().Update(region->base, [](MemoryRegion& changed) { changed.is_exported = true; });
  }
  HandleContents contents{};
  contents.magic = kHandleMagic;
  contents.token = records[known->second].token.load(std::memory_order_relaxed);
  contents.process = getpid();
  contents.window_fd = window.fd();
  contents.record = known->second;
  CUipcMemHandle handle;
  std::memcpy(&handle, &contents, sizeof handle);
  return handle;
}

void ForgetExport(uint64_t base) {
  IpcState& state = GetIpcState();
  const std::lock_guard lock(state.mutex);
  const auto known = state.exported.find(base);
  if (known == state.exported.end()) return;
  RecordsOf(MemoryMap::Get().window().tail())[known->second].token.store(0, std::memory_order_release);
  state.exported.erase(known);
}

uint64_t OpenMemory(Context& context, const CUipcMemHandle& handle, bool enables_peer) {
  HandleContents contents;
  std::memcpy(&contents, &handle, sizeof contents);
  Require(contents.magic == kHandleMagic && contents.process > 0 && contents.window_fd >= 0 && contents.token != 0 &&
              std::ranges::all_of(contents.reserved, [](uint32_t word) { return word == 0; }),
          CUDA_ERROR_INVALID_HANDLE);
  Require(contents.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
  IpcState& state = GetIpcState();
  const std::lock_guard lock(state.mutex);
  for (auto& [address, opened] : state.opened) {
    if (opened.token != contents.token || opened.context != context.id()) continue;
    ++opened.num_opens;
    return address;
  }
  const ForeignWindow window = OpenWindowOf(contents);
  const ForeignMemory memory = ReadRecord(window, contents);
  OpenedMemory opened;
  const uint64_t address = MapForeign(window, memory, opened.reservation);
  opened.context = context.id();
  opened.token = contents.token;
  state.opened.emplace(address, opened);
  const int device = static_cast<int>(memory.device);
  if (enables_peer && device != context.device().ordinal()) context.memory()->SetPeer(device, true);
  return address;
}

void CloseMemory(Context& context, uint64_t address) {
  context.Synchronize();
  IpcState& state = GetIpcState();
  const std::lock_guard lock(state.mutex);
  const auto opened = state.opened.find(address);
  Require(opened != state.opened.end() && opened->second.context == context.id(), CUDA_ERROR_INVALID_VALUE);
  if (--opened->second.num_opens == 0) CloseIpcLocked(state, opened);
}

void CloseMemoryOf(const Context& context) {
  IpcState& state = GetIpcState();
  const std::lock_guard lock(state.mutex);
  for (auto next = state.opened.begin(); next != state.opened.end();) {
    const auto opened = next++;
    if (opened->second.context == context.id()) CloseIpcLocked(state, opened);
  }
}

}  // namespace tally::sim_driver
