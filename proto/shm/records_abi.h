// What the records of a lane mean: one struct per hand-written operation. Operations that merely carry scalars, handles
// and plain structs are generated from proto/driver/driver_api.tsv and numbered from kFirstWireOp (wire_format.md).
//
// Conventions, for every struct below: fixed-width fields, no pointer is ever followed by the server, sizes in bytes,
// variable parts follow the struct in the order stated, each starting at a multiple of 8. A field that is not used is
// 0.
// "-> X" is the reply's payload. The server validates a private copy; a record that does not make sense ends the
// session (the shim never writes one), a call that is wrong as the native driver would find it gets the native error.
//
// HANDLES. What the program holds as CUstream, CUevent, ... is a 64-bit id of this session, never a server pointer:
//     bits 47-40 HandleKind | 39-32 generation | bit 31: 1 = named by the server, 0 = by the client | 30-4 index | 3-0
//     zero
// Streams also have CUDA's reserved values 0 and 1 (legacy) and 2 (per-thread: of this lane).
//
// CONTEXTS are small integers chosen by the client: 0..63 is the primary context of device n, 64.. are created ones.
// All contexts of one device share the executor's one real context; each has a legacy stream of its own.
//
// ADDRESSES of device memory and of shared pinned memory are the real ones, equal in client and executor. The server
// checks that they belong to the session.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::shm {

enum class HandleKind : uint8_t {
  kNone = 0,
  kStream = 1,
  kEvent = 2,
  kModule = 3,
  kLibrary = 4,
  kFunction = 5,  // CUfunction, and CUkernel where the two are interchangeable for the caller
  kKernel = 6,    // CUkernel
  kGraph = 7,
  kGraphNode = 8,
  kGraphExec = 9,
  kMemPool = 10,
  kArray = 11,
  kMipmappedArray = 12,
  kLinkState = 13,
  kContext = 14,  // client-side only: the value of a CUcontext is Handle(kContext, index)
  kUserObject = 18,
  kPhysicalMemory = 15,  // CUmemGenericAllocationHandle
};
inline constexpr size_t kNumHandleKinds = 19;

inline constexpr uint64_t kServerNamedBit = uint64_t{1} << 31;
inline constexpr uint64_t kMaxHandleIndex = (uint64_t{1} << 27) - 1;
constexpr uint64_t MakeHandle(HandleKind kind, uint8_t generation, bool server_named, uint64_t index) {
  return static_cast<uint64_t>(kind) << 40 | static_cast<uint64_t>(generation) << 32 |
         (server_named ? kServerNamedBit : 0) | index << 4;
}
constexpr HandleKind HandleKindOf(uint64_t handle) { return static_cast<HandleKind>(handle >> 40 & 0xff); }
constexpr uint64_t HandleIndexOf(uint64_t handle) { return (handle & 0x7fffffff) >> 4; }
constexpr bool IsServerNamed(uint64_t handle) { return (handle & kServerNamedBit) != 0; }

inline constexpr uint64_t kLegacyStream = 1;  // 0 means the same
inline constexpr uint64_t kPerThreadStream = 2;

inline constexpr uint32_t kNoContext = 0xffffffff;
inline constexpr uint32_t kMaxDevices = 64;
inline constexpr uint32_t kMaxContexts = 1024;

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
};
inline constexpr uint16_t kFirstWireOp = 256;

// Device as the client sees it. Attributes the shim cannot honour are already answered "no" by the executor.
inline constexpr uint32_t kNumDeviceAttributes =
    160;  // indexed by CUdevice_attribute; unknown ones are attribute_valid 0
struct DeviceDescription {
  char name[256];
  uint8_t uuid[16];
  uint64_t total_memory_bytes;
  uint32_t pci_domain, pci_bus, pci_device, reserved;
  int32_t attribute[kNumDeviceAttributes];
  uint8_t attribute_valid[kNumDeviceAttributes];
  int32_t lowest_stream_priority;   // cuCtxGetStreamPriorityRange: numerically greatest
  int32_t highest_stream_priority;  // numerically least
  uint64_t can_access_peer;         // bit n: device n
};
static_assert(sizeof(DeviceDescription) == 1112);

struct OpenContext {
  uint32_t context;  // index chosen by the client
  uint32_t device;   // ordinal as in kDescribeDevices
  uint32_t flags;    // CUctx_flags
  uint32_t reserved;
};
static_assert(sizeof(OpenContext) == 16);

struct CloseContext {
  uint32_t context;
  uint32_t is_reset;  // 1: cuDevicePrimaryCtxReset
};
static_assert(sizeof(CloseContext) == 8);

struct NoteRefusal {
  uint32_t symbol_index;  // row of driver_api.tsv
  uint32_t reserved;
};
static_assert(sizeof(NoteRefusal) == 8);

// Piece of an image. Pieces of one image come in order and without gaps; the first has offset 0.
struct WriteImage {
  uint32_t image;  // chosen by the client, unique among images not yet loaded; never 0
  uint32_t size_bytes;
  uint64_t total_bytes;
  uint64_t offset_bytes;
};
static_assert(sizeof(WriteImage) == 24);
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

enum class ImageFormat : uint32_t {
  kPtx = 1,        // NUL-terminated text
  kElf = 2,        // a cubin
  kContainer = 3,  // a bare fat-binary container
  kWrapper =
      4,  // a wrapper: the image is its containers one after another; wrapper_version and num_prelinked say which
};

struct JitOption {
  uint32_t option;  // CUjit_option; those that take buffers are not sent (see LoadImage's log sizes)
  uint32_t reserved;
  uint64_t value;
};
static_assert(sizeof(JitOption) == 16);

struct LoadImage {
  uint32_t image;
  uint32_t format;           // ImageFormat
  uint32_t wrapper_version;  // 1 or 2 when format is kWrapper
  uint32_t num_prelinked;    // version 2: containers after the first, padded to 8 bytes each as the first is
  uint32_t num_options;      // JitOption records that follow
  uint32_t info_log_bytes;   // capacity the caller offered, 0 if none
  uint32_t error_log_bytes;
  uint32_t reserved;
};
static_assert(sizeof(LoadImage) == 32);

struct LoadedImage {
  uint64_t handle;
  uint32_t info_log_bytes;  // text that follows, without NUL, then padding to 8
  uint32_t error_log_bytes;
};
static_assert(sizeof(LoadedImage) == 16);

struct GetByName {
  uint64_t owner;
  uint32_t name_bytes;  // without NUL
  uint32_t detail;      // kGetGlobal: kOnlyManaged or 0; kListKernels: the first one wanted
};
static_assert(sizeof(GetByName) == 16);
inline constexpr uint32_t kOnlyManaged = 1;  // cuLibraryGetManaged: other variables are not found

struct ParameterLayout {
  uint32_t offset_bytes;
  uint32_t size_bytes;
};
static_assert(sizeof(ParameterLayout) == 8);

inline constexpr uint32_t kNumKernelAttributes = 16;  // CUfunction_attribute 0..15
struct KernelDescription {
  uint64_t handle;
  uint32_t num_parameters;   // ParameterLayout records that follow
  uint32_t parameter_bytes;  // end of the last parameter
  int32_t attribute[kNumKernelAttributes];
  uint32_t attribute_valid;  // bit n: attribute n
  uint32_t device;           // of which the attributes are: the executor's ordinal
};
static_assert(sizeof(KernelDescription) == 88);
inline constexpr uint32_t kMaxParameterBytes = 32764;

struct GlobalDescription {
  uint64_t address;
  uint64_t size_bytes;
  uint32_t is_managed;
  uint32_t reserved;
};
static_assert(sizeof(GlobalDescription) == 24);

struct LinkAdd {
  uint64_t handle;
  uint32_t image;
  uint32_t input_type;  // CUjitInputType
  uint32_t num_options;
  uint32_t name_bytes;  // after the options, without NUL
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
};
static_assert(sizeof(LinkAdd) == 32);

struct ReadLinked {
  uint64_t handle;
  uint64_t offset_bytes;
  uint64_t size_bytes;  // at most kMaxReplyBytes / 2
};
static_assert(sizeof(ReadLinked) == 24);

enum LaunchFlags : uint16_t {
  kLaunchCooperative = 1,  // cuLaunchCooperativeKernel
  kLaunchEx = 2,           // cuLaunchKernelEx: attributes follow, possibly none
  kLaunchExtra = 4,        // the parameters are the caller's `extra` buffer, verbatim
};
inline constexpr uint32_t kLaunchAttributeBytes =
    72;  // a CUlaunchAttribute, verbatim; events in it are session handles
inline constexpr uint32_t kMaxLaunchAttributes = 32;

struct Launch {
  uint64_t function;  // kFunction or kKernel
  uint64_t stream;
  uint32_t grid[3];   // blocks
  uint32_t block[3];  // threads
  uint32_t shared_bytes;
  uint32_t parameter_bytes;  // packed at the kernel's layout offsets
  uint16_t num_attributes;
  uint16_t flags;  // LaunchFlags
  uint32_t reserved;
};
static_assert(sizeof(Launch) == 56);

struct LaunchHostFunction {
  uint64_t stream;
  uint64_t token;        // the client's name for {function, argument}; comes back in kAwaitCallback
  uint32_t is_callback;  // 1: cuStreamAddCallback (runs also after an error, gets a CUresult)
  uint32_t reserved;
};
static_assert(sizeof(LaunchHostFunction) == 24);

// Sent by the client's callback thread only, on a lane of its own.
struct AwaitCallback {
  uint64_t finished_token;  // the one just run, 0 the first time: its stream may go on
};
static_assert(sizeof(AwaitCallback) == 8);

struct ClusterQuery {
  Launch config;          // stream and parameters unused
  uint32_t want_maximum;  // 0: cuOccupancyMaxActiveClusters, 1: cuOccupancyMaxPotentialClusterSize
  uint32_t reserved;
};
static_assert(sizeof(ClusterQuery) == 64);

struct Allocate {
  uint64_t size_bytes;  // or width when pitched
  uint64_t height;      // 0: not pitched
  uint32_t element_bytes;
  uint32_t reserved;
};
static_assert(sizeof(Allocate) == 24);

struct AllocateAsync {
  uint64_t size_bytes;
  uint64_t pool;  // 0: the current pool
  uint64_t stream;
};
static_assert(sizeof(AllocateAsync) == 24);

struct FreeAsync {
  uint64_t address;
  uint64_t stream;
};
static_assert(sizeof(FreeAsync) == 16);

// Where one side of a copy is.
enum class Place : uint32_t {
  kAddress = 0,  // device or shared pinned memory of this session
  kArena = 1,    // offset into this lane's arena
  kInline = 2,   // bytes after the struct (source only; at most kMaxInlineBytes)
  kArray = 3,    // a CUarray handle (kCopyBox only)
};
inline constexpr uint32_t kMaxInlineBytes = 64 * 1024;

struct Copy {
  uint64_t destination;  // address or arena offset
  uint64_t source;
  uint64_t size_bytes;
  uint64_t stream;
  uint32_t destination_place;  // Place
  uint32_t source_place;
};
static_assert(sizeof(Copy) == 40);

// One side of a box copy, as CUDA_MEMCPY3D has it.
struct BoxSide {
  uint64_t base;  // address, arena offset or array handle; ignored for kInline
  uint64_t x_bytes, y, z;
  uint64_t pitch_bytes;  // 0: tight
  uint64_t height;       // rows per slice, 0: tight
  uint32_t place;        // Place
  uint32_t lod;
};
static_assert(sizeof(BoxSide) == 56);

struct CopyBox {
  BoxSide destination;
  BoxSide source;
  uint64_t width_bytes, height, depth;
  uint64_t stream;
  uint32_t inline_bytes;  // after the struct when the source is kInline
  uint32_t reserved;
};
static_assert(sizeof(CopyBox) == 152);

struct Fill {
  uint64_t address;
  uint64_t pitch_bytes;  // ignored when height is 1
  uint64_t width;        // elements
  uint64_t height;
  uint64_t stream;
  uint32_t value;
  uint32_t element_bytes;  // 1, 2 or 4
};
static_assert(sizeof(Fill) == 48);

struct CreateStream {
  uint32_t flags;  // CUstream_flags
  int32_t priority;
};
static_assert(sizeof(CreateStream) == 8);

struct CreateEvent {
  uint64_t handle;  // named by the client
  uint32_t flags;   // CUevent_flags
  uint32_t reserved;
};
static_assert(sizeof(CreateEvent) == 16);

struct BeginCapture {
  uint64_t stream;
  uint64_t graph;  // 0: a new one
  uint32_t mode;   // CUstreamCaptureMode, checked by the client; the executor always captures relaxed
  uint32_t flags;  // kUpdateCapture: CUstreamUpdateCaptureDependencies_flags
  uint32_t num_dependencies;
  uint32_t has_edge_data;  // 1: 8 bytes per dependency follow the nodes
};
static_assert(sizeof(BeginCapture) == 32);

struct CaptureState {
  uint32_t status;  // CUstreamCaptureStatus
  uint32_t num_dependencies;
  uint64_t id;
  uint64_t graph;
};
static_assert(sizeof(CaptureState) == 24);

// Which node an add or set concerns.
struct GraphNodeTarget {
  uint64_t graph;  // add: the graph
  uint64_t exec;   // set: the executable graph, 0 for the template node
  uint64_t node;   // set: the node
  uint32_t num_dependencies;
  uint32_t reserved;
};
static_assert(sizeof(GraphNodeTarget) == 32);

struct Instantiate {
  uint64_t graph;
  uint64_t flags;          // CUgraphInstantiate_flags
  uint64_t upload_stream;  // with CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
};
static_assert(sizeof(Instantiate) == 24);

struct Instantiated {
  uint64_t exec;
  uint32_t result;  // CUgraphInstantiateResult
  uint32_t reserved;
  uint64_t error_node;
};
static_assert(sizeof(Instantiated) == 24);

inline constexpr uint32_t kBatchMemoryOpBytes = 48;  // a CUstreamBatchMemOpParams, verbatim
inline constexpr uint32_t kMaxBatchMemoryOps = 256;
struct MemoryOperations {
  uint64_t stream;  // unused in nodes
  uint32_t num_operations;
  uint32_t flags;
};
static_assert(sizeof(MemoryOperations) == 16);

struct AllocationNode {
  uint64_t size_bytes;
  uint64_t readers;  // devices that may read it beside the one it is on: bit n for ordinal n
  uint64_t writers;  // of them, those that may write
  uint32_t device;   // ordinal
  uint32_t reserved;
};
static_assert(sizeof(AllocationNode) == 32);

struct CreateConditional {
  uint64_t graph;
  uint32_t default_value;
  uint32_t flags;  // CU_GRAPH_COND_ASSIGN_DEFAULT
};
static_assert(sizeof(CreateConditional) == 16);

inline constexpr uint32_t kMaxConditionalBodies = 1024;
struct ConditionalNode {
  uint64_t conditional;
  uint32_t type;  // CUgraphConditionalNodeType
  uint32_t num_bodies;
};
static_assert(sizeof(ConditionalNode) == 16);

// A child graph that is not cloned but goes over to its node (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE).
struct MovedGraphNode {
  uint64_t child;
  uint32_t has_edge_data;  // 1: 8 bytes per dependency follow
  uint32_t reserved;
};
static_assert(sizeof(MovedGraphNode) == 16);

// References to one object that the client may have, those of its graphs included: drivers count in 32 bits, also for
// every clone and executable.
inline constexpr uint32_t kMaxUserReferences = 1 << 16;
struct CreateUserObject {
  uint64_t token;  // the client's name for the destructor and its argument
  uint32_t num_references;
  uint32_t flags;  // CUuserObject_flags
};
static_assert(sizeof(CreateUserObject) == 16);

struct CountUserObject {
  uint64_t object;
  uint64_t graph;  // whose references; 0: the program's own
  uint32_t count;
  uint32_t flags;  // CUuserObjectRetain_flags
  uint32_t is_release;
  uint32_t reserved;
};
static_assert(sizeof(CountUserObject) == 32);

struct GraphText {
  uint64_t graph;
  uint64_t offset_bytes;  // 0: draw it; else go on with what was drawn
  uint32_t flags;         // CUgraphDebugDot_flags
  uint32_t reserved;
};
static_assert(sizeof(GraphText) == 24);

// Whole pieces of the address space: what cuMemAddressFree, cuMemUnmap and cuMemSetAccess name.
struct AddressSpan {
  uint64_t address;
  uint64_t size_bytes;
};
static_assert(sizeof(AddressSpan) == 16);

struct ReserveAddresses {
  uint64_t size_bytes;
  uint64_t alignment_bytes;  // 0: the driver's
  uint64_t wish;             // an address the caller would like, 0 if none
  uint64_t flags;
};
static_assert(sizeof(ReserveAddresses) == 32);

// CUmemAllocationProp without pointers.
struct PhysicalProperties {
  uint32_t type;             // CUmemAllocationType
  uint32_t requested_types;  // CUmemAllocationHandleType, or-ed
  uint32_t location_type;    // CUmemLocationType
  uint32_t device;           // ordinal as in kDescribeDevices, where the location is a device
  uint32_t usage;
  uint8_t compression_type;
  uint8_t gpu_direct_rdma;
  uint16_t reserved;
};
static_assert(sizeof(PhysicalProperties) == 24);

struct CreatePhysical {
  PhysicalProperties properties;
  uint64_t size_bytes;
  uint64_t flags;
};
static_assert(sizeof(CreatePhysical) == 40);

struct MapPhysical {
  uint64_t address;
  uint64_t size_bytes;
  uint64_t offset_bytes;
  uint64_t handle;
  uint64_t flags;
};
static_assert(sizeof(MapPhysical) == 40);

struct AccessGrant {
  uint32_t device;  // ordinal
  uint32_t flags;   // CUmemAccess_flags
};
static_assert(sizeof(AccessGrant) == 8);

struct GetAccess {
  uint64_t address;
  uint32_t device;
  uint32_t reserved;
};
static_assert(sizeof(GetAccess) == 16);

// What one program gives to another so that both use the same object: the 64 bytes of a CUipcMemHandle or
// CUipcEventHandle, or the contents of the memfd that stands for an exported handle. Whoever holds the token may open
// it, in the executor that gave it out and nowhere else.
enum class SharedKind : uint32_t {
  kAllocation = 1,  // cuMemAlloc, or from a pool
  kEvent = 2,       // cuEventCreate with CU_EVENT_INTERPROCESS
  kPhysical = 3,    // cuMemCreate
  kPool = 4,        // cuMemPoolCreate with a handle type
};
inline constexpr uint64_t kSharedMagic = 0x63706979'6c6c6174;  // "tallyipc"
struct SharedName {
  uint64_t magic;
  uint64_t executor;  // who can resolve it
  uint64_t token[2];  // cannot be guessed
  uint32_t kind;      // SharedKind
  uint32_t reserved[7];
};
static_assert(sizeof(SharedName) == 64);

struct Offer {
  uint32_t kind;  // SharedKind
  uint32_t reserved;
  uint64_t what;  // base address of an allocation, or a handle
};
static_assert(sizeof(Offer) == 16);

struct OpenShared {
  SharedName name;
  uint64_t handle;         // kEvent: named by the client. kAllocation from a pool: the opened pool. Else 0
  uint32_t enables_peers;  // kAllocation: 1, the current device may need access to the memory's
  uint32_t reserved;
};
static_assert(sizeof(OpenShared) == 80);

struct OpenedShared {
  uint64_t value;       // kAllocation: its address; kPhysical, kPool: a handle
  uint64_t size_bytes;  // kAllocation
  uint32_t device;      // ordinal
  uint32_t num_opens;   // kAllocation: how often this program has it open now
};
static_assert(sizeof(OpenedShared) == 24);

// Kernels on `from` may use memory of `to`.
struct EnablePeer {
  uint32_t from;
  uint32_t to;
};
static_assert(sizeof(EnablePeer) == 8);

}  // namespace tally::shm
