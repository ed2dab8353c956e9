// The beginning of every record that adds a node to a graph or changes one: shm::GraphNodeTarget and the dependencies.
#pragma once

#include <cstring>

#include "client-shim/entry/graph_nodes.h"
#include "client-shim/state/process.h"
#include "proto/shm/operations_abi.h"
#include "proto/shm/records_graph_abi.h"

namespace tally::client_shim {

inline uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

inline CUresult CheckPlace(const NodePlace& place) {
  if (place.node == nullptr || (place.num_dependencies != 0 && place.dependencies == nullptr) ||
      place.num_dependencies > shm::kMaxRequestBytes / 16)
    return CUDA_ERROR_INVALID_VALUE;
  return place.graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Room for a target, its dependencies and `tail_bytes` more; `*tail` is where those go.
inline CUresult BeginAdd(const Call& call, shm::Op op, const NodePlace& place, size_t tail_bytes, std::byte** tail) {
  const size_t dependency_bytes = place.num_dependencies * 8;
  const shm::GraphNodeTarget target{Word(place.graph), 0, 0, static_cast<uint32_t>(place.num_dependencies), 0};
  std::byte* room = call.channel->Begin(op, static_cast<uint32_t>(sizeof(target) + dependency_bytes + tail_bytes));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &target, sizeof(target));
  if (dependency_bytes != 0) std::memcpy(room + sizeof(target), place.dependencies, dependency_bytes);
  *tail = room + sizeof(target) + dependency_bytes;
  return CUDA_SUCCESS;
}

// `exec` null: the node itself; else its counterpart in the executable graph.
inline CUresult BeginSet(const Call& call, shm::Op op, CUgraphExec exec, CUgraphNode node, size_t tail_bytes,
                         std::byte** tail) {
  const shm::GraphNodeTarget target{0, Word(exec), Word(node), 0, 0};
  std::byte* room = call.channel->Begin(op, static_cast<uint32_t>(sizeof(target) + tail_bytes));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &target, sizeof(target));
  *tail = room + sizeof(target);
  return CUDA_SUCCESS;
}

inline CUresult FinishAdd(const Call& call, const NodePlace& place) {
  const Reply reply = call.channel->Call();
  if (reply.result == CUDA_SUCCESS) *place.node = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>());
  return reply.result;
}

}  // namespace tally::client_shim
