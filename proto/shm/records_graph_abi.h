// Records about graphs and their nodes; kernel, copy, fill and host nodes carry the records of launches and copies.
// Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

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

}  // namespace tally::shm
