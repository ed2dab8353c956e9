#include "server/executor/session/operations.h"

#include <array>
#include <type_traits>

#include "proto/driver/generated/wire_ops.h"
#include "proto/shm/operations_abi.h"
#include "server/executor/session/served_channel.h"

namespace tally::server {
namespace {

constexpr size_t kNumOps = shm::kFirstWireOp;

template <typename Part>
Part& PartOf(ServedChannel& channel, WireReader& in, WireWriter& out) {
  if constexpr (std::is_same_v<Part, ServedRequest>) return channel.request;
  if constexpr (std::is_same_v<Part, ClientNames>) return channel.names;
  if constexpr (std::is_same_v<Part, StreamWaits>) return channel.waits;
  if constexpr (std::is_same_v<Part, ArenaChunks>) return channel.chunks;
  if constexpr (std::is_same_v<Part, WireReader>) return in;
  if constexpr (std::is_same_v<Part, WireWriter>) return out;
}

// As the table has it: gives an operation what its signature names.
template <auto serve>
struct Taking;
template <typename... Parts, CUresult (*serve)(Parts&...)>
struct Taking<serve> {
  static CUresult Serve(ServedChannel& channel, WireReader& in, WireWriter& out) {
    return serve(PartOf<Parts>(channel, in, out)...);
  }
};

constexpr std::array<Operation, kNumOps> kOperations = [] {
  std::array<Operation, kNumOps> table{};
  const auto set = [&](shm::Op op, Operation operation) { table[static_cast<size_t>(op)] = operation; };
  set(shm::Op::kDescribeDevices, &Taking<&ServeDescribeDevices>::Serve);
  set(shm::Op::kOpenContext, &Taking<&ServeOpenContext>::Serve);
  set(shm::Op::kCloseContext, &Taking<&ServeCloseContext>::Serve);
  set(shm::Op::kSynchronizeContext, &Taking<&ServeSynchronizeContext>::Serve);
  set(shm::Op::kFetchOutput, &Taking<&ServeFetchOutput>::Serve);
  set(shm::Op::kNoteRefusal, &Taking<&ServeNoteRefusal>::Serve);
  set(shm::Op::kWriteImage, &Taking<&ServeWriteImage>::Serve);
  set(shm::Op::kLoadModule, &Taking<&ServeLoadModule>::Serve);
  set(shm::Op::kLoadLibrary, &Taking<&ServeLoadLibrary>::Serve);
  set(shm::Op::kGetFunction, &Taking<&ServeGetFunction>::Serve);
  set(shm::Op::kGetKernel, &Taking<&ServeGetKernel>::Serve);
  set(shm::Op::kKernelFunction, &Taking<&ServeKernelFunction>::Serve);
  set(shm::Op::kGetGlobal, &Taking<&ServeGetGlobal>::Serve);
  set(shm::Op::kLibraryModule, &Taking<&ServeLibraryModule>::Serve);
  set(shm::Op::kListKernels, &Taking<&ServeListKernels>::Serve);
  set(shm::Op::kUnloadModule, &Taking<&ServeUnloadModule>::Serve);
  set(shm::Op::kUnloadLibrary, &Taking<&ServeUnloadLibrary>::Serve);
  set(shm::Op::kLinkCreate, &Taking<&ServeLinkCreate>::Serve);
  set(shm::Op::kLinkAdd, &Taking<&ServeLinkAdd>::Serve);
  set(shm::Op::kLinkComplete, &Taking<&ServeLinkComplete>::Serve);
  set(shm::Op::kReadLinked, &Taking<&ServeReadLinked>::Serve);
  set(shm::Op::kLinkDestroy, &Taking<&ServeLinkDestroy>::Serve);
  set(shm::Op::kBeginTask, &Taking<&ServeBeginTask>::Serve);
  set(shm::Op::kEndTask, &Taking<&ServeEndTask>::Serve);
  set(shm::Op::kLaunch, &Taking<&ServeLaunch>::Serve);
  set(shm::Op::kLaunchHostFunction, &Taking<&ServeLaunchHostFunction>::Serve);
  set(shm::Op::kMaxActiveClusters, &Taking<&ServeMaxActiveClusters>::Serve);
  set(shm::Op::kAllocate, &Taking<&ServeAllocate>::Serve);
  set(shm::Op::kFree, &Taking<&ServeFree>::Serve);
  set(shm::Op::kAllocateAsync, &Taking<&ServeAllocateAsync>::Serve);
  set(shm::Op::kFreeAsync, &Taking<&ServeFreeAsync>::Serve);
  set(shm::Op::kFreeHost, &Taking<&ServeFreeHost>::Serve);
  set(shm::Op::kMemoryAmount, &Taking<&ServeMemoryAmount>::Serve);
  set(shm::Op::kCopy, &Taking<&ServeCopy>::Serve);
  set(shm::Op::kCopyBox, &Taking<&ServeCopyBox>::Serve);
  set(shm::Op::kFill, &Taking<&ServeFill>::Serve);
  set(shm::Op::kAwaitArena, &Taking<&ServeAwaitArena>::Serve);
  set(shm::Op::kCreateStream, &Taking<&ServeCreateStream>::Serve);
  set(shm::Op::kDestroyStream, &Taking<&ServeDestroyStream>::Serve);
  set(shm::Op::kSynchronizeStream, &Taking<&ServeSynchronizeStream>::Serve);
  set(shm::Op::kCreateEvent, &Taking<&ServeCreateEvent>::Serve);
  set(shm::Op::kSynchronizeEvent, &Taking<&ServeSynchronizeEvent>::Serve);
  set(shm::Op::kBeginCapture, &Taking<&ServeBeginCapture>::Serve);
  set(shm::Op::kEndCapture, &Taking<&ServeEndCapture>::Serve);
  set(shm::Op::kCaptureState, &Taking<&ServeCaptureState>::Serve);
  set(shm::Op::kUpdateCapture, &Taking<&ServeUpdateCapture>::Serve);
  set(shm::Op::kAddKernelNode, &Taking<&ServeAddKernelNode>::Serve);
  set(shm::Op::kSetKernelNode, &Taking<&ServeSetKernelNode>::Serve);
  set(shm::Op::kGetKernelNode, &Taking<&ServeGetKernelNode>::Serve);
  set(shm::Op::kAddCopyNode, &Taking<&ServeAddCopyNode>::Serve);
  set(shm::Op::kSetCopyNode, &Taking<&ServeSetCopyNode>::Serve);
  set(shm::Op::kAddFillNode, &Taking<&ServeAddFillNode>::Serve);
  set(shm::Op::kSetFillNode, &Taking<&ServeSetFillNode>::Serve);
  set(shm::Op::kAddHostNode, &Taking<&ServeAddHostNode>::Serve);
  set(shm::Op::kSetHostNode, &Taking<&ServeSetHostNode>::Serve);
  set(shm::Op::kUpdateExec, &Taking<&ServeUpdateExec>::Serve);
  set(shm::Op::kInstantiate, &Taking<&ServeInstantiate>::Serve);
  set(shm::Op::kGetCopyNode, &Taking<&ServeGetCopyNode>::Serve);
  set(shm::Op::kGetHostNode, &Taking<&ServeGetHostNode>::Serve);
  set(shm::Op::kMemoryOperations, &Taking<&ServeMemoryOperations>::Serve);
  set(shm::Op::kAddMemoryOperationsNode, &Taking<&ServeAddMemoryOperationsNode>::Serve);
  set(shm::Op::kSetMemoryOperationsNode, &Taking<&ServeSetMemoryOperationsNode>::Serve);
  set(shm::Op::kGetMemoryOperationsNode, &Taking<&ServeGetMemoryOperationsNode>::Serve);
  set(shm::Op::kAddAllocationNode, &Taking<&ServeAddAllocationNode>::Serve);
  set(shm::Op::kGetAllocationNode, &Taking<&ServeGetAllocationNode>::Serve);
  set(shm::Op::kAddMovedGraphNode, &Taking<&ServeAddMovedGraphNode>::Serve);
  set(shm::Op::kCreateConditional, &Taking<&ServeCreateConditional>::Serve);
  set(shm::Op::kAddConditionalNode, &Taking<&ServeAddConditionalNode>::Serve);
  set(shm::Op::kCreateUserObject, &Taking<&ServeCreateUserObject>::Serve);
  set(shm::Op::kCountUserObject, &Taking<&ServeCountUserObject>::Serve);
  set(shm::Op::kGraphText, &Taking<&ServeGraphText>::Serve);
  set(shm::Op::kRecordContextEvent, &Taking<&ServeRecordContextEvent>::Serve);
  set(shm::Op::kWaitContextEvent, &Taking<&ServeWaitContextEvent>::Serve);
  set(shm::Op::kReserveAddresses, &Taking<&ServeReserveAddresses>::Serve);
  set(shm::Op::kFreeAddresses, &Taking<&ServeFreeAddresses>::Serve);
  set(shm::Op::kCreatePhysical, &Taking<&ServeCreatePhysical>::Serve);
  set(shm::Op::kReleasePhysical, &Taking<&ServeReleasePhysical>::Serve);
  set(shm::Op::kMapPhysical, &Taking<&ServeMapPhysical>::Serve);
  set(shm::Op::kUnmapPhysical, &Taking<&ServeUnmapPhysical>::Serve);
  set(shm::Op::kSetAccess, &Taking<&ServeSetAccess>::Serve);
  set(shm::Op::kGetAccess, &Taking<&ServeGetAccess>::Serve);
  set(shm::Op::kGranularity, &Taking<&ServeGranularity>::Serve);
  set(shm::Op::kDescribePhysical, &Taking<&ServeDescribePhysical>::Serve);
  set(shm::Op::kRetainPhysical, &Taking<&ServeRetainPhysical>::Serve);
  set(shm::Op::kOffer, &Taking<&ServeOffer>::Serve);
  set(shm::Op::kOpenShared, &Taking<&ServeOpenShared>::Serve);
  set(shm::Op::kCloseShared, &Taking<&ServeCloseShared>::Serve);
  set(shm::Op::kEnablePeer, &Taking<&ServeEnablePeer>::Serve);
  set(shm::Op::kFence, &Taking<&ServeFence>::Serve);
  return table;
}();

}  // namespace

Operation FindOperation(uint16_t op) { return op < kNumOps ? kOperations[op] : nullptr; }

bool IssuesWhatIsHeld(uint16_t op) {
  switch (op) {
    case static_cast<uint16_t>(shm::Op::kLaunch):
    case static_cast<uint16_t>(shm::Op::kCopy):
    case static_cast<uint16_t>(shm::Op::kCopyBox):
    case static_cast<uint16_t>(shm::Op::kFill):
      return true;
    default:
      return false;
  }
}

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
