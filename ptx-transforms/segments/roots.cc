#include "ptx-transforms/segments/roots.h"

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

// Parameters of more bytes than this are not looked through for pointers.
constexpr uint32_t kMaxSearchedBytes = 8192;
// Beyond these, any pointer may be anything: hostile text must not take long.
constexpr uint64_t kMaxVisits = uint64_t{20} << 20;
constexpr uint32_t kMaxAddressNesting = 3;

}  // namespace

PointerOrigins::PointerOrigins(const KernelSegments& segments, const std::vector<LocalStore>& stores)
    : segments_(segments) {
  std::vector<LocalStore> open;
  for (const LocalStore& store : stores) {
    if (store.address == kNoNode) {
      local_values_.push_back(store.value);
    } else {
      open.push_back(store);
    }
  }
  // Where a generic store goes may follow from what lies in local memory, so until nothing more comes.
  for (size_t before = ~size_t{0}; before != open.size();) {
    before = open.size();
    known_addresses_.clear();
    std::erase_if(open, [&](const LocalStore& store) {
      const Found found = Of(store.address);
      const bool may_be_local = found.is_own || found.roots.empty() || found.has_memory();
      if (may_be_local) local_values_.push_back(store.value);
      return may_be_local;
    });
  }
  known_addresses_.clear();
}

bool PointerOrigins::Found::has_memory() const {
  return std::any_of(roots.begin(), roots.end(),
                     [](const PointerRoot& root) { return root.kind == PointerRoot::Kind::kMemory; });
}

void PointerOrigins::Push(std::vector<Visit>& open, Seen& seen, Visit visit) {
  const auto bit = static_cast<uint8_t>(1 << (visit.is_pointer + 2 * visit.is_half + 4 * visit.is_bounded));
  uint8_t& bits = seen[visit.node];
  if ((bits & bit) != 0) return;
  bits |= bit;
  open.push_back(visit);
}

// Whether the value is small, whatever its operands are.
bool PointerOrigins::Bounds(const FormulaNode& node) const {
  const Formula& formula = segments_.formula;
  const auto operand = [&](uint32_t k) { return formula.Operand(node, k); };
  const auto is_number = [&](NodeId id) { return formula.IsConstant(id) || formula[id].op == FormulaOp::kParameter; };
  switch (node.op) {
    case FormulaOp::kAnd:
      return formula.IsConstant(operand(1)) && formula[operand(1)].value <= MaskOf(node.bits - 1u);
    case FormulaOp::kRemainder:
      return is_number(operand(1));
    case FormulaOp::kExtend:
      return formula[operand(0)].bits <= 16;
    case FormulaOp::kShiftRight:
      return formula.IsConstant(operand(1)) && formula[operand(1)].value >= 16u && node.bits == 32;
    case FormulaOp::kMinimum:
      return !node.is_signed || formula[operand(0)].op == FormulaOp::kMaximum ||
             formula[operand(1)].op == FormulaOp::kMaximum;
    case FormulaOp::kMaximum:
      return node.is_signed &&
             (formula[operand(0)].op == FormulaOp::kMinimum || formula[operand(1)].op == FormulaOp::kMinimum);
    default:
      return false;
  }
}

PointerOrigins::Found PointerOrigins::Of(NodeId value) {
  Found found = Search(value, 0);
  std::sort(found.roots.begin(), found.roots.end());
  found.roots.erase(std::unique(found.roots.begin(), found.roots.end()), found.roots.end());
  return found;
}

// A whole register, or half of one, that was loaded: it is a pointer to anything, unless only the thread itself or the
// kernel's parameters can have held it.
void PointerOrigins::AddLoaded(const FormulaNode& load, NodeId address, uint32_t nesting, Found& found,
                               std::vector<Visit>& open, Seen& seen) {
  const auto space = static_cast<LoadSpace>(load.value);
  Found from;
  if (space == LoadSpace::kGeneric) {
    const auto known = known_addresses_.find(address);
    from = known != known_addresses_.end() ? known->second : Search(address, nesting + 1);
    known_addresses_.try_emplace(address, from);
  }
  if (space == LoadSpace::kLocal || from.is_own)
    for (const NodeId stored : local_values_)
      Push(open, seen, {.node = stored, .is_pointer = true, .is_half = true, .is_bounded = false});
  if (from.is_own)  // or of the kernel's parameters, at a place that is not known
    for (uint32_t slot = 0; slot + 8 <= segments_.parameter_bytes && slot < kMaxSearchedBytes; slot += 8)
      found.roots.push_back({PointerRoot::Kind::kSearched, slot});
  const bool is_only_own = space == LoadSpace::kLocal || (from.is_own && from.roots.empty());
  if (!is_only_own || segments_.parameter_bytes > kMaxSearchedBytes)
    found.roots.push_back({PointerRoot::Kind::kMemory, 0});
}

PointerOrigins::Found PointerOrigins::Search(NodeId value, uint32_t nesting) {
  Found found;
  const Formula& formula = segments_.formula;
  std::vector<Visit> open;
  Seen seen;
  const auto add = [&](PointerRoot::Kind kind, uint64_t of) { found.roots.push_back({kind, of}); };
  const auto add_unknown = [&](NodeId id, bool is_bounded) {
    found.is_computed = true;
    if (!is_bounded) found.unknown.push_back(id);
  };
  Push(open, seen, {.node = value, .is_pointer = true, .is_half = false, .is_bounded = false});
  while (!open.empty()) {
    if (++num_visits_ > kMaxVisits || nesting > kMaxAddressNesting) {
      found.is_own = nesting > 0;
      add_unknown(value, false);
      add(PointerRoot::Kind::kMemory, 0);
      break;
    }
    const auto [id, is_pointer, is_half, is_bounded] = open.back();
    open.pop_back();
    const FormulaNode& node = formula[id];
    bool passes = is_pointer, makes_half = is_half;
    uint32_t first = 0;
    switch (node.op) {
      case FormulaOp::kParameter:
        // Also where it is multiplied: who is no pointer is known by the value. Halves of a register are found by the
        // 8 bytes around them.
        if (node.bits == 64) add(PointerRoot::Kind::kParameter, node.value);
        if (node.bits < 64 && is_pointer && is_half) add(PointerRoot::Kind::kSearched, node.value / 8 * 8);
        continue;
      case FormulaOp::kSymbol:
        add(PointerRoot::Kind::kSymbol, node.value);
        continue;
      case FormulaOp::kParameterAddress:
      case FormulaOp::kLocalAddress:
      case FormulaOp::kSharedAddress:
        if (is_pointer) found.is_own = true;
        continue;
      case FormulaOp::kLoad:
        add_unknown(id, is_bounded);
        if (is_pointer && (node.bits >= 64 || is_half))
          AddLoaded(node, formula.Operand(id, 0), nesting, found, open, seen);
        continue;
      case FormulaOp::kOpaque:
        add_unknown(id, is_bounded || node.value != MaskOf(node.bits));
        if (node.num_operands == 0 && is_pointer && (node.bits == 64 || is_half)) add(PointerRoot::Kind::kMemory, 0);
        break;
      case FormulaOp::kInduction: {
        const InductionVariable& induction = segments_.inductions[node.value];
        if (induction.step == kNoNode) add_unknown(id, is_bounded);
        for (const NodeId latch : induction.latches) {
          if (latch != kNoNode) {
            Push(open, seen, {latch, is_pointer, is_half, is_bounded});
          } else if (is_pointer) {
            add(PointerRoot::Kind::kMemory, 0);
          }
        }
        break;
      }
      case FormulaOp::kPack:
        makes_half = true;
        break;
      case FormulaOp::kExtend:
      case FormulaOp::kMultiply:
      case FormulaOp::kMultiplyHigh:
      case FormulaOp::kShiftLeft:
      case FormulaOp::kDivide:
      case FormulaOp::kRemainder:
        passes = false;
        break;
      case FormulaOp::kShiftRight:
        passes = is_pointer && is_half;
        break;
      case FormulaOp::kSelect:
        first = 1;
        break;
      default:
        break;
    }
    const bool is_exact = node.op <= FormulaOp::kInduction || node.op == FormulaOp::kAdd ||
                          node.op == FormulaOp::kSubtract || node.op == FormulaOp::kMultiply ||
                          node.op == FormulaOp::kExtend || node.op == FormulaOp::kTruncate ||
                          node.op == FormulaOp::kPack || node.op == FormulaOp::kShiftLeft;
    found.is_computed |= !is_exact;
    const bool bounds = is_bounded || Bounds(node);
    for (uint32_t k = first; k < node.num_operands; ++k)
      Push(open, seen, {formula.Operand(id, k), passes, makes_half, bounds});
  }
  return found;
}

}  // namespace tally::ptx_transforms
