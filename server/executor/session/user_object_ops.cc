// User objects: things of the program that live as long as graphs that use them. The destructor runs in the client; the
// driver's own call of it only tells the client.
#include "proto/shm/records_graph_abi.h"
#include "server/executor/session/callback_queue.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

// On the driver's thread, once, perhaps after the session's end: then nobody is told.
void CUDA_CB OnDestroyed(void* argument) {
  const std::unique_ptr<HostCall> call(static_cast<HostCall*>(argument));
  call->queue->Post(call->token, CUDA_SUCCESS, nullptr, 0);
}

CUresult FindObject(ClientNames& names, uint64_t handle, UserObject** object) {
  return names.Find(shm::HandleKind::kUserObject, handle, object);
}

}  // namespace

CUresult ServeCreateUserObject(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::CreateUserObject request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuUserObjectCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (request.num_references == 0 || request.num_references > shm::kMaxUserReferences) return CUDA_ERROR_INVALID_VALUE;
  SessionState& session = served.session();
  auto object = std::make_unique<UserObject>();
  auto call = std::make_unique<HostCall>(HostCall{session.host_calls.queue, request.token});
  if (const CUresult r = served.driver().cuUserObjectCreate(&object->real, call.get(), &OnDestroyed,
                                                            request.num_references, request.flags);
      r != CUDA_SUCCESS) {
    return r;
  }
  static_cast<void>(call.release());  // OnDestroyed frees it
  object->num_client_references = request.num_references;
  object->handle = names.NameOf(shm::HandleKind::kUserObject, object.get());
  if (object->handle == 0) {
    served.driver().cuUserObjectRelease(object->real, request.num_references);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out.PutWord(object->handle);
  session.graphs.user_objects.push_back(std::move(object));
  return CUDA_SUCCESS;
}

CUresult ServeCountUserObject(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::CountUserObject request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  UserObject* object = nullptr;
  if (const CUresult r = FindObject(names, request.object, &object); r != CUDA_SUCCESS) return r;
  if (request.count == 0 || request.count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  const DriverTable& driver = served.driver();
  CUgraph graph = nullptr;
  if (const CUresult r = names.FindOptional(shm::HandleKind::kGraph, request.graph, &graph); r != CUDA_SUCCESS)
    return r;
  const bool is_move = (request.flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  // What the driver does with references that are not there is not defined: they are counted here.
  if (request.is_release != 0) {
    const auto of_graph = object->of_graph.find(request.graph);
    if (graph != nullptr && of_graph == object->of_graph.end()) return CUDA_ERROR_INVALID_VALUE;
    uint64_t& held = graph != nullptr ? of_graph->second : object->num_client_references;
    if (held < request.count) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = graph != nullptr ? driver.cuGraphReleaseUserObject(graph, object->real, request.count)
                                             : driver.cuUserObjectRelease(object->real, request.count);
    if (result != CUDA_SUCCESS) return result;
    held -= request.count;
    if (held == 0 && graph != nullptr) object->of_graph.erase(of_graph);
    served.session().graphs.ForgetUnlessHeld(object);
    return CUDA_SUCCESS;
  }
  // Who has no reference cannot know that the object still is.
  if (object->num_client_references < (graph != nullptr && is_move ? request.count : 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool are_new = graph == nullptr || !is_move;
  if (are_new && object->num_references() + request.count > shm::kMaxUserReferences) return CUDA_ERROR_INVALID_VALUE;
  if (graph == nullptr) {
    if (const CUresult r = driver.cuUserObjectRetain(object->real, request.count); r != CUDA_SUCCESS) return r;
    object->num_client_references += request.count;
    return CUDA_SUCCESS;
  }
  if (const CUresult r = driver.cuGraphRetainUserObject(graph, object->real, request.count, request.flags);
      r != CUDA_SUCCESS) {
    return r;
  }
  object->of_graph[request.graph] += request.count;
  if (is_move) object->num_client_references -= request.count;
  return CUDA_SUCCESS;
}

}  // namespace tally::server
