// Kernel launches, host functions, cluster occupancy.
#include "server/session/gated_dispatch.h"
#include "server/session/launch_parameters.h"
#include "server/session/operations.h"

namespace tally::server {

CUresult ServeLaunch(ServedLane& lane, WireReader& in, WireWriter&) {
  LaunchParameters& request = lane.launch_parameters();
  if (const CUresult r = request.Read(lane, in); r != CUDA_SUCCESS) return r;
  const shm::Launch& launch = request.launch();
  Stream* ordered = nullptr;
  if (const CUresult r = lane.ResolveStream(launch.stream, StreamUse::kOrdered, &ordered); r != CUDA_SUCCESS) return r;
  // As natively: a kernel runs on the current device or not at all.
  if (lane.context() != nullptr && lane.context()->device() != ordered->context->device()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const CUstream stream = ordered->real;
  const CUfunction function = request.kernel().ForLaunch();
  const DriverTable& driver = lane.driver();
  const GatedDispatch dispatch(lane, *ordered);
  CUresult result = CUDA_SUCCESS;
  if ((launch.flags & shm::kLaunchEx) != 0) {
    const CUlaunchConfig config = request.Config(stream);
    result = driver.cuLaunchKernelEx(&config, function, request.parameters(), request.extra());
  } else if ((launch.flags & shm::kLaunchCooperative) != 0) {
    result = driver.cuLaunchCooperativeKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                              launch.block[1], launch.block[2], launch.shared_bytes, stream,
                                              request.parameters());
  } else {
    result = driver.cuLaunchKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                   launch.block[1], launch.block[2], launch.shared_bytes, stream, request.parameters(),
                                   request.extra());
  }
  lane.session().counters.num_launches.fetch_add(1, std::memory_order_relaxed);
  return result;
}

CUresult ServeLaunchHostFunction(ServedLane& lane, WireReader& in, WireWriter&) {
  shm::LaunchHostFunction request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return lane.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = lane.ResolveStream(request.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  SessionState& session = lane.session();
  auto call = std::make_unique<HostCall>(HostCall{session.callbacks, request.token, false});
  // In a capture it becomes a node that every replay runs again.
  const bool is_repeatable = stream->context->IsCapturing(*stream);
  call->is_repeatable = is_repeatable;
  const CUresult result = request.is_callback != 0
                              ? lane.driver().cuStreamAddCallback(stream->real, &RunStreamCallback, call.get(), 0)
                              : lane.driver().cuLaunchHostFunc(stream->real, &RunHostFunction, call.get());
  if (result != CUDA_SUCCESS) return result;
  // If it is not repeatable it may have run by now and freed itself: only the local says which.
  if (is_repeatable) {
    session.kept_host_calls.push_back(std::move(call));
  } else {
    static_cast<void>(call.release());  // frees itself after the call
  }
  return CUDA_SUCCESS;
}

CUresult ServeMaxActiveClusters(ServedLane& lane, WireReader& in, WireWriter& out) {
  LaunchParameters request;
  shm::ClusterQuery query{};
  if (const CUresult r = request.ReadQuery(lane, in, &query); r != CUDA_SUCCESS) return r;
  const auto ask = query.want_maximum != 0 ? lane.driver().cuOccupancyMaxPotentialClusterSize
                                           : lane.driver().cuOccupancyMaxActiveClusters;
  if (ask == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUlaunchConfig config = request.Config(nullptr);
  int value = 0;
  if (const CUresult r = ask(&value, request.kernel().ForLaunch(), &config); r != CUDA_SUCCESS) return r;
  const std::array<int32_t, 2> reply = {value, 0};
  out.PutStruct(reply);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
