// Kernel launches, host functions, cluster occupancy.
#include "server/executor/issue/driver_arguments.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_forms.h"
#include "server/executor/session/launch_record.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeLaunch(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  PendingLaunch& launch = served.launch();
  shm::Launch record{};
  if (const CUresult r = ReadLaunch(served, names, in, &record, &launch); r != CUDA_SUCCESS) return r;
  // Before the stream is ordered behind others: they must have what is held for them.
  served.EnterWindow({record.stream, served.context_index(), names.channel_index()});
  Stream* ordered = nullptr;
  if (const CUresult r = names.ResolveStream(record.stream, StreamUse::kLaunch, &ordered); r != CUDA_SUCCESS) return r;
  // As natively: a kernel runs on the current device or not at all.
  if (served.context() != nullptr && served.context()->device() != ordered->context->device()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  MakeReady(served.session(), *ordered, launch);
  const CUresult result = served.TryHold(launch) ? CUDA_SUCCESS : IssueLaunch(launch);
  served.session().counters.Add("kernel_launches");
  // Of a launch that becomes a device-updatable node: the device's name for it, which the program's kernels use.
  for (const CUlaunchAttribute& attribute : launch.attributes) {
    if (result != CUDA_SUCCESS || !served.wants_reply()) break;
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) continue;
    out.PutWord(reinterpret_cast<uint64_t>(attribute.value.deviceUpdatableKernelNode.devNode));
  }
  return result;
}

CUresult ServeLaunchHostFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::LaunchHostFunction request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  SessionState& session = served.session();
  auto call = std::make_unique<HostCall>(HostCall{session.host_calls.queue, request.token});
  // In a capture it becomes a node that every replay runs again.
  const bool is_repeatable = stream->context->IsCapturing(*stream);
  call->is_repeatable = is_repeatable;
  HostCallWord& word = stream->host_calls;
  if (!is_repeatable) {
    // Without words (a driver that cannot wait for them) its thread waits.
    if (word.word == nullptr) {
      const CUresult acquired = session.host_calls.words.Acquire(&word);
      if (acquired != CUDA_SUCCESS && acquired != CUDA_ERROR_NOT_SUPPORTED) return acquired;
    }
    call->word = word.word;
    call->number = word.num_calls + 1;
  }
  const bool waits_for_word = call->word != nullptr;
  const CUresult result = request.is_callback != 0
                              ? served.driver().cuStreamAddCallback(stream->real, &RunStreamCallback, call.get(), 0)
                              : served.driver().cuLaunchHostFunc(stream->real, &RunHostFunction, call.get());
  if (result != CUDA_SUCCESS) return result;
  // If it is not repeatable it may have run by now and freed itself: only the local says which.
  if (is_repeatable) {
    session.host_calls.kept.push_back(std::move(call));
  } else {
    static_cast<void>(call.release());  // frees itself after the call
  }
  if (!waits_for_word) return CUDA_SUCCESS;
  ++word.num_calls;
  return served.driver().cuStreamWaitValue32_v2(stream->real, reinterpret_cast<CUdeviceptr>(word.word), word.num_calls,
                                                CU_STREAM_WAIT_VALUE_GEQ);
}

CUresult ServeMaxActiveClusters(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  PendingLaunch& launch = served.launch();
  shm::ClusterQuery query{};
  if (const CUresult r = ReadClusterQuery(served, names, in, &query, &launch); r != CUDA_SUCCESS) return r;
  const auto ask = query.want_maximum != 0 ? served.driver().cuOccupancyMaxPotentialClusterSize
                                           : served.driver().cuOccupancyMaxActiveClusters;
  if (ask == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUlaunchConfig config = ConfigOf(launch, nullptr);
  int value = 0;
  if (const CUresult r = ask(&value, launch.kernel->ForLaunch(), &config); r != CUDA_SUCCESS) return r;
  const std::array<int32_t, 2> reply = {value, 0};
  out.PutStruct(reply);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
