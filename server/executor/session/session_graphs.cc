#include "server/executor/session/session_graphs.h"

namespace tally::server {

void SessionGraphs::Forget(const NestedGraphs::Contents& gone) {
  HandleTable& graphs = handles_[shm::HandleKind::kGraph];
  HandleTable& nodes = handles_[shm::HandleKind::kGraphNode];
  for (const CUgraphNode node : gone.nodes) nodes.Remove(nodes.FindHandle(node));
  for (const CUgraph graph : gone.graphs) {
    declared.Forget(graph);
    const uint64_t handle = graphs.FindHandle(graph);
    memory.OnDestroyed(graph);
    if (handle == 0) continue;  // the client never saw it
    ForgetUserReferences(handle);
    std::erase_if(conditionals, [&](const auto& entry) { return entry.second == handle; });
    graphs.Remove(handle);
  }
  nested.Forget(gone);
}

void SessionGraphs::OnExecNodeSet(CUgraphExec exec) {
  if (twins != nullptr) twins->OnChanged(exec);
}

void SessionGraphs::OnExecChanged(CUgraphExec exec) {
  launches.OnChanged(exec);
  OnExecNodeSet(exec);
}

void SessionGraphs::OnExecDestroyed(CUgraphExec exec) {
  memory.OnDestroyed(exec);
  launches.OnDestroyed(exec);
  if (twins != nullptr) twins->OnDestroyed(exec);
}

void SessionGraphs::ForgetUnlessHeld(UserObject* object) {
  if (object->num_client_references != 0 || !object->of_graph.empty()) return;
  handles_[shm::HandleKind::kUserObject].Remove(object->handle);
  std::erase_if(user_objects, [&](const auto& owned) { return owned.get() == object; });
}

void SessionGraphs::ForgetUserReferences(uint64_t graph) {
  for (size_t i = user_objects.size(); i-- > 0;) {
    UserObject* object = user_objects[i].get();
    if (object->of_graph.erase(graph) != 0) ForgetUnlessHeld(object);
  }
}

void SessionGraphs::ReleaseUserObjects() {
  for (const auto& object : user_objects) {
    if (object->num_client_references != 0) {
      driver_.cuUserObjectRelease(object->real, static_cast<unsigned int>(object->num_client_references));
    }
    handles_[shm::HandleKind::kUserObject].Remove(object->handle);
  }
  user_objects.clear();
}

void SessionGraphs::Destroy(uint32_t context, const std::function<bool(const NestedGraphs::Contents&)>& must_stay) {
  if (context == shm::kNoContext) {
    // What graphs allocated and nobody freed; of what is not there now the driver says so.
    for (const MemoryRange& range : map_.Ranges()) {
      if (range.kind == MemoryKind::kGraph) driver_.cuMemFree_v2(range.address);
    }
  }
  handles_.RemoveEach(shm::HandleKind::kGraphExec, context, [&](const HandleTable::Entry& entry) {
    const auto exec = static_cast<CUgraphExec>(entry.value);
    OnExecDestroyed(exec);
    driver_.cuGraphExecDestroy(exec);
  });
  HandleTable& graphs = handles_[shm::HandleKind::kGraph];
  for (const HandleTable::Entry& entry : graphs.Entries()) {
    if (context != shm::kNoContext && entry.context != context) continue;
    const auto graph = static_cast<CUgraph>(entry.value);
    // Those that belong to a node go with it.
    if (graphs.Find(entry.handle) == nullptr || nested.Contains(graph)) continue;
    const NestedGraphs::Contents contents = ContentsOf(graph);
    if (must_stay(contents)) continue;
    Forget(contents);
    driver_.cuGraphDestroy(graph);
  }
  if (context == shm::kNoContext) launches.Clear();
  if (context == shm::kNoContext) ReleaseUserObjects();
  handles_.RemoveEach(shm::HandleKind::kGraphNode, context, [](const HandleTable::Entry&) {});
}

}  // namespace tally::server
