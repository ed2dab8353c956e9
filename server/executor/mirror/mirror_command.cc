#include "server/executor/mirror/mirror_command.h"

#include <array>
#include <cstring>
#include <string>

namespace tally::server {
namespace {

using shm::MirrorCommand;
using shm::MirrorCommandKind;

// What a kind of command says, and so what is checked of it.
struct Shape {
  bool has_range = false;  // offset and num_bytes inside an allocation
  bool has_gpu = false;
  bool has_box = false;
  bool has_stream = false;
  bool has_bytes = false;  // num_bytes of MirrorSlot::bytes
};
constexpr std::array<Shape, shm::kNumMirrorCommands> kShapes = {{
    {},                                                      // kNone
    {},                                                      // kReserve
    {},                                                      // kRelease
    {.has_range = true},                                     // kMapShared
    {.has_range = true},                                     // kMapOwn
    {.has_range = true, .has_gpu = true},                    // kMapOther
    {.has_range = true, .has_gpu = true},                    // kUnmap
    {},                                                      // kLoadImage
    {},                                                      // kUnloadImage
    {.has_bytes = true},                                     // kFunction
    {},                                                      // kBeginTask
    {},                                                      // kEndTask
    {},                                                      // kDropTask
    {},                                                      // kTimeSlice
    {.has_stream = true, .has_bytes = true},                 // kLaunch
    {.has_box = true, .has_stream = true},                   // kFill
    {.has_stream = true},                                    // kRun
    {.has_gpu = true, .has_box = true, .has_stream = true},  // kFetch
    {.has_gpu = true, .has_box = true, .has_stream = true},  // kWriteBack
}};

// As CUDA limits them for every device so far; the driver checks the rest.
constexpr uint32_t kMaxGridX = 2147483647, kMaxGridYz = 65535, kMaxBlockThreads = 1024, kMaxClusterBlocks = 16;

Status Bad(const char* what) { return Status(StatusCode::kInvalidArgument, what); }

bool IsShapeOfLaunch(const MirrorCommand& command) {
  const auto& grid = command.grid;
  const auto& block = command.block;
  if (grid[0] == 0 || grid[0] > kMaxGridX) return false;
  for (const int i : {1, 2}) {
    if (grid[i] == 0 || grid[i] > kMaxGridYz) return false;
  }
  for (const uint32_t size : block) {
    if (size == 0 || size > kMaxBlockThreads) return false;
  }
  const auto& cluster = command.cluster;
  const bool has_cluster = cluster[0] != 0 || cluster[1] != 0 || cluster[2] != 0;
  for (const uint32_t size : cluster) {
    if (has_cluster && (size == 0 || size > kMaxClusterBlocks)) return false;
  }
  if (uint64_t{cluster[0]} * cluster[1] * cluster[2] > kMaxClusterBlocks) return false;
  return uint64_t{block[0]} * block[1] * block[2] <= kMaxBlockThreads;
}

bool IsBox(const MirrorCommand& command) {
  if (command.rows == 0 || command.row_bytes == 0) return false;
  if (command.rows > 1 && command.pitch < command.row_bytes) return false;
  uint64_t end = 0;
  const uint64_t pitch = command.rows == 1 ? 0 : command.pitch;
  return !__builtin_mul_overflow(pitch, command.rows - 1, &end) &&
         !__builtin_add_overflow(end, command.row_bytes, &end) && !__builtin_add_overflow(end, command.offset, &end);
}

bool IsRange(uint64_t begin, uint64_t num_bytes) {
  uint64_t end = 0;
  return num_bytes != 0 && !__builtin_add_overflow(begin, num_bytes, &end);
}

}  // namespace

Status CheckCommand(const MirrorCommand& command) {
  const auto kind = static_cast<uint32_t>(command.kind);
  if (kind == 0 || kind >= shm::kNumMirrorCommands) return Bad("an unknown command");
  const Shape& shape = kShapes[kind];
  if (command.allocation >= shm::kMirrorMaxAllocations) return Bad("the number of an allocation is too large");
  if (command.image >= shm::kMirrorMaxImages) return Bad("the number of an image is too large");
  if (command.function >= shm::kMirrorMaxFunctions) return Bad("the number of a function is too large");
  if (command.task >= shm::kMirrorMaxTasks) return Bad("the number of a task is too large");
  if (shape.has_stream && command.stream >= shm::kMirrorStreams) return Bad("no such stream");
  const bool names_self = command.kind == MirrorCommandKind::kUnmap && command.gpu == shm::kMirrorSelf;
  if (shape.has_gpu && !names_self && command.gpu >= shm::kMirrorMaxDevices) return Bad("no such GPU");
  if (shape.has_range && !IsRange(command.offset, command.num_bytes)) return Bad("a range that wraps or is empty");
  if (shape.has_box && !IsBox(command)) return Bad("a box that wraps, overlaps itself or is empty");
  if (shape.has_bytes && command.num_bytes > shm::kMirrorBytes) return Bad("more bytes than a slot has");
  if (command.kind == MirrorCommandKind::kReserve && !IsRange(command.address, command.num_bytes)) {
    return Bad("addresses that wrap or are none");
  }
  if (command.kind == MirrorCommandKind::kLaunch && !IsShapeOfLaunch(command)) return Bad("no shape of a launch");
  return OkStatus();
}

Result<MirrorOrder> ReadOrder(const shm::MirrorSlot& slot) {
  MirrorOrder order;
  // Volatile: the compiler must not read a field again after it was checked.
  const auto* words = reinterpret_cast<const volatile uint32_t*>(&slot.command);
  std::array<uint32_t, sizeof(MirrorCommand) / sizeof(uint32_t)> copy{};
  for (size_t i = 0; i < copy.size(); ++i) copy[i] = words[i];
  std::memcpy(&order.command, copy.data(), sizeof order.command);
  if (Status status = CheckCommand(order.command); !status.ok()) return std::unexpected(std::move(status));
  if (kShapes[static_cast<size_t>(order.command.kind)].has_bytes) {
    order.bytes.resize(order.command.num_bytes);
    const auto* bytes = static_cast<const volatile uint8_t*>(slot.bytes);
    for (size_t i = 0; i < order.bytes.size(); ++i) order.bytes[i] = static_cast<std::byte>(bytes[i]);
  }
  return order;
}

}  // namespace tally::server
