// Kernels by the driver's handle and by the client's.
#pragma once

#include <cuda.h>

#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// Ours for a CUfunction or a CUkernel (the other is null): found, or made with its layout and named.
CUresult NameKernel(ServedRequest& served, ClientNames& names, LoadedImage* image, CUfunction function, CUkernel kernel,
                    Kernel** result);
// Null: not a kernel or function of this session.
Kernel* FindKernel(SessionState& session, uint64_t handle);

}  // namespace tally::server
