// Puts a validated launch on its stream: as the program wrote it or, for best-effort tenants, in the form that the
// kernel's profile says (server/executor/issue). Passes the dispatch gate by itself.
#pragma once

#include "server/executor/session/client_context.h"
#include "server/executor/session/launch_parameters.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// Whether anybody cares how the GPU could be taken from what is launched now: it is best-effort work, and goes there.
bool IsOfInterest(ServedRequest& served, const Stream& stream);

CUresult LaunchKernel(ServedRequest& served, Stream& stream, LaunchParameters& request);

}  // namespace tally::server
