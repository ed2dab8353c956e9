// Copies and fills on streams.
#include <optional>

#include "server/executor/session/admitted_copies.h"
#include "server/executor/session/box_copy.h"
#include "server/executor/session/launch_record.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

void Count(SessionState& session, CopyDirection direction, uint64_t size_bytes) {
  control::Figure figure = "device_to_device_bytes";
  if (direction == CopyDirection::kUp) figure = "host_to_device_bytes";
  if (direction == CopyDirection::kDown) figure = "device_to_host_bytes";
  session.counters.Add(figure, size_bytes);
}

// After the copy was put on its stream: waits if the client does, and otherwise remembers the arena chunks and what the
// program counts on.
CUresult Finish(ServedRequest& served, StreamWaits& waits, ArenaChunks& chunks, Stream& stream, const ArenaUse& arena) {
  const bool is_capturing = stream.context->IsCapturing(stream);
  if (served.wants_reply() && !is_capturing) {
    std::vector<WaitPoint> points;
    waits.MarkStream(stream, &points);
    return waits.AwaitPoints(&points);
  }
  if (served.returns_early() && !is_capturing) {
    if (const CUresult r = stream.context->NoteArrival(stream); r != CUDA_SUCCESS) return r;
  }
  return arena.used ? chunks.MarkChunks(arena.offset_bytes, arena.size_bytes, stream) : CUDA_SUCCESS;
}

CUresult ReadSide(ServedRequest& served, ArenaChunks& chunks, uint32_t place, uint64_t base, uint64_t size_bytes,
                  bool is_source, std::span<const std::byte> inline_bytes, ArenaUse* arena, CopySide* side) {
  switch (static_cast<shm::Place>(place)) {
    case shm::Place::kAddress: {
      const std::optional<MemoryRange> range = served.session().memory.Find(base, size_bytes);
      if (!range) return CUDA_ERROR_INVALID_VALUE;
      *side = {base, range->kind == MemoryKind::kPinned,
               range->kind == MemoryKind::kPinned || range->kind == MemoryKind::kDevice ||
                   range->kind == MemoryKind::kAsync};
      return CUDA_SUCCESS;
    }
    case shm::Place::kArena: {
      if (base > ChannelRegion::kArenaBytes || size_bytes > ChannelRegion::kArenaBytes - base) {
        return served.Malformed("copy beyond the arena");
      }
      if (arena->used) return served.Malformed("copy from arena to arena");
      CUresult registered = CUDA_SUCCESS;
      std::byte* memory = chunks.Arena(&registered);
      if (memory == nullptr) return registered;
      *arena = {true, base, size_bytes};
      *side = {reinterpret_cast<uint64_t>(memory + base), true};
      return CUDA_SUCCESS;
    }
    case shm::Place::kInline:
      if (!is_source || size_bytes > inline_bytes.size()) return served.Malformed("copy beyond its inline bytes");
      *side = {reinterpret_cast<uint64_t>(inline_bytes.data()), true};
      return CUDA_SUCCESS;
    case shm::Place::kArray:
      break;
  }
  return served.Malformed("unknown place of a copy");
}

// What the program's own memory holds when a captured copy is replayed cannot be known here.
bool IsPageable(uint32_t place) {
  return place == static_cast<uint32_t>(shm::Place::kArena) || place == static_cast<uint32_t>(shm::Place::kInline);
}

// What is larger leaves no room beside it, and is put on its stream in pieces.
constexpr uint64_t kMostHeldBytes = uint64_t{64} << 20;

bool IsOnDevice(ServedRequest& served, CUdeviceptr address, int device) {
  SessionState& session = served.session();
  if (session.core.devices->count() == 1) return true;
  const std::optional<MemoryRange> range = session.memory.RangeAt(address);
  const ClientContext* const owner = range ? session.FindContext(range->context) : nullptr;
  return owner != nullptr && owner->device() == device;
}

// What kernels of the device may touch whenever its program may.
bool IsReached(ServedRequest& served, CUdeviceptr address, uint64_t size_bytes, int device) {
  const std::optional<MemoryRange> range = served.session().memory.Find(address, size_bytes);
  return range && (range->kind == MemoryKind::kDevice || range->kind == MemoryKind::kAsync) &&
         IsOnDevice(served, address, device);
}

enum class Placing : uint8_t {
  kNotYet,
  kPut,   // on its stream
  kHeld,  // in the session's window: nothing else is to be done
};

// Puts the transfer behind gated launches, or has the stream ready for it.
CUresult PutOrSeal(ServedRequest& served, Stream& stream, const Transfer& transfer, Placing* placing) {
  CUresult result = CUDA_SUCCESS;
  if (IsReached(served, transfer.to, transfer.row_bytes, stream.device) &&
      (transfer.is_fill() || IsReached(served, transfer.from, transfer.row_bytes, stream.device)) &&
      PutBehindGated(served.session(), stream, transfer, &result)) {
    *placing = Placing::kPut;
    return result;
  }
  return stream.Seal();
}

// What the session's window held is issued, unless it holds the transfer as well. If that was not put yet, the stream
// is ready for what is to be put there, transfer or not.
CUresult HoldOrResolve(ServedRequest& served, ClientNames& names, uint64_t name,
                       const std::optional<Transfer>& transfer, Stream** stream, Placing* placing) {
  *placing = Placing::kNotYet;
  if (!transfer) {
    served.IssueHeld(WindowEnd::kRequest);
    return names.ResolveStream(name, StreamUse::kOrdered, stream);
  }
  // Neither factor is beyond what a checked range can have.
  if (served.session().window == nullptr || transfer->row_bytes * transfer->rows > kMostHeldBytes) {
    served.IssueHeld(WindowEnd::kRequest);
    if (const CUresult r = names.ResolveStream(name, StreamUse::kLaunch, stream); r != CUDA_SUCCESS) return r;
    return PutOrSeal(served, **stream, *transfer, placing);
  }
  served.EnterWindow({name, served.context_index(), names.channel_index()});
  if (const CUresult r = names.ResolveStream(name, StreamUse::kLaunch, stream); r != CUDA_SUCCESS) return r;
  const int device = (*stream)->device;
  PendingLaunch& launch = served.launch();
  launch.kernel = nullptr;
  launch.transfer = *transfer;
  launch.flags = 0;
  launch.attributes.clear();
  MakeReady(served.session(), **stream, launch);
  if (IsOnDevice(served, transfer->to, device) && (transfer->is_fill() || IsOnDevice(served, transfer->from, device))) {
    if (served.TryHold(launch)) *placing = Placing::kHeld;
  } else {
    served.IssueHeld(WindowEnd::kRequest);
  }
  return *placing == Placing::kHeld ? CUDA_SUCCESS : PutOrSeal(served, **stream, *transfer, placing);
}

}  // namespace

CUresult ServeCopy(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks, WireReader& in,
                   WireWriter&) {
  shm::Copy copy{};
  in.TakeStruct(&copy);
  const bool is_inline = copy.source_place == static_cast<uint32_t>(shm::Place::kInline);
  if (is_inline && copy.size_bytes > shm::kMaxInlineBytes) return served.Malformed("too many inline bytes");
  const std::span<const std::byte> inline_bytes = in.TakeBytes(is_inline ? copy.size_bytes : 0);
  if (!in.AtEnd()) return served.Malformed();
  ArenaUse arena;
  CopySide from;
  CopySide to;
  if (const CUresult r =
          ReadSide(served, chunks, copy.source_place, copy.source, copy.size_bytes, true, inline_bytes, &arena, &from);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r =
          ReadSide(served, chunks, copy.destination_place, copy.destination, copy.size_bytes, false, {}, &arena, &to);
      r != CUDA_SUCCESS) {
    return r;
  }
  std::optional<Transfer> transfer;
  if (copy.size_bytes != 0 && !from.is_host && !to.is_host) {
    transfer = {.to = to.address, .from = from.address, .row_bytes = copy.size_bytes};
  }
  Stream* stream = nullptr;
  Placing placing = Placing::kNotYet;
  if (const CUresult r = HoldOrResolve(served, names, copy.stream, transfer, &stream, &placing); r != CUDA_SUCCESS) {
    return r;
  }
  if ((IsPageable(copy.source_place) || IsPageable(copy.destination_place)) && stream->context->IsCapturing(*stream)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (copy.size_bytes == 0) return CUDA_SUCCESS;
  if (placing == Placing::kHeld) return Count(served.session(), CopyDirection::kDevice, copy.size_bytes), CUDA_SUCCESS;
  CopyDirection direction = CopyDirection::kDevice;
  if (from.is_host != to.is_host) direction = from.is_host ? CopyDirection::kUp : CopyDirection::kDown;
  if (from.is_host && to.is_host) direction = CopyDirection::kDown;
  to.is_seen_by_device = to.is_seen_by_device && served.current_device() == stream->device &&
                         IsOnDevice(served, to.address, stream->device);
  if (placing == Placing::kNotYet) {
    const CUresult result = PutCopy(served.session(), *stream, to, from, copy.size_bytes, direction);
    if (result != CUDA_SUCCESS) return result;
  }
  Count(served.session(), direction, copy.size_bytes);
  return Finish(served, waits, chunks, *stream, arena);
}

CUresult ServeCopyBox(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks,
                      WireReader& in, WireWriter&) {
  shm::CopyBox box{};
  in.TakeStruct(&box);
  if (box.inline_bytes > shm::kMaxInlineBytes) return served.Malformed("too many inline bytes");
  const std::span<const std::byte> inline_bytes = in.TakeBytes(box.inline_bytes);
  if (!in.AtEnd()) return served.Malformed();
  BoxCopy copy;
  if (const CUresult r = ReadBoxCopy(served, names, chunks, box, inline_bytes, &copy); r != CUDA_SUCCESS) return r;
  Stream* stream = nullptr;
  Placing placing = Placing::kNotYet;
  std::optional<Transfer> transfer;
  if (copy.size_bytes != 0 && copy.direction == CopyDirection::kDevice) transfer = TransferOf(copy.parameters);
  if (const CUresult r = HoldOrResolve(served, names, box.stream, transfer, &stream, &placing); r != CUDA_SUCCESS) {
    return r;
  }
  if (copy.size_bytes == 0) return CUDA_SUCCESS;
  if (placing == Placing::kHeld) return Count(served.session(), CopyDirection::kDevice, copy.size_bytes), CUDA_SUCCESS;
  if ((IsPageable(box.source.place) || IsPageable(box.destination.place)) && stream->context->IsCapturing(*stream)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (placing == Placing::kNotYet) {
    const CUresult result = PutBox(served.session(), *stream, copy.parameters, copy.direction);
    if (result != CUDA_SUCCESS) return result;
  }
  Count(served.session(), copy.direction, copy.size_bytes);
  return Finish(served, waits, chunks, *stream, copy.arena);
}

CUresult ServeFill(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks, WireReader& in,
                   WireWriter&) {
  shm::Fill fill{};
  in.TakeStruct(&fill);
  if (!in.AtEnd()) return served.Malformed();
  if (const CUresult r = CheckFill(served, fill); r != CUDA_SUCCESS) return r;
  const CUDA_MEMSET_NODE_PARAMS parameters{fill.address,       fill.pitch_bytes, fill.value,
                                           fill.element_bytes, fill.width,       fill.height};
  Stream* stream = nullptr;
  Placing placing = Placing::kNotYet;
  if (const CUresult r = HoldOrResolve(served, names, fill.stream, TransferOf(parameters), &stream, &placing);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (placing == Placing::kHeld || fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (placing == Placing::kNotYet) {
    if (const CUresult r = PutFill(served.session(), *stream, parameters); r != CUDA_SUCCESS) return r;
  }
  return Finish(served, waits, chunks, *stream, {});
}

CUresult ServeAwaitArena(ServedRequest& served, ArenaChunks& chunks, WireReader& in, WireWriter&) {
  const auto chunk = static_cast<uint32_t>(in.TakeWord());
  if (!in.AtEnd()) return served.Malformed();
  return chunks.AwaitChunk(chunk);
}

}  // namespace tally::server
