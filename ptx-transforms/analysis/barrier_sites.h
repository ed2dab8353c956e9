// The places where threads of a block wait for one another: bar and barrier{.cta} in all their forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ptx-transforms/syntax/ast.h"

namespace tally::ptx_transforms {

struct BarrierSite {
  enum class Kind : uint8_t {
    kSync,
    kArrive,
    kReduce,   // red.popc, red.and, red.or: also waits
    kWarp,     // bar.warp.sync: of some lanes of one warp
    kCluster,  // barrier.cluster.arrive and .wait
  };
  enum class Reduction : uint8_t { kNone, kPopc, kAnd, kOr };

  Kind kind = Kind::kSync;
  Reduction reduction = Reduction::kNone;
  bool is_aligned = false;          // all threads of a warp come to the same instruction
  std::optional<uint32_t> id;       // of sync, arrive and reduce: 0 to 15; nothing: a register says which
  bool has_count = false;           // waits for that many threads instead of all of the block
  const Operand* result = nullptr;  // of a reduction
  const Operand* predicate = nullptr;

  // Every thread of the block that has not exited must come.
  bool is_for_all() const { return (kind == Kind::kSync || kind == Kind::kReduce) && !has_count; }
};

// Nothing if the instruction is no barrier, or one of a shape that this version does not know (`is_unknown` then).
std::optional<BarrierSite> BarrierSiteOf(const Instruction& instruction, bool* is_unknown = nullptr);

// Waits for lanes of the own warp that have not exited: those that a mask names (shfl.sync, bar.warp.sync, ...), or, to
// arrive at a barrier with a count, the whole warp.
bool IsWarpSync(const Instruction& instruction);

}  // namespace tally::ptx_transforms
