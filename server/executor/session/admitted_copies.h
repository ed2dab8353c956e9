// Copies and fills on their way through admission: large ones of best-effort sessions in pieces, so that what of them
// is on the GPU when high-priority work comes is soon done.
//
// For operations that have ordered and sealed their stream. CUDA_SUCCESS: all of it was put there; otherwise perhaps a
// part.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "server/executor/issue/transfer.h"
#include "server/executor/session/box_copy.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/session_state.h"

namespace tally::server {

struct CopySide {
  uint64_t address = 0;
  bool is_host = false;
  bool is_seen_by_device =
      false;  // of the host: kernels may read it; of a device: kernels of the stream's may write it
};

// `size_bytes` is not 0.
CUresult PutCopy(SessionState& session, const Stream& stream, const CopySide& to, const CopySide& from,
                 uint64_t size_bytes, CopyDirection direction);
// What has no extent is the driver's to judge.
CUresult PutBox(SessionState& session, const Stream& stream, const CUDA_MEMCPY3D& box, CopyDirection direction);
// Likewise; elements of 1, 2 or 4 bytes. The context in it is not used.
CUresult PutFill(SessionState& session, const Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill);
// Puts it behind the gated launches of a stream that is not sealed, if it can be one of them. False: it was not; seal
// the stream and put it there as it is.
bool PutBehindGated(SessionState& session, const Stream& stream, const Transfer& transfer, CUresult* result);
// What could have been held: of any of the three kinds.
CUresult PutTransfer(SessionState& session, const Stream& stream, const Transfer& transfer);

}  // namespace tally::server
