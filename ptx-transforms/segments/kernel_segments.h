// KernelSegments: which global memory a kernel may touch, as formulas over its launch. evaluate.h makes boxes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx-transforms/segments/formula.h"
#include "ptx-transforms/syntax/source.h"

namespace tally::ptx_transforms {

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

// How much is known of an access; each is sound, later ones are wider. Of a kernel without a launch: what may be hoped
// for.
enum class SegmentClass : uint8_t {
  kBox,          // C0: rows at a pitch, exact but for what guards do not say
  kInterval,     // C1: bounds, of what memory knows or of what is no sum (quotients, least of two, one of two)
  kAllocation,   // C2: all of the allocation that the pointer came from
  kAllocations,  // C3: it may have come from several
  kAnywhere,     // C4: a pointer that was loaded from memory
};
inline constexpr uint32_t kNumSegmentClasses = 5;

// A predicate that has that value whenever the access is made, in the same round of every loop.
struct AccessCondition {
  NodeId predicate = kNoNode;
  bool holds = true;
};

// Where a pointer may have come from.
struct PointerRoot {
  enum class Kind : uint8_t {
    kParameter,  // the 8 bytes at offset `value` of the kernel's parameters
    kSearched,   // the same, but nobody says that these 8 bytes are one value: counts if it points into an allocation
    kSymbol,     // symbol `value`
    kMemory,     // loaded: anything
  };
  Kind kind = Kind::kParameter;
  uint64_t value = 0;
  bool operator==(const PointerRoot&) const = default;
  auto operator<=>(const PointerRoot&) const = default;
};

struct GlobalAccess {
  enum class Object : uint8_t {
    kMemory,
    kTexture,    // a texture or surface object: `address` is its handle
    kTensorMap,  // `address` is where the map lies: a parameter's address, if one knows
  };
  AccessKind kind = AccessKind::kRead;
  Object object = Object::kMemory;
  SegmentClass at_best = SegmentClass::kBox;
  NodeId address = kNoNode;
  uint32_t bytes = 0;
  NodeId extent = kNoNode;  // if there is one: as many bytes as it says, instead of `bytes`
  std::vector<AccessCondition> conditions;
  std::vector<PointerRoot> roots;
  SourcePosition position;
  std::string what;  // "ld.global.f32"
};

// One way out of a loop that every round passes: another round needs `start + step * round  COMPARISON  bound`.
struct TripTest {
  NodeId start = kNoNode;
  NodeId step = kNoNode;
  NodeId bound = kNoNode;
  Comparison goes_on = Comparison::kLess;
  bool is_signed = false;
};

struct CountedLoop {
  std::vector<TripTest> tests;  // none: nobody knows how often it goes round
  SourcePosition position;      // of its first instruction
};

// A register that changes in a loop. step kNoNode: by nothing that is the same in each round.
struct InductionVariable {
  uint32_t loop = 0;
  NodeId node = kNoNode;
  NodeId step = kNoNode;
  std::vector<NodeId> latches = {};  // what it becomes for the next round
};

struct ModuleSymbol {
  std::string name;
  uint64_t size_bytes = 0;  // 0: the module does not say
  bool is_constant = false;
};

struct KernelParameterSlot {
  std::string name;
  uint32_t offset = 0;  // bytes
  uint32_t bytes = 0;
};

// Why nothing may run beside this kernel.
struct SegmentBarrier {
  std::string code;  // "volatile", "spin-loop": see BarrierMeaning
  std::string seen;  // "ld.volatile.global.u32 (line 7)"
};

struct KernelSegments {
  std::string kernel;
  std::vector<KernelParameterSlot> parameters;
  uint32_t parameter_bytes = 0;
  std::vector<SegmentBarrier> barriers;  // if there are any, what follows may be incomplete
  std::vector<GlobalAccess> accesses;
  std::vector<ModuleSymbol> symbols;
  std::vector<CountedLoop> loops;
  std::vector<InductionVariable> inductions;
  Formula formula;
};

}  // namespace tally::ptx_transforms
