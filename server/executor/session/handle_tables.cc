#include "server/executor/session/handle_tables.h"

namespace tally::server {
namespace {

// Results of calls like GraphChildGraphNodeGetGraph name objects that may have a name already.
bool IsByValue(shm::HandleKind kind) {
  switch (kind) {
    case shm::HandleKind::kEvent:
    case shm::HandleKind::kGraph:
    case shm::HandleKind::kGraphNode:
    case shm::HandleKind::kMemPool:
    case shm::HandleKind::kArray:
      return true;
    default:
      return false;
  }
}

}  // namespace

HandleTables::HandleTables(uint32_t handles_per_kind) {
  for (size_t kind = 0; kind < shm::kNumHandleKinds; ++kind) {
    const auto handle_kind = static_cast<shm::HandleKind>(kind);
    tables_.emplace_back(handle_kind, handles_per_kind, IsByValue(handle_kind));
  }
}

}  // namespace tally::server
