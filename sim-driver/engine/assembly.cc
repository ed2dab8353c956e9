#include "sim-driver/engine/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "sim-driver/engine/control_flow.h"
#include "sim-driver/engine/operations.h"

namespace tally::sim_driver {
namespace {

bool IsRegister(VirtualOperand operand) { return (operand & kTagMask) == kRegisterTag; }
uint32_t RegisterOf(VirtualOperand operand) { return operand & ~kTagMask; }

template <typename Visit>
void ForUses(const LoweredInstruction& instruction, Visit visit) {
  for (VirtualOperand operand : {instruction.i.a, instruction.i.b, instruction.i.c, instruction.i.f})
    if (IsRegister(operand)) visit(RegisterOf(operand));
  for (size_t k = instruction.num_defined; k < instruction.list.size(); ++k)
    if (IsRegister(instruction.list[k])) visit(RegisterOf(instruction.list[k]));
}
template <typename Visit>
void ForDefinitions(const LoweredInstruction& instruction, Visit visit) {
  for (VirtualOperand operand : {instruction.i.d, instruction.i.e})
    if (IsRegister(operand)) visit(RegisterOf(operand));
  for (size_t k = 0; k < instruction.num_defined; ++k)
    if (IsRegister(instruction.list[k])) visit(RegisterOf(instruction.list[k]));
}

// Of one of four sets of registers for each block: 64 MiB. The product of two numbers that a text chooses.
constexpr size_t kMostLiveWords = size_t{1} << 21;

struct Interval {
  uint32_t begin = ~0u;
  uint32_t end = 0;  // inclusive
  void Extend(uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
};

// Where each register is live, as one interval of instruction positions. Only registers that are live across blocks
// take part in the data flow, which keeps the sets small.
Result<std::vector<Interval>> LiveIntervals(const Lowering& lowering, const ControlFlow& flow) {
  std::vector<Interval> intervals(lowering.classes.size());
  std::vector<int32_t> home(lowering.classes.size(), -1);  // only block that names it; -2: several
  std::vector<uint32_t> global_index(lowering.classes.size(), ~0u);
  std::vector<uint32_t> globals;
  auto name = [&](uint32_t reg, uint32_t block, bool is_early_use) {
    if (home[reg] == -1) home[reg] = static_cast<int32_t>(block);
    if ((home[reg] != static_cast<int32_t>(block) || is_early_use) && global_index[reg] == ~0u) {
      home[reg] = -2;
      global_index[reg] = static_cast<uint32_t>(globals.size());
      globals.push_back(reg);
    }
  };
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    for (uint32_t k = flow.blocks[b].begin; k < flow.blocks[b].end; ++k) {
      const LoweredInstruction& instruction = lowering.instructions[k];
      // Used before defined in its only block: live around a loop, or never set. A guarded write keeps old lanes.
      ForUses(instruction, [&](uint32_t r) { name(r, b, intervals[r].begin == ~0u), intervals[r].Extend(k); });
      ForDefinitions(instruction, [&](uint32_t r) {
        name(r, b, instruction.is_guarded && intervals[r].begin == ~0u);
        intervals[r].Extend(k);
      });
    }
  }
  size_t words = (globals.size() + 63) / 64;
  if (words * flow.blocks.size() > kMostLiveWords) {
    return Error(StatusCode::kResourceExhausted,
                 fmt::format("too large: {} registers that live across {} blocks", globals.size(), flow.blocks.size()));
  }
  std::vector<uint64_t> live_in(words * flow.blocks.size());
  std::vector<uint64_t> live_out(words * flow.blocks.size());
  std::vector<uint64_t> used(words * flow.blocks.size());
  std::vector<uint64_t> defined(words * flow.blocks.size());
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    uint64_t* use = used.data() + words * b;
    uint64_t* define = defined.data() + words * b;
    auto mark_use = [&](uint32_t r) {
      uint32_t g = global_index[r];
      if (g != ~0u && !(define[g / 64] >> (g % 64) & 1)) use[g / 64] |= uint64_t{1} << (g % 64);
    };
    for (uint32_t k = flow.blocks[b].begin; k < flow.blocks[b].end; ++k) {
      const LoweredInstruction& instruction = lowering.instructions[k];
      ForUses(instruction, mark_use);
      ForDefinitions(instruction, [&](uint32_t r) {
        if (instruction.is_guarded) return mark_use(r);
        uint32_t g = global_index[r];
        if (g != ~0u) define[g / 64] |= uint64_t{1} << (g % 64);
      });
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = flow.blocks.size(); b-- > 0;) {
      uint64_t* in = live_in.data() + words * b;
      uint64_t* out = live_out.data() + words * b;
      for (uint32_t successor : flow.blocks[b].successors)
        for (size_t k = 0; k < words; ++k) out[k] |= live_in[words * successor + k];
      for (size_t k = 0; k < words; ++k) {
        uint64_t next = used[words * b + k] | (out[k] & ~defined[words * b + k]);
        if (next != in[k]) {
          in[k] = next;
          changed = true;
        }
      }
    }
  }
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    for (size_t g = 0; g < globals.size(); ++g) {
      if (live_in[words * b + g / 64] >> (g % 64) & 1) intervals[globals[g]].Extend(flow.blocks[b].begin);
      if (live_out[words * b + g / 64] >> (g % 64) & 1) intervals[globals[g]].Extend(flow.blocks[b].end);
    }
  }
  return intervals;
}

struct Slots {
  std::vector<uint32_t> offsets;  // per register
  uint32_t frame_bytes = 64;
};

uint32_t SlotBytes(uint32_t width) { return width == kPredicateClass ? 4 : width * kLanes; }

// Linear scan: registers of one class whose intervals do not touch share a slot.
Slots AssignSlots(const Lowering& lowering, const std::vector<Interval>& intervals) {
  Slots slots;
  slots.offsets.assign(lowering.classes.size(), 0);
  std::vector<uint32_t> order;
  for (uint32_t r = 1; r < intervals.size(); ++r)
    if (intervals[r].begin != ~0u) order.push_back(r);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return intervals[a].begin < intervals[b].begin; });
  uint32_t next = 0;
  for (uint32_t width : {16u, 8u, 4u, 2u, kPredicateClass}) {
    struct Active {
      uint32_t end;
      uint32_t offset;
      bool operator>(const Active& other) const { return end > other.end; }
    };
    std::vector<Active> active;  // heap by end
    std::vector<uint32_t> free;
    auto later = std::greater<Active>();
    for (uint32_t r : order) {
      if (lowering.classes[r] != width) continue;
      while (!active.empty() && active.front().end < intervals[r].begin) {
        free.push_back(active.front().offset);
        std::pop_heap(active.begin(), active.end(), later);
        active.pop_back();
      }
      uint32_t offset = 0;
      if (free.empty()) {
        offset = next;
        next += SlotBytes(width);
      } else {
        offset = free.back();
        free.pop_back();
      }
      slots.offsets[r] = offset;
      active.push_back({intervals[r].end, offset});
      std::push_heap(active.begin(), active.end(), later);
    }
  }
  slots.frame_bytes = std::max(64u, (next + 63) / 64 * 64);
  return slots;
}

}  // namespace

Status Assemble(const Lowering& lowering, FunctionCode& function) {
  ControlFlow flow = AnalyseControlFlow(lowering);
  const auto intervals = LiveIntervals(lowering, flow);
  if (!intervals) return intervals.error();
  Slots slots = AssignSlots(lowering, *intervals);
  auto resolve = [&](VirtualOperand operand) -> uint32_t {
    if (IsRegister(operand)) return slots.offsets[RegisterOf(operand)];
    if ((operand & kTagMask) == kConstantTag) return (operand & ~kTagMask) | 1;
    return 0;
  };
  std::vector<uint32_t> block_start(flow.blocks.size());
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    const BasicBlock& block = flow.blocks[b];
    block_start[b] = static_cast<uint32_t>(function.instructions.size());
    if (block.is_meeting) {
      Instruction converge;
      converge.op = &OpConverge;
      function.instructions.push_back(converge);
      function.sources.push_back(lowering.sources[lowering.instructions[block.begin].source]);
    }
    for (uint32_t k = block.begin; k < block.end; ++k) {
      const LoweredInstruction& lowered = lowering.instructions[k];
      Instruction i = lowered.i;
      for (uint32_t* operand : {&i.d, &i.e, &i.a, &i.b, &i.c, &i.f}) *operand = resolve(*operand);
      if (!lowered.list.empty()) {
        auto& list = function.lists.emplace_back(std::make_unique<uint32_t[]>(lowered.list.size()));
        std::transform(lowered.list.begin(), lowered.list.end(), list.get(), resolve);
        i.list = list.get();
      } else if (!lowered.numbers.empty()) {
        auto& list = function.lists.emplace_back(std::make_unique<uint32_t[]>(lowered.numbers.size()));
        std::copy(lowered.numbers.begin(), lowered.numbers.end(), list.get());
        i.list = list.get();
      }
      function.instructions.push_back(i);
      function.sources.push_back(lowering.sources[lowered.source]);
    }
  }
  auto start_of_label = [&](int32_t label) -> const Instruction* {
    uint32_t block = flow.block_of[static_cast<size_t>(lowering.label_positions[label])];
    return function.instructions.data() + block_start[block];
  };
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    const BasicBlock& block = flow.blocks[b];
    uint32_t last = block_start[b] + (block.is_meeting ? 1 : 0) + (block.end - block.begin) - 1;
    const LoweredInstruction& lowered = lowering.instructions[block.end - 1];
    Instruction& i = function.instructions[last];
    const Instruction* meeting =
        block.meeting < 0 ? nullptr : function.instructions.data() + block_start[static_cast<size_t>(block.meeting)];
    if (lowered.label >= 0) {
      i.target = start_of_label(lowered.label);
      i.imm = reinterpret_cast<intptr_t>(meeting);
    } else if (!lowered.labels.empty()) {
      // Targets of brx.idx: an array of Instruction pointers, kept as a list of words.
      auto& list = function.lists.emplace_back(std::make_unique<uint32_t[]>(lowered.labels.size() * 2));
      for (size_t k = 0; k < lowered.labels.size(); ++k) {
        const Instruction* target = start_of_label(lowered.labels[k]);
        std::memcpy(list.get() + 2 * k, &target, sizeof target);
      }
      i.list = list.get();
      i.y = static_cast<uint32_t>(lowered.labels.size());
      i.imm = reinterpret_cast<intptr_t>(meeting);
    } else if (lowered.rejoins_next) {
      i.imm = reinterpret_cast<intptr_t>(meeting);
    }
  }
  function.frame_bytes = slots.frame_bytes;
  function.local_bytes = (lowering.local_bytes + 15) / 16 * 16;
  function.parameter_stride_bytes = (lowering.parameter_bytes + 15) / 16 * 16;
  function.parameters = lowering.parameters;
  function.returns = lowering.returns;
  return OkStatus();
}

}  // namespace tally::sim_driver
