#include "server/executor/session/operations.h"

#include <array>

#include "proto/driver/generated/wire_ops.h"
#include "proto/shm/operations_abi.h"

namespace tally::server {
namespace {

constexpr size_t kNumOps = shm::kFirstWireOp;

constexpr std::array<Operation, kNumOps> kOperations = [] {
  std::array<Operation, kNumOps> table{};
  const auto set = [&](shm::Op op, Operation operation) { table[static_cast<size_t>(op)] = operation; };
  set(shm::Op::kDescribeDevices, &ServeDescribeDevices);
  set(shm::Op::kOpenContext, &ServeOpenContext);
  set(shm::Op::kCloseContext, &ServeCloseContext);
  set(shm::Op::kSynchronizeContext, &ServeSynchronizeContext);
  set(shm::Op::kFetchOutput, &ServeFetchOutput);
  set(shm::Op::kNoteRefusal, &ServeNoteRefusal);
  set(shm::Op::kWriteImage, &ServeWriteImage);
  set(shm::Op::kLoadModule, &ServeLoadModule);
  set(shm::Op::kLoadLibrary, &ServeLoadLibrary);
  set(shm::Op::kGetFunction, &ServeGetFunction);
  set(shm::Op::kGetKernel, &ServeGetKernel);
  set(shm::Op::kKernelFunction, &ServeKernelFunction);
  set(shm::Op::kGetGlobal, &ServeGetGlobal);
  set(shm::Op::kLibraryModule, &ServeLibraryModule);
  set(shm::Op::kListKernels, &ServeListKernels);
  set(shm::Op::kUnloadModule, &ServeUnloadModule);
  set(shm::Op::kUnloadLibrary, &ServeUnloadLibrary);
  set(shm::Op::kLinkCreate, &ServeLinkCreate);
  set(shm::Op::kLinkAdd, &ServeLinkAdd);
  set(shm::Op::kLinkComplete, &ServeLinkComplete);
  set(shm::Op::kReadLinked, &ServeReadLinked);
  set(shm::Op::kLinkDestroy, &ServeLinkDestroy);
  set(shm::Op::kLaunch, &ServeLaunch);
  set(shm::Op::kLaunchHostFunction, &ServeLaunchHostFunction);
  set(shm::Op::kMaxActiveClusters, &ServeMaxActiveClusters);
  set(shm::Op::kAllocate, &ServeAllocate);
  set(shm::Op::kFree, &ServeFree);
  set(shm::Op::kAllocateAsync, &ServeAllocateAsync);
  set(shm::Op::kFreeAsync, &ServeFreeAsync);
  set(shm::Op::kFreeHost, &ServeFreeHost);
  set(shm::Op::kMemoryAmount, &ServeMemoryAmount);
  set(shm::Op::kCopy, &ServeCopy);
  set(shm::Op::kCopyBox, &ServeCopyBox);
  set(shm::Op::kFill, &ServeFill);
  set(shm::Op::kAwaitArena, &ServeAwaitArena);
  set(shm::Op::kCreateStream, &ServeCreateStream);
  set(shm::Op::kDestroyStream, &ServeDestroyStream);
  set(shm::Op::kSynchronizeStream, &ServeSynchronizeStream);
  set(shm::Op::kCreateEvent, &ServeCreateEvent);
  set(shm::Op::kSynchronizeEvent, &ServeSynchronizeEvent);
  set(shm::Op::kBeginCapture, &ServeBeginCapture);
  set(shm::Op::kEndCapture, &ServeEndCapture);
  set(shm::Op::kCaptureState, &ServeCaptureState);
  set(shm::Op::kUpdateCapture, &ServeUpdateCapture);
  set(shm::Op::kAddKernelNode, &ServeAddKernelNode);
  set(shm::Op::kSetKernelNode, &ServeSetKernelNode);
  set(shm::Op::kGetKernelNode, &ServeGetKernelNode);
  set(shm::Op::kAddCopyNode, &ServeAddCopyNode);
  set(shm::Op::kSetCopyNode, &ServeSetCopyNode);
  set(shm::Op::kAddFillNode, &ServeAddFillNode);
  set(shm::Op::kSetFillNode, &ServeSetFillNode);
  set(shm::Op::kAddHostNode, &ServeAddHostNode);
  set(shm::Op::kSetHostNode, &ServeSetHostNode);
  set(shm::Op::kUpdateExec, &ServeUpdateExec);
  set(shm::Op::kInstantiate, &ServeInstantiate);
  set(shm::Op::kGetCopyNode, &ServeGetCopyNode);
  set(shm::Op::kGetHostNode, &ServeGetHostNode);
  set(shm::Op::kMemoryOperations, &ServeMemoryOperations);
  set(shm::Op::kAddMemoryOperationsNode, &ServeAddMemoryOperationsNode);
  set(shm::Op::kSetMemoryOperationsNode, &ServeSetMemoryOperationsNode);
  set(shm::Op::kGetMemoryOperationsNode, &ServeGetMemoryOperationsNode);
  set(shm::Op::kAddAllocationNode, &ServeAddAllocationNode);
  set(shm::Op::kGetAllocationNode, &ServeGetAllocationNode);
  set(shm::Op::kAddMovedGraphNode, &ServeAddMovedGraphNode);
  set(shm::Op::kCreateConditional, &ServeCreateConditional);
  set(shm::Op::kAddConditionalNode, &ServeAddConditionalNode);
  set(shm::Op::kCreateUserObject, &ServeCreateUserObject);
  set(shm::Op::kCountUserObject, &ServeCountUserObject);
  set(shm::Op::kGraphText, &ServeGraphText);
  set(shm::Op::kRecordContextEvent, &ServeRecordContextEvent);
  set(shm::Op::kWaitContextEvent, &ServeWaitContextEvent);
  set(shm::Op::kReserveAddresses, &ServeReserveAddresses);
  set(shm::Op::kFreeAddresses, &ServeFreeAddresses);
  set(shm::Op::kCreatePhysical, &ServeCreatePhysical);
  set(shm::Op::kReleasePhysical, &ServeReleasePhysical);
  set(shm::Op::kMapPhysical, &ServeMapPhysical);
  set(shm::Op::kUnmapPhysical, &ServeUnmapPhysical);
  set(shm::Op::kSetAccess, &ServeSetAccess);
  set(shm::Op::kGetAccess, &ServeGetAccess);
  set(shm::Op::kGranularity, &ServeGranularity);
  set(shm::Op::kDescribePhysical, &ServeDescribePhysical);
  set(shm::Op::kRetainPhysical, &ServeRetainPhysical);
  set(shm::Op::kOffer, &ServeOffer);
  set(shm::Op::kOpenShared, &ServeOpenShared);
  set(shm::Op::kCloseShared, &ServeCloseShared);
  set(shm::Op::kEnablePeer, &ServeEnablePeer);
  set(shm::Op::kFence, &ServeFence);
  return table;
}();

}  // namespace

Operation FindOperation(uint16_t op) { return op < kNumOps ? kOperations[op] : nullptr; }

bool MayWaitForContext(uint16_t op) {
  switch (op) {
    case static_cast<uint16_t>(shm::Op::kLaunch):
    case static_cast<uint16_t>(shm::Op::kLaunchHostFunction):
    case static_cast<uint16_t>(shm::Op::kCopy):
    case static_cast<uint16_t>(shm::Op::kCopyBox):
    case static_cast<uint16_t>(shm::Op::kFill):
    case static_cast<uint16_t>(shm::Op::kAwaitArena):
    case static_cast<uint16_t>(shm::Op::kSynchronizeStream):
    case static_cast<uint16_t>(shm::Op::kSynchronizeEvent):
    case static_cast<uint16_t>(shm::Op::kSynchronizeContext):
    case static_cast<uint16_t>(shm::Op::kRecordContextEvent):
    case static_cast<uint16_t>(shm::Op::kWaitContextEvent):
    case static_cast<uint16_t>(shm::Op::kCreateEvent):
    case static_cast<uint16_t>(shm::Op::kFetchOutput):
    case static_cast<uint16_t>(shm::Op::kWriteImage):
    case static_cast<uint16_t>(shm::Op::kMemoryOperations):
    case static_cast<uint16_t>(shm::Op::kNoteRefusal):
    case kOp_cuGraphLaunch:
    case kOp_cuEventRecord:
    case kOp_cuEventRecordWithFlags:
    case kOp_cuEventQuery:
    case kOp_cuEventElapsedTime_v2:
    case kOp_cuStreamWaitEvent:
    case kOp_cuStreamWaitValue32_v2:
    case kOp_cuStreamWaitValue64_v2:
    case kOp_cuStreamWriteValue32_v2:
    case kOp_cuStreamWriteValue64_v2:
    case kOp_cuStreamQuery:
      return false;
    default:
      return true;
  }
}

}  // namespace tally::server
