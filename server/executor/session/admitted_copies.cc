#include "server/executor/session/admitted_copies.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "server/executor/issue/admitted_dispatch.h"

namespace tally::server {
namespace {

CUresult CopyPiece(const DriverTable& driver, const CopySide& to, const CopySide& from, uint64_t offset_bytes,
                   uint64_t size_bytes, CUstream stream) {
  const uint64_t source = from.address + offset_bytes;
  const uint64_t target = to.address + offset_bytes;
  if (from.is_host && to.is_host) return driver.cuMemcpyAsync(target, source, size_bytes, stream);
  if (from.is_host) {
    return driver.cuMemcpyHtoDAsync_v2(target, reinterpret_cast<const void*>(source), size_bytes, stream);
  }
  if (to.is_host) return driver.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(target), source, size_bytes, stream);
  return driver.cuMemcpyDtoDAsync_v2(target, source, size_bytes, stream);
}

CUresult FillPiece(const DriverTable& driver, const CUDA_MEMSET_NODE_PARAMS& fill, CUstream stream) {
  const auto byte = static_cast<unsigned char>(fill.value);
  const auto half = static_cast<unsigned short>(fill.value);
  const bool is_line = fill.height == 1;
  switch (fill.elementSize) {
    case 1:
      return is_line ? driver.cuMemsetD8Async(fill.dst, byte, fill.width, stream)
                     : driver.cuMemsetD2D8Async(fill.dst, fill.pitch, byte, fill.width, fill.height, stream);
    case 2:
      return is_line ? driver.cuMemsetD16Async(fill.dst, half, fill.width, stream)
                     : driver.cuMemsetD2D16Async(fill.dst, fill.pitch, half, fill.width, fill.height, stream);
    default:
      return is_line ? driver.cuMemsetD32Async(fill.dst, fill.value, fill.width, stream)
                     : driver.cuMemsetD2D32Async(fill.dst, fill.pitch, fill.value, fill.width, fill.height, stream);
  }
}

constexpr uint64_t kHostPiece = uint64_t{8} << 20;      // 0.15 ms at 55 GB/s
constexpr uint64_t kDevicePiece = uint64_t{256} << 20;  // the same at 1.7 TB/s

// Those of high-priority tenants are not announced either: what matters comes behind them.
bool AreHeld(const SessionState& session, const Stream& stream) {
  return session.core.admission->HoldsCopies(stream.context->device()) &&
         !session.is_high_priority.load(std::memory_order_relaxed) && !stream.context->IsCapturing(stream);
}

// Into pieces of what size a copy is cut, so that each takes a fraction of a millisecond.
uint64_t PieceBytes(const SessionState& session, const Stream& stream, CopyDirection direction) {
  if (!AreHeld(session, stream)) return UINT64_MAX;
  return direction == CopyDirection::kDevice ? kDevicePiece : kHostPiece;
}

// Whether a kernel makes the copy (upload_kernels.h): of programs that take the GPU from others whenever they come.
bool IsMadeByKernel(const SessionState& session, const Stream& stream, const CopySide& to, const CopySide& from,
                    uint64_t size_bytes) {
  return from.is_host && from.is_seen_by_device && to.is_seen_by_device && size_bytes <= UploadKernels::kMostBytes &&
         session.is_high_priority.load(std::memory_order_relaxed) && session.core.notices.AreOfUseOn(stream.device) &&
         !stream.context->IsCapturing(stream);
}

constexpr const char* NameOf(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::kUp:
      return "copy to the GPU";
    case CopyDirection::kDown:
      return "copy from the GPU";
    case CopyDirection::kDevice:
      break;
  }
  return "copy or fill on the GPU";
}

// Copies of about the same size in one direction take about the same time; they leave the multiprocessors to others.
scheduler::LaunchAsked AskedOfCopy(const SessionState& session, CopyDirection direction, uint64_t size_bytes) {
  const auto magnitude = static_cast<uint64_t>(std::bit_width(size_bytes));
  const uint64_t fraction = magnitude > 3 ? size_bytes >> (magnitude - 3) : size_bytes;
  const uint64_t bytes_per_us = direction == CopyDirection::kDevice ? 1'000'000 : 25'000;
  scheduler::LaunchAsked asked;
  asked.kind = uint64_t{1} << 63 | static_cast<uint64_t>(direction) << 32 | magnitude << 8 | fraction;
  asked.num_blocks = 1;
  asked.duration = std::chrono::nanoseconds(1000 + size_bytes * 1000 / bytes_per_us);
  asked.turnaround = session.turnaround();
  return asked;
}

// Puts something of `num_units` (bytes, rows, slices), each of `unit_bytes`, on the stream piece by piece:
// put(first, num) as often as need be.
template <typename Put>
CUresult InPieces(SessionState& session, const Stream& stream, CopyDirection direction, uint64_t num_units,
                  uint64_t unit_bytes, const Put& put) {
  uint64_t units_at_once = std::max<uint64_t>(PieceBytes(session, stream, direction) / unit_bytes, 1);
  for (uint64_t first = 0; first < num_units;) {
    const uint64_t num = std::min(units_at_once, num_units - first);
    session.NoteWork(stream, /*is_launch=*/false);
    const bool are_held = AreHeld(session, stream);
    const AdmittedDispatch dispatch(session.launches, stream, AskedOfCopy(session, direction, num * unit_bytes),
                                    /*passes=*/!are_held, {nullptr, NameOf(direction)});
    const bool passes_uncaptured = !are_held && !stream.context->IsCapturing(stream);
    // One that is held back is recorded where it passes admission.
    TracedWork traced(session.launches, stream, {nullptr, NameOf(direction)}, /*is_captured=*/!passes_uncaptured);
    if (passes_uncaptured) {
      if (!session.launches.AwaitShare(stream.device)) return AdmittedDispatch::kCancelled;
      stream.NoteBusy();
    }
    traced.OnAdmitted(/*may_go=*/true, /*may_have_waited=*/false);
    if (dispatch.is_cancelled()) return AdmittedDispatch::kCancelled;
    if (dispatch.is_forced()) units_at_once = UINT64_MAX;
    if (const CUresult r = put(first, num); r != CUDA_SUCCESS) return r;
    first += num;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult PutCopy(SessionState& session, const Stream& stream, const CopySide& to, const CopySide& from,
                 uint64_t size_bytes, CopyDirection direction) {
  const bool is_made_by_kernel = IsMadeByKernel(session, stream, to, from, size_bytes);
  return InPieces(session, stream, direction, size_bytes, 1, [&](uint64_t first, uint64_t num) {
    CUresult result = CUDA_SUCCESS;
    if (is_made_by_kernel &&
        session.core.uploads.Copy(stream.device, to.address + first, from.address + first, num, stream.real, &result)) {
      return result;
    }
    return CopyPiece(session.driver, to, from, first, num, stream.real);
  });
}

CUresult PutBox(SessionState& session, const Stream& stream, const CUDA_MEMCPY3D& box, CopyDirection direction) {
  const auto put = [&](const CUDA_MEMCPY3D& piece) { return session.driver.cuMemcpy3DAsync_v2(&piece, stream.real); };
  const auto rows_of = [](CUDA_MEMCPY3D piece, uint64_t first, uint64_t num) {
    piece.srcY += first;
    piece.dstY += first;
    piece.Height = num;
    return piece;
  };
  const auto slices_of = [](CUDA_MEMCPY3D piece, uint64_t first, uint64_t num) {
    piece.srcZ += first;
    piece.dstZ += first;
    piece.Depth = num;
    return piece;
  };
  const uint64_t slice_bytes = box.WidthInBytes * box.Height;
  if (slice_bytes == 0 || box.Depth == 0) return put(box);
  if (slice_bytes <= PieceBytes(session, stream, direction)) {
    return InPieces(session, stream, direction, box.Depth, slice_bytes,
                    [&](uint64_t first, uint64_t num) { return put(slices_of(box, first, num)); });
  }
  for (uint64_t z = 0; z < box.Depth; ++z) {
    const CUDA_MEMCPY3D slice = slices_of(box, z, 1);
    const CUresult result = InPieces(session, stream, direction, box.Height, box.WidthInBytes,
                                     [&](uint64_t first, uint64_t num) { return put(rows_of(slice, first, num)); });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult PutFill(SessionState& session, const Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill) {
  const uint64_t element_bytes = fill.elementSize;
  const auto put = [&](const CUDA_MEMSET_NODE_PARAMS& piece) { return FillPiece(session.driver, piece, stream.real); };
  if (fill.width == 0 || fill.height == 0) return put(fill);
  if (fill.height == 1) {
    return InPieces(session, stream, CopyDirection::kDevice, fill.width, element_bytes,
                    [&](uint64_t first, uint64_t num) {
                      CUDA_MEMSET_NODE_PARAMS piece = fill;
                      piece.dst += first * element_bytes;
                      piece.width = num;
                      return put(piece);
                    });
  }
  const uint64_t row_bytes = fill.width * element_bytes;
  return InPieces(session, stream, CopyDirection::kDevice, fill.height, row_bytes, [&](uint64_t first, uint64_t num) {
    CUDA_MEMSET_NODE_PARAMS piece = fill;
    piece.dst += first * fill.pitch;
    piece.height = num;
    return put(piece);
  });
}

bool PutBehindGated(SessionState& session, const Stream& stream, const Transfer& transfer, CUresult* result) {
  if (stream.gated == nullptr || stream.context->IsCapturing(stream) || !stream.gated->Takes(transfer)) return false;
  session.NoteWork(stream, /*is_launch=*/false);
  scheduler::LaunchAsked asked = AskedOfCopy(session, CopyDirection::kDevice, transfer.row_bytes);
  asked.can_yield = true;
  const AdmittedDispatch dispatch(session.launches, stream, asked, /*passes=*/false,
                                  {nullptr, NameOf(CopyDirection::kDevice)});
  *result = dispatch.is_cancelled() ? AdmittedDispatch::kCancelled : stream.gated->Put(transfer);
  if (*result == CUDA_SUCCESS) session.counters.Add("gated_transfers");
  return true;
}

CUresult PutTransfer(SessionState& session, const Stream& stream, const Transfer& transfer) {
  if (transfer.is_fill()) return PutFill(session, stream, FillOf(transfer));
  if (transfer.rows > 1) return PutBox(session, stream, CopyOf(transfer), CopyDirection::kDevice);
  return PutCopy(session, stream, {.address = transfer.to}, {.address = transfer.from}, transfer.row_bytes,
                 CopyDirection::kDevice);
}

}  // namespace tally::server
