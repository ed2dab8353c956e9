#include "server/executor/session/launch_record.h"

#include <algorithm>
#include <iterator>

#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_forms.h"
#include "server/executor/session/kernel_ops.h"

namespace tally::server {

static_assert(sizeof(CUlaunchAttribute) == shm::kLaunchAttributeBytes);

bool IsKnownAttribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:  // a hint to the cache: reads and writes nothing
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return true;
    default:
      return false;
  }
}

namespace {

// What the two kinds of records have in common.
CUresult ReadHead(ServedRequest& served, ClientNames& names, WireReader& in, const shm::Launch& record,
                  PendingLaunch* launch) {
  std::copy(std::begin(record.grid), std::end(record.grid), launch->shape.grid.begin());
  std::copy(std::begin(record.block), std::end(record.block), launch->shape.block.begin());
  launch->shape.shared_bytes = record.shared_bytes;
  launch->flags = record.flags;
  if (record.num_attributes > shm::kMaxLaunchAttributes) return served.Malformed("too many launch attributes");
  launch->attributes.resize(record.num_attributes);
  for (CUlaunchAttribute& attribute : launch->attributes) {
    in.TakeStruct(&attribute);
    // These two carry an event, which is a session's id until here; the third is filled in by the driver.
    CUevent* event = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = &attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = &attribute.value.launchCompletionEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      attribute.value.deviceUpdatableKernelNode.devNode = nullptr;
    }
    if (!IsKnownAttribute(attribute.id)) return CUDA_ERROR_NOT_SUPPORTED;
    if (event != nullptr) {
      const auto handle = reinterpret_cast<uint64_t>(*event);
      if (const CUresult r = names.Find(shm::HandleKind::kEvent, handle, event); r != CUDA_SUCCESS) return r;
    }
  }
  return CUDA_SUCCESS;
}

// Copied, as the program may still write to the record. What is read here is judged when somebody asks for it.
CUresult ReadDeclaration(ServedRequest& served, WireReader& in, const shm::Launch& record, PendingLaunch* launch) {
  const uint32_t num_boxes = uint32_t{record.num_declared_reads} + record.num_declared_writes;
  if (num_boxes > shm::kMaxDeclaredBoxes) return served.Malformed("too many declared segments");
  launch->num_declared_reads = record.num_declared_reads;
  launch->declared.resize(num_boxes);
  for (shm::DeclaredBox& box : launch->declared) in.TakeStruct(&box);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ReadLaunch(ServedRequest& served, ClientNames& names, WireReader& in, shm::Launch* record,
                    PendingLaunch* launch) {
  in.TakeStruct(record);
  if (const CUresult r = ReadHead(served, names, in, *record, launch); r != CUDA_SUCCESS) return r;
  if (record->parameter_bytes > shm::kMaxParameterBytes) return served.Malformed("too many parameter bytes");
  const std::span<const std::byte> bytes = in.TakeBytes(record->parameter_bytes);
  if ((record->flags & shm::kLaunchDeclared) != 0) [[unlikely]] {
    if (const CUresult r = ReadDeclaration(served, in, *record, launch); r != CUDA_SUCCESS) return r;
  }
  if (!in.AtEnd()) return served.Malformed();
  launch->kernel = FindKernel(served.session(), record->function);
  if (launch->kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A buffer of the program's own may be as short as it likes.
  if (!launch->has_own_buffer() && bytes.size() < launch->kernel->parameter_bytes)
    return served.Malformed("fewer parameter bytes than the kernel takes");
  launch->parameters.Assign(bytes);
  launch->parameter_bytes = record->parameter_bytes;
  return CUDA_SUCCESS;
}

CUresult ReadClusterQuery(ServedRequest& served, ClientNames& names, WireReader& in, shm::ClusterQuery* query,
                          PendingLaunch* launch) {
  in.TakeStruct(query);
  if (const CUresult r = ReadHead(served, names, in, query->config, launch); r != CUDA_SUCCESS) return r;
  if (!in.AtEnd()) return served.Malformed();
  launch->kernel = FindKernel(served.session(), query->config.function);
  return launch->kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void MakeReady(SessionState& session, Stream& stream, PendingLaunch& launch) {
  launch.owner = &session.launches;
  launch.stream = &stream;
  launch.is_captured = stream.context->IsCapturing(stream);
  launch.turnaround = session.turnaround();
  launch.here = nullptr;
  // As a rule there is neither, and looking is less than doing it.
  if (launch.segments != nullptr) launch.segments.reset();
  if (launch.on_turnaround) launch.on_turnaround = nullptr;
  if (!launch.is_captured) session.NoteWork(stream, /*is_launch=*/!launch.is_transfer());
}

CUresult PutLaunch(SessionState& session, Stream& stream, PendingLaunch& launch) {
  MakeReady(session, stream, launch);
  return IssueLaunch(launch);
}

}  // namespace tally::server
