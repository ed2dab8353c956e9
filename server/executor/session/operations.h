// The hand-written operations, one function per Op of proto/shm/operations_abi.h, grouped in files by chapter.
//
// Each takes the parts of its channel that it needs. It is called with the session's sequencer held and the request's
// context current, reads its record from `in`, puts the reply's payload into `out` and returns the call's result. A
// record that makes no sense: served.Malformed(). A function may release the sequencer (served.ReleaseSequencer) once
// it only waits.
#pragma once

#include <cuda.h>

#include "server/executor/session/arena_chunks.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"
#include "server/executor/session/stream_waits.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

struct ServedChannel;  // all parts
using Operation = CUresult (*)(ServedChannel& channel, WireReader& in, WireWriter& out);

// Null: no such hand-written operation.
Operation FindOperation(uint16_t op);

// Whether it may be held, with what is held already or behind that, and sees to it by itself.
bool IssuesWhatIsHeld(uint16_t op);

// Whether the driver may wait for the whole context in it, with its locks held (cudaFree, loading code, making
// streams): all but what is known to put something on a stream, to ask or to wait for that only.
bool MayWaitForContext(uint16_t op);

// What has to happen around some generated calls: bookkeeping of ours, or bytes that must not reach the driver. Returns
// true if *result is the whole answer and the generated function must not run.
bool ServeBeforeWire(ServedRequest& served, ClientNames& names, uint16_t op, WireReader in, WireWriter& out,
                     CUresult* result);

// context_ops.cc
CUresult ServeDescribeDevices(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeOpenContext(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeCloseContext(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeContext(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeFetchOutput(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeRecordContextEvent(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeWaitContextEvent(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeNoteRefusal(ServedRequest& served, WireReader& in, WireWriter& out);
// image_ops.cc
CUresult ServeWriteImage(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeLoadModule(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeLoadLibrary(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeLibraryModule(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeUnloadModule(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeUnloadLibrary(ServedRequest& served, WireReader& in, WireWriter& out);
// kernel_ops.cc
CUresult ServeGetFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetKernel(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeKernelFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetGlobal(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeListKernels(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// link_ops.cc
CUresult ServeLinkCreate(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeLinkAdd(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeLinkComplete(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeReadLinked(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeLinkDestroy(ServedRequest& served, WireReader& in, WireWriter& out);
// launch_ops.cc
CUresult ServeLaunch(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeLaunchHostFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeMaxActiveClusters(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// memory_ops.cc
CUresult ServeAllocate(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeFree(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeAllocateAsync(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeFreeAsync(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeFreeHost(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeMemoryAmount(ServedRequest& served, WireReader& in, WireWriter& out);
// virtual_memory_ops.cc
CUresult ServeReserveAddresses(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeFreeAddresses(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeCreatePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeReleasePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeMapPhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeUnmapPhysical(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeSetAccess(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeGetAccess(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeGranularity(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeDescribePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeRetainPhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// sharing_ops.cc
CUresult ServeOffer(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeOpenShared(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeCloseShared(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out);
CUresult ServeEnablePeer(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeFence(ServedRequest& served, WireReader& in, WireWriter& out);
// The handle of physical memory that the session holds, with one more reference. 0: the table is full.
uint64_t NameHeld(ClientNames& names, VirtualMemory::Held& held);
// copy_ops.cc
CUresult ServeCopy(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks, WireReader& in,
                   WireWriter& out);
CUresult ServeCopyBox(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks,
                      WireReader& in, WireWriter& out);
CUresult ServeFill(ServedRequest& served, ClientNames& names, StreamWaits& waits, ArenaChunks& chunks, WireReader& in,
                   WireWriter& out);
CUresult ServeAwaitArena(ServedRequest& served, ArenaChunks& chunks, WireReader& in, WireWriter& out);
// stream_ops.cc
CUresult ServeCreateStream(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeDestroyStream(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeStream(ServedRequest& served, ClientNames& names, StreamWaits& waits, WireReader& in,
                                WireWriter& out);
CUresult ServeCreateEvent(ServedRequest& served, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeEvent(ServedRequest& served, ClientNames& names, StreamWaits& waits, WireReader& in,
                               WireWriter& out);
// capture_ops.cc
CUresult ServeBeginCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeEndCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeBeginTask(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeEndTask(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeCaptureState(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeUpdateCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// graph_ops.cc
CUresult ServeAddKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeSetKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeAddCopyNode(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, WireReader& in,
                          WireWriter& out);
CUresult ServeSetCopyNode(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, WireReader& in,
                          WireWriter& out);
CUresult ServeAddFillNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeSetFillNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeAddHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeSetHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeUpdateExec(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeInstantiate(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// graph_read_ops.cc
CUresult ServeGetCopyNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGraphText(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// batch_ops.cc
CUresult ServeMemoryOperations(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeAddMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeSetMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// graph_memory_ops.cc
CUresult ServeAddAllocationNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetAllocationNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// The generated cuGraphAddMemFreeNode, with its bookkeeping.
CUresult ServeAddFreeNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// nested_graph_ops.cc
CUresult ServeAddMovedGraphNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// In place of the generated calls, with what goes with a graph or a node.
CUresult ServeDestroyGraph(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeDestroyNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeGetChildGraph(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// conditional_ops.cc
CUresult ServeCreateConditional(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeAddConditionalNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
// user_object_ops.cc
CUresult ServeCreateUserObject(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
CUresult ServeCountUserObject(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);

}  // namespace tally::server
