// The hand-written operations, one function per Op of proto/shm/operations_abi.h, grouped in files by chapter.
//
// Each is called with the session's turn held and the request's context current, reads its record from `in`, puts the
// reply's payload into `out` and returns the call's result. A record that makes no sense: lane.Malformed(). A function
// may give the turn up (lane.GiveUpTurn) once it only waits.
#pragma once

#include <cuda.h>

#include "server/executor/session/served_lane.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

using Operation = CUresult (*)(ServedLane& lane, WireReader& in, WireWriter& out);

// Null: no such hand-written operation.
Operation FindOperation(uint16_t op);

// Whether the driver may wait for the whole context in it, with its locks held (cudaFree, loading code, making
// streams): all but what is known to put something on a stream, to ask or to wait for that only.
bool MayWaitForContext(uint16_t op);

// What has to happen around some generated calls: bookkeeping of ours, or bytes that must not reach the driver. Returns
// true if *result is the whole answer and the generated function must not run.
bool ServeBeforeWire(ServedLane& lane, uint16_t op, WireReader in, WireWriter& out, CUresult* result);

// context_ops.cc
CUresult ServeDescribeDevices(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeOpenContext(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCloseContext(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeContext(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFetchOutput(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeRecordContextEvent(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeWaitContextEvent(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeNoteRefusal(ServedLane& lane, WireReader& in, WireWriter& out);
// image_ops.cc
CUresult ServeWriteImage(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLoadModule(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLoadLibrary(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLibraryModule(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeUnloadModule(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeUnloadLibrary(ServedLane& lane, WireReader& in, WireWriter& out);
// kernel_ops.cc
CUresult ServeGetFunction(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetKernel(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeKernelFunction(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetGlobal(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeListKernels(ServedLane& lane, WireReader& in, WireWriter& out);
// link_ops.cc
CUresult ServeLinkCreate(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLinkAdd(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLinkComplete(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeReadLinked(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLinkDestroy(ServedLane& lane, WireReader& in, WireWriter& out);
// launch_ops.cc
CUresult ServeLaunch(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeLaunchHostFunction(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeMaxActiveClusters(ServedLane& lane, WireReader& in, WireWriter& out);
// memory_ops.cc
CUresult ServeAllocate(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFree(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAllocateAsync(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFreeAsync(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFreeHost(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeMemoryAmount(ServedLane& lane, WireReader& in, WireWriter& out);
// virtual_memory_ops.cc
CUresult ServeReserveAddresses(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFreeAddresses(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCreatePhysical(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeReleasePhysical(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeMapPhysical(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeUnmapPhysical(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetAccess(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetAccess(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGranularity(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeDescribePhysical(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeRetainPhysical(ServedLane& lane, WireReader& in, WireWriter& out);
// sharing_ops.cc
CUresult ServeOffer(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeOpenShared(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCloseShared(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeEnablePeer(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFence(ServedLane& lane, WireReader& in, WireWriter& out);
// The handle of physical memory that the session holds, with one more reference. 0: the table is full.
uint64_t NameHeld(ServedLane& lane, VirtualMemory::Held& held);
// copy_ops.cc
CUresult ServeCopy(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCopyBox(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeFill(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAwaitArena(ServedLane& lane, WireReader& in, WireWriter& out);
// stream_ops.cc
CUresult ServeCreateStream(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeDestroyStream(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeStream(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCreateEvent(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSynchronizeEvent(ServedLane& lane, WireReader& in, WireWriter& out);
// capture_ops.cc
CUresult ServeBeginCapture(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeEndCapture(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCaptureState(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeUpdateCapture(ServedLane& lane, WireReader& in, WireWriter& out);
// graph_ops.cc
CUresult ServeAddKernelNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetKernelNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetKernelNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAddCopyNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetCopyNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAddFillNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetFillNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAddHostNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetHostNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeUpdateExec(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeInstantiate(ServedLane& lane, WireReader& in, WireWriter& out);
// graph_read_ops.cc
CUresult ServeGetCopyNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetHostNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGraphText(ServedLane& lane, WireReader& in, WireWriter& out);
// batch_ops.cc
CUresult ServeMemoryOperations(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAddMemoryOperationsNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeSetMemoryOperationsNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetMemoryOperationsNode(ServedLane& lane, WireReader& in, WireWriter& out);
// graph_memory_ops.cc
CUresult ServeAddAllocationNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetAllocationNode(ServedLane& lane, WireReader& in, WireWriter& out);
// The generated cuGraphAddMemFreeNode, with its bookkeeping.
CUresult ServeAddFreeNode(ServedLane& lane, WireReader& in, WireWriter& out);
// nested_graph_ops.cc
CUresult ServeAddMovedGraphNode(ServedLane& lane, WireReader& in, WireWriter& out);
// In place of the generated calls, with what goes with a graph or a node.
CUresult ServeDestroyGraph(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeDestroyNode(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeGetChildGraph(ServedLane& lane, WireReader& in, WireWriter& out);
// conditional_ops.cc
CUresult ServeCreateConditional(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeAddConditionalNode(ServedLane& lane, WireReader& in, WireWriter& out);
// user_object_ops.cc
CUresult ServeCreateUserObject(ServedLane& lane, WireReader& in, WireWriter& out);
CUresult ServeCountUserObject(ServedLane& lane, WireReader& in, WireWriter& out);

}  // namespace tally::server
