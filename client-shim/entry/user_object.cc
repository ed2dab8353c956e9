// CUDA manual: user objects. The destructor is the program's own function: it runs here, on the callback thread.
#include <climits>
#include <memory>

#include "client-shim/entry/graph_record.h"
#include "client-shim/state/callback_thread.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

CUresult Count(const shm::CountUserObject& request) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (request.object == 0 || request.count == 0 || request.count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = call.channel->CallStruct(shm::Op::kCountUserObject, request).result;
  return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 || initialRefcount > INT_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call.process->callback_thread.Ensure(); result != CUDA_SUCCESS) return result;
  auto destructor = std::make_unique<Callback>();
  destructor->function = destroy;
  destructor->user = ptr;
  destructor->runs_once = true;
  const Reply reply = call.channel->CallStruct(
      shm::Op::kCreateUserObject, shm::CreateUserObject{TokenOf(destructor.get()), initialRefcount, flags});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  static_cast<void>(destructor.release());  // the callback thread deletes it
  *object_out = reinterpret_cast<CUuserObject>(reply.Read<uint64_t>());
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return Count({Word(object), 0, count, 0, 0, 0});
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return Count({Word(object), 0, count, 0, 1, 0});
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  if (graph == nullptr || (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return Count({Word(object), Word(graph), count, flags, 0, 0});
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Count({Word(object), Word(graph), count, 0, 1, 0});
}

}  // namespace tally::client_shim::entry
