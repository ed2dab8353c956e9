// cp.async.bulk.tensor: boxes of tensors between global and shared memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "sim-driver/engine/delivery.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/tensor_map.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kPieceBytes = 16;  // what swizzling moves
constexpr uint32_t kSharedAlignment = 128;

// One lane's copy.
struct Copy {
  Warp& w;
  const Instruction& i;
  uint32_t lane;
  TensorMap map;
  int64_t at[TensorMap::kMostDimensions];  // of the box, in elements
};

// A row of the box: where its elements inside of the tensor are, and which they are.
struct Row {
  bool is_outside = false;
  uint64_t address = 0;
  uint32_t first = 0;  // of those inside, in elements of the row
  uint32_t count = 0;
};

Row RowOf(const Copy& copy, uint64_t index) {
  const TensorMap& map = copy.map;
  Row row;
  row.address = map.address;
  for (uint32_t d = 1; d < map.num_dimensions; ++d) {
    const int64_t k = copy.at[d] + static_cast<int64_t>(index % map.Count(d)) * map.steps[d];
    index /= map.Count(d);
    if (k < 0 || k > map.last_index[d]) row.is_outside = true;
    row.address += static_cast<uint64_t>(k) * map.strides_bytes[d - 1];
  }
  const int64_t begin = std::max<int64_t>(copy.at[0], 0);
  const int64_t end = std::min<int64_t>(copy.at[0] + map.box[0], int64_t{map.last_index[0]} + 1);
  if (begin >= end) row.is_outside = true;
  if (row.is_outside) return row;
  row.first = static_cast<uint32_t>(begin - copy.at[0]);
  row.count = static_cast<uint32_t>(end - begin);
  row.address += static_cast<uint64_t>(begin) * map.element_bytes;
  return row;
}

// Where byte `at` of the box's rows, one after the other, is in shared memory: a place of an address that is a multiple
// of 16 trades with another of the same 128 bytes (PTX ISA 5.5.7).
uint32_t Swizzled(const TensorMap& map, uint64_t shared_address, uint32_t at) {
  if (map.swizzle_bytes == 0) return at;
  const auto address = static_cast<uint32_t>(shared_address) + at;
  const uint32_t exchanged = (address >> 7 & (map.swizzle_bytes / kPieceBytes - 1u)) << 4;
  return (address ^ exchanged) - static_cast<uint32_t>(shared_address);
}

// The box as it shall lie at `shared_address`. Empty after a fault.
std::vector<std::byte> ReadBox(const Copy& copy, uint64_t shared_address) {
  const TensorMap& map = copy.map;
  const auto bytes = static_cast<uint32_t>(map.BoxBytes());
  const uint32_t row_bytes = map.RowBytes();
  std::vector<std::byte> box(bytes), row_of_box(row_bytes);
  for (uint32_t begin = 0; begin < bytes; begin += row_bytes) {
    const Row row = RowOf(copy, begin / row_bytes);
    std::fill(row_of_box.begin(), row_of_box.end(), std::byte{0});  // what lies outside of the tensor
    if (!row.is_outside) {
      const uint32_t inside = row.count * map.element_bytes;
      const std::byte* from = ResolveAddress(copy.w, copy.i, copy.lane, Space::kGlobal, row.address, inside, 1, false);
      if (from == nullptr) return {};
      std::byte* to = row_of_box.data() + row.first * map.element_bytes;
      for (uint32_t k = 0; k < inside; ++k)
        to[k] = static_cast<std::byte>(AtomicLoad(reinterpret_cast<const uint8_t*>(from + k)));
    }
    for (uint32_t k = 0; k < row_bytes; k += kPieceBytes)
      std::memcpy(box.data() + Swizzled(map, shared_address, begin + k), row_of_box.data() + k, kPieceBytes);
  }
  return box;
}

void WriteBox(const Copy& copy, uint64_t shared_address, const std::byte* box) {
  const TensorMap& map = copy.map;
  const auto bytes = static_cast<uint32_t>(map.BoxBytes());
  const uint32_t row_bytes = map.RowBytes();
  std::vector<std::byte> row_of_box(row_bytes);
  for (uint32_t begin = 0; begin < bytes; begin += row_bytes) {
    const Row row = RowOf(copy, begin / row_bytes);
    if (row.is_outside) continue;
    for (uint32_t k = 0; k < row_bytes; k += kPieceBytes)
      std::memcpy(row_of_box.data() + k, box + Swizzled(map, shared_address, begin + k), kPieceBytes);
    const uint32_t inside = row.count * map.element_bytes;
    std::byte* to = ResolveAddress(copy.w, copy.i, copy.lane, Space::kGlobal, row.address, inside, 1, true);
    if (to == nullptr) return;
    const std::byte* from = row_of_box.data() + row.first * map.element_bytes;
    for (uint32_t k = 0; k < inside; ++k)
      AtomicStore(reinterpret_cast<uint8_t*>(to + k), static_cast<uint8_t>(from[k]));
  }
}

// list: coordinates, then the offsets of a, b, c as constants.
enum Offset : uint32_t { kOfShared, kOfMap, kOfBarrier };
uint64_t AddressIn(const Warp& w, const Instruction& i, uint32_t lane, uint32_t operand, Offset offset) {
  return Source<uint64_t>(w, operand)[lane] + Source<uint64_t>(w, i.list[i.x + offset])[lane];
}

bool MakeCopy(Copy& copy) {
  const uint64_t address = AddressIn(copy.w, copy.i, copy.lane, copy.i.b, kOfMap);
  const std::byte* map =
      ResolveAddress(copy.w, copy.i, copy.lane, Space::kGeneric, address, sizeof(TensorMap), 64, false);
  if (map == nullptr) return false;
  std::memcpy(&copy.map, map, sizeof copy.map);
  const char* wrong = nullptr;
  if (!copy.map.IsValid()) {
    wrong = "what it names is no tensor map";
  } else if (copy.map.num_dimensions != copy.i.x) {
    wrong = "the tensor map has another number of dimensions";
  } else if (copy.map.BoxBytes() > MachineLimits::kSharedBytesPerBlockOptin) {
    wrong = "the box is larger than shared memory";
  }
  if (wrong != nullptr) {
    RaiseFault(copy.w, copy.i, copy.lane, kFaultLaunchFailed, wrong);
    return false;
  }
  for (uint32_t d = 0; d < copy.i.x; ++d) copy.at[d] = Source<int32_t>(copy.w, copy.i.list[d])[copy.lane];
  return true;
}

constexpr uint32_t kMulticast = 1;

// a = to, b = map, c = mbarrier, f = mask of blocks (kMulticast); x = dimensions, y = flags.
void OpTensorLoad(Warp& w, const Instruction& i) {
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    Copy copy{w, i, lane, {}, {}};
    if (!MakeCopy(copy)) return;
    const uint64_t to = AddressIn(w, i, lane, i.a, kOfShared);
    const std::vector<std::byte> box = ReadBox(copy, to & ((1u << kSharedRankShift) - 1));
    if (w.stop == StopReason::kFault) return;
    const bool is_multicast = i.y & kMulticast;
    const Destination destination{.to = to,
                                  .barrier = AddressIn(w, i, lane, i.c, kOfBarrier),
                                  .alignment = kSharedAlignment,
                                  .is_multicast = is_multicast,
                                  .blocks = is_multicast ? Source<uint16_t>(w, i.f)[lane] : 0u};
    if (!Deliver(w, i, lane, destination, box)) return;
  }
}

void OpTensorStore(Warp& w, const Instruction& i) {
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    Copy copy{w, i, lane, {}, {}};
    if (!MakeCopy(copy)) return;
    const uint64_t from = AddressIn(w, i, lane, i.a, kOfShared);
    const std::byte* box = ResolveAddress(w, i, lane, Space::kShared, from, static_cast<uint32_t>(copy.map.BoxBytes()),
                                          kSharedAlignment, false);
    if (box == nullptr) return;
    WriteBox(copy, from, box);
    if (w.stop == StopReason::kFault) return;
  }
}

}  // namespace

bool DecodeTensorCopy(Lowering& l) {
  uint32_t num_dimensions = 0;
  for (uint32_t d = 1; d <= TensorMap::kMostDimensions; ++d) {
    if (l.Has(Format("{}d", d))) num_dimensions = d;
  }
  for (std::string_view modifier : l.instruction().modifiers) {
    if (modifier.starts_with("im2col") || modifier.starts_with("tile::") || modifier.starts_with("cta_group"))
      return false;
  }
  if (num_dimensions == 0 || l.Has("reduce")) return false;
  if (l.Has("prefetch")) return true;
  // Which way: the first space that is named is that of the destination.
  bool is_load = false;
  for (std::string_view modifier : l.instruction().modifiers) {
    const StateSpace space = ptx::StateSpaceFromName(modifier);
    if (space == StateSpace::kNone) continue;
    is_load = space != StateSpace::kGlobal;
    break;
  }
  if (is_load && !l.Has("mbarrier::complete_tx::bytes")) return false;
  const ptx::Operand& map = l.operand(is_load ? 1 : 0);
  if (map.kind != OperandKind::kMemory || map.parts.size() != 1 || map.parts[0].kind != OperandKind::kVector ||
      map.parts[0].parts.size() != num_dimensions)
    return l.Invalid("a tensor map with as many coordinates as dimensions");
  std::vector<VirtualOperand> list;
  for (const ptx::Operand& part : map.parts[0].parts) list.push_back(l.Use(part, ScalarType::kB32));
  const Lowering::Address shared = l.AddressOf(l.operand(is_load ? 0 : 1), StateSpace::kNone);
  const Lowering::Address map_address = l.AddressOf(map, StateSpace::kNone);
  const VirtualOperand a = l.WideAddress(shared), b = l.WideAddress(map_address);
  Lowering::Address barrier;
  VirtualOperand c = kNoOperand, f = kNoOperand;
  const bool is_multicast = is_load && l.Has("multicast::cluster");
  if (is_load) {
    barrier = l.AddressOf(l.operand(2), StateSpace::kNone);
    c = l.WideAddress(barrier);
    if (is_multicast) f = l.Use(3, ScalarType::kB16);
  }
  for (const int64_t offset : {shared.offset, map_address.offset, barrier.offset})
    list.push_back(l.Constant(8, static_cast<uint64_t>(offset)));
  LoweredInstruction& lowered = l.Emit(is_load ? &OpTensorLoad : &OpTensorStore, kNoOperand, a, b, c);
  lowered.i.f = f;
  lowered.i.x = num_dimensions;
  lowered.i.y = is_multicast ? kMulticast : 0;
  lowered.list = std::move(list);
  return true;
}

}  // namespace tally::sim_driver
