// The hand-written operations, by number, with what their records and replies are made of: "-> X" is the reply's
// payload. The structs: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

enum class Op : uint16_t {
  kPadding = 0,
  // Session and contexts.
  kDescribeDevices = 1,     // {} -> uint32 count, uint32 driver_version, DeviceDescription[count]
  kOpenContext = 2,         // OpenContext -> {}
  kCloseContext = 3,        // CloseContext -> {}   destroys what was made in it
  kSynchronizeContext = 4,  // {} (header's context) -> {}   may wait
  kFetchOutput = 5,         // {} -> bytes of device printf output, empty when there is no more
  kNoteRefusal = 6,         // NoteRefusal (no reply): the client refused a call by itself; only counted
  // Images and kernels.
  kWriteImage = 10,      // WriteImage + bytes (no reply)
  kLoadModule = 11,      // LoadImage + JitOption[] -> LoadedImage + info log + error log (each LoadedImage's sizes)
  kLoadLibrary = 12,     // the same; the handle is of kind kLibrary
  kGetFunction = 13,     // GetByName + name -> KernelDescription (+ ParameterLayout[]); owner is a module
  kGetKernel = 14,       // GetByName + name -> KernelDescription; owner is a library
  kKernelFunction = 15,  // GetByName with owner = kernel, no name -> KernelDescription of its function in the context
  kGetGlobal = 16,       // GetByName + name -> GlobalDescription; owner is a module or library
  kLibraryModule = 17,   // GetByName with owner = library -> uint64 module handle
  kListKernels = 18,     // GetByName with owner = module or library -> uint32 count, uint32 0, then per kernel: uint64
                         // handle, (function or kernel), uint32 name bytes, uint32 0, name padded to 8
  kUnloadModule = 19,    // uint64 handle (no reply)
  kUnloadLibrary = 20,
  kLinkCreate = 21,  // LoadImage (image 0) + JitOption[] -> uint64 handle
  kLinkAdd = 22,     // LinkAdd + JitOption[] + name -> LoadedImage (handle 0) + logs
  kLinkComplete =
      23,             // uint64 handle -> LoadedImage (handle = bytes of the result; it is read with kReadLinked) + logs
  kReadLinked = 24,   // ReadLinked -> bytes
  kLinkDestroy = 25,  // uint64 handle (no reply)
  // Launches.
  kLaunch = 30,              // Launch + attributes (72 bytes each) + parameters (no reply)
  kLaunchHostFunction = 31,  // LaunchHostFunction (no reply)
  kAwaitCallback = 32,       // AwaitCallback -> uint64 token, uint32 CUresult of the stream, uint32 0   may wait
  kMaxActiveClusters = 33,   // ClusterQuery + attributes -> int32 result, int32 0
  // Memory.
  kAllocate = 40,       // Allocate -> uint64 address, uint64 pitch bytes (0 unless pitched)
  kFree = 41,           // uint64 address -> {}   may wait (native cuMemFree does)
  kAllocateAsync = 42,  // AllocateAsync -> uint64 address
  kFreeAsync = 43,      // FreeAsync (no reply)
  kFreeHost = 44,       // uint64 address -> {}   may wait
  kMemoryAmount = 45,   // {} -> uint64 free bytes, uint64 total bytes
  kCopy = 46,           // Copy (+ inline bytes) (reply if wanted: after the copy is complete; may wait)
  kCopyBox = 47,        // CopyBox (+ inline bytes)
  kFill = 48,           // Fill
  kAwaitArena = 49,     // uint32 chunk index, uint32 0 -> {}   until the last copy that uses the chunk is complete
  // Streams and events that need more than the generated form.
  kCreateStream = 60,       // CreateStream -> uint64 handle
  kDestroyStream = 61,      // uint64 handle (no reply)
  kSynchronizeStream = 62,  // uint64 stream -> {}   may wait
  kCreateEvent = 63,        // CreateEvent (no reply): named by the client
  kSynchronizeEvent = 64,   // uint64 event -> {}   may wait
  // Capture and graphs.
  kBeginCapture = 70,   // BeginCapture + uint64 node[num_dependencies] -> {}
  kEndCapture = 71,     // uint64 stream -> uint64 graph (0 if invalidated)
  kCaptureState = 72,   // uint64 stream -> CaptureState + uint64 node[num_dependencies] + edge data (8 bytes each)
  kUpdateCapture = 73,  // BeginCapture (graph and mode unused, flags used) + nodes
  kAddKernelNode = 74,  // GraphNodeTarget + uint64 dependency[] + Launch + attributes + parameters -> uint64 node
  kSetKernelNode = 75,  // GraphNodeTarget (exec 0: the node itself) + Launch + attributes + parameters -> {}
  kGetKernelNode = 76,  // uint64 node -> Launch + parameters (packed as the kernel's layout)
  kAddCopyNode = 77,    // GraphNodeTarget + uint64 dependency[] + CopyBox -> uint64 node
  kSetCopyNode = 78,    // GraphNodeTarget + CopyBox -> {}
  kAddFillNode = 79,    // GraphNodeTarget + uint64 dependency[] + Fill -> uint64 node
  kSetFillNode = 80,    // GraphNodeTarget + Fill -> {}
  kAddHostNode = 81,    // GraphNodeTarget + uint64 dependency[] + LaunchHostFunction -> uint64 node
  kSetHostNode = 82,    // GraphNodeTarget + LaunchHostFunction -> {}
  kUpdateExec = 83,  // uint64 exec, uint64 graph -> uint32 CUgraphExecUpdateResult, uint32 0, uint64 error node, uint64
                     // error from node
  // Virtual memory management.
  kReserveAddresses = 100,  // ReserveAddresses -> uint64 address
  kFreeAddresses = 101,     // AddressSpan -> {}
  kCreatePhysical = 102,    // CreatePhysical -> uint64 handle
  kReleasePhysical = 103,   // uint64 handle -> {}
  kMapPhysical = 104,       // MapPhysical -> uint32 device, uint32 requested handle types
  kUnmapPhysical = 105,     // AddressSpan -> {}   may wait
  kSetAccess = 106,         // AddressSpan + AccessGrant[] -> {}
  kGetAccess = 107,         // GetAccess -> uint64 CUmemAccess_flags
  kGranularity = 108,       // PhysicalProperties + uint64 CUmemAllocationGranularity_flags -> uint64 bytes
  kDescribePhysical = 109,  // uint64 handle -> PhysicalProperties
  kRetainPhysical = 110,    // uint64 address -> uint64 handle
  // Sharing between programs, and between devices.
  kOffer = 111,        // Offer -> SharedName
  kOpenShared = 112,   // OpenShared -> OpenedShared
  kCloseShared = 113,  // uint64 address -> uint64 how often it is still open   may wait
  kEnablePeer = 114,   // EnablePeer -> {}
  kFence = 115,        // {} -> {}: everything that this program asked for before has been carried out
  // Graphs, continued.
  kInstantiate = 130,              // Instantiate -> Instantiated (after a failure too)
  kGetCopyNode = 131,              // uint64 node -> CUDA_MEMCPY3D, arrays as handles
  kGetHostNode = 132,              // uint64 node -> uint64 token
  kMemoryOperations = 133,         // MemoryOperations + CUstreamBatchMemOpParams[] (no reply)
  kAddMemoryOperationsNode = 134,  // GraphNodeTarget + uint64 dependency[] + MemoryOperations + [] -> uint64 node
  kSetMemoryOperationsNode = 135,  // GraphNodeTarget + MemoryOperations + [] -> {}
  kGetMemoryOperationsNode = 136,  // uint64 node -> MemoryOperations + []
  kAddAllocationNode = 137,   // GraphNodeTarget + uint64 dependency[] + AllocationNode -> uint64 node, uint64 address
  kGetAllocationNode = 138,   // uint64 node -> AllocationNode + uint64 address
  kCreateConditional = 139,   // CreateConditional -> uint64 the driver's own number, which kernels take
  kAddConditionalNode = 140,  // GraphNodeTarget + uint64 dependency[] + ConditionalNode -> uint64 node, uint64 graph[]
  kCreateUserObject = 141,    // CreateUserObject -> uint64 handle; its destructor comes by kAwaitCallback
  kCountUserObject = 142,     // CountUserObject -> {}
  kGraphText = 143,           // GraphText -> uint64 total bytes + a piece, as long as there is
  kRecordContextEvent = 144,  // uint64 event (header's context): after all work of the context so far (no reply)
  kWaitContextEvent = 145,    // uint64 event (header's context): before all work of the context from now on (no reply)
  kAddMovedGraphNode = 146,   // GraphNodeTarget + uint64 dependency[] + MovedGraphNode + edge data -> uint64 node
  kBeginTask = 147,           // BeginTask + DeclaredBox[] -> {}: what is captured from here on is one task
  kEndTask = 148,             // uint64 stream -> {}
};
inline constexpr uint16_t kFirstWireOp = 256;

}  // namespace tally::shm
