// Branches and the coming together of lanes; exit, ret, trap.
#include <cstring>

#include "sim-driver/engine/barrier.h"
#include "sim-driver/engine/frames.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"

namespace tally::sim_driver {

Record* NewRecord(Warp& w) {
  if (w.free_records.empty()) return &w.records.emplace_back();
  Record* record = w.free_records.back();
  w.free_records.pop_back();
  return record;
}

void FreeRecord(Warp& w, Record* record) {
  *record = Record();
  w.free_records.push_back(record);
}

void SplitWarp(Warp& w, uint32_t other, const Instruction* other_pc, const Instruction* meeting) {
  w.CountInstructions();
  if (meeting != nullptr && (w.record == nullptr || w.record->pc != meeting || w.record->frame != w.frame)) {
    Record* record = NewRecord(w);
    record->expected = w.mask;
    record->pc = meeting;
    record->frame = w.frame;
    record->parent = w.record;
    w.record = record;
  }
  w.mask &= ~other;
  if (other_pc == meeting && meeting != nullptr) {
    w.record->arrived |= other;
  } else {
    w.splits.push_back({.mask = other, .pc = other_pc, .frame = w.frame, .record = w.record});
  }
}

void OpBranch(Warp& w, const Instruction& i) { w.pc = static_cast<const Instruction*>(i.target); }

void OpBranchConditional(Warp& w, const Instruction& i) {
  uint32_t taken = (SourcePredicate(w, i.a) ^ i.x) & w.mask;
  if (taken == 0) return;
  const auto* target = static_cast<const Instruction*>(i.target);
  if (taken == w.mask) {
    w.pc = target;
    return;
  }
  const auto* meeting = reinterpret_cast<const Instruction*>(i.imm);
  if (w.pc == meeting) {  // no else: keep running the taken side
    uint32_t waiting = w.mask & ~taken;
    SplitWarp(w, waiting, w.pc, meeting);
    w.pc = target;
  } else {
    SplitWarp(w, taken, target, meeting);
  }
}

namespace {

// The running split has arrived at `record`: it goes on with those that wait there, or waits.
void Arrive(Warp& w, Record* record) {
  w.CountInstructions();
  record->arrived |= w.mask;
  if (record->arrived != record->expected) return w.Stop(StopReason::kGone);
  w.mask = record->arrived;
  w.pc = record->pc;
  w.record = record->parent;
  w.unmerged_instructions = 0;
  if (w.frame != record->frame) w.SetFrame(record->frame);
  FreeRecord(w, record);
}

}  // namespace

void OpConverge(Warp& w, const Instruction& i) {
  if (w.record == nullptr || w.record->pc != &i || w.record->frame != w.frame) return;
  Arrive(w, w.record);
  // Those that waited for this point on the way to an outer record with the same place pass here again.
  if (w.stop == StopReason::kNone && w.pc == &i) ++w.pc;
}

void OpGuard(Warp& w, const Instruction& i) {
  uint32_t mask = (SourcePredicate(w, i.a) ^ i.x) & w.mask;
  const Instruction& next = *w.pc++;
  if (mask == 0) return;
  uint32_t saved = w.mask;
  w.mask = mask;
  next.op(w, next);
  w.mask = saved;
}

void OpEndOfFunction(Warp& w, const Instruction& i) {
  // Kernels may end without ret.
  if (w.frame->function->is_kernel) return OpExit(w, i);
  RaiseFault(w, i, kLanes, kFaultIllegalInstruction, "control reached the end of a function without ret");
}

void LeaveRecords(Warp& w, uint32_t lanes, Record* from, const Record* until) {
  for (Record* record = from; record != nullptr && record != until;) {
    Record* parent = record->parent;
    record->expected &= ~lanes;
    if (record->expected == 0) {
      FreeRecord(w, record);
    } else if (record->arrived == record->expected) {
      w.splits.push_back({.mask = record->arrived, .pc = record->pc, .frame = record->frame, .record = parent});
      // pc is the meeting point's OpConverge (does nothing for these: their record is the parent now) or, of a call,
      // the instruction after it.
      FreeRecord(w, record);
    }
    record = parent;
  }
}

void ExitLanes(Warp& w, uint32_t lanes, Frame* frame, Record* record) {
  LeaveRecords(w, lanes, record, nullptr);
  for (Frame* f = frame; f != nullptr;) {
    Frame* parent = f->parent;
    f->live &= ~lanes;
    if (f->live == 0 && parent != nullptr) ReleaseFrame(w, f);
    f = parent;
  }
  w.live &= ~lanes;
  w.block->live_threads -= static_cast<uint32_t>(std::popcount(lanes));
}

void OpExit(Warp& w, const Instruction&) {
  w.CountInstructions();
  Frame* frame = w.frame;
  ExitLanes(w, w.mask, frame, w.record);
  w.Stop(StopReason::kGone);
  WakeWarpSync(w);
  OnThreadsExited(*w.block);
}

namespace {

void OpReturn(Warp& w, const Instruction& i) {
  Frame* frame = w.frame;
  if (frame->parent == nullptr) return OpExit(w, i);
  CopyReturnValues(w, frame, w.mask);
  Record* back = frame->call_record;
  LeaveRecords(w, w.mask, w.record, back);
  frame->live &= ~w.mask;
  bool is_last = frame->live == 0;
  Arrive(w, back);
  if (is_last) ReleaseFrame(w, frame);
}

void OpTrap(Warp& w, const Instruction& i) { RaiseFault(w, i, kLanes, kFaultLaunchFailed, "trap"); }
void OpBreakpoint(Warp& w, const Instruction& i) {
  RaiseFault(w, i, kLanes, kFaultIllegalInstruction, "brkpt without a debugger");
}

// brx.idx: a = index, list = targets, y = how many.
void OpBranchIndexed(Warp& w, const Instruction& i) {
  const uint32_t* index = Source<uint32_t>(w, i.a);
  uint32_t first = index[std::countr_zero(w.mask)];
  uint32_t same = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    uint32_t lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (index[lane] == first) same |= 1u << lane;
  }
  if (first >= i.y)
    return RaiseFault(w, i, static_cast<uint32_t>(std::countr_zero(w.mask)), kFaultInvalidPc,
                      "brx.idx index outside its list of targets");
  const Instruction* target = nullptr;
  std::memcpy(&target, i.list + 2 * first, sizeof target);
  if (same != w.mask) SplitWarp(w, w.mask & ~same, &i, reinterpret_cast<const Instruction*>(i.imm));
  w.pc = target;
}

bool DecodeBranch(Lowering& l) { return l.Invalid("bra needs a label"); }

bool DecodeBranchIndexed(Lowering& l) {
  if (l.Modifier(0) != "idx") return false;
  const ptx::TargetList* targets = l.FindTargets(l.operand(1).name);
  if (targets == nullptr || targets->targets.empty()) return l.Invalid("brx.idx needs a list of branch targets");
  VirtualOperand index = l.Use(0, ScalarType::kU32);
  LoweredInstruction& branch = l.Emit(&OpBranchIndexed, kNoOperand, index);
  for (std::string_view name : targets->targets) {
    int32_t label = l.LabelNamed(name);
    if (label < 0) return false;
    branch.labels.push_back(label);
  }
  branch.ends_block = true;
  return true;
}

template <OpFunction kOp>
bool DecodeEnding(Lowering& l) {
  l.Emit(kOp).ends_block = true;
  return true;
}

bool DecodeReturn(Lowering& l) {
  for (size_t k = 0; k < l.register_returns().size(); ++k) {
    VirtualOperand value = l.register_returns()[k];
    EmitFrameParameterStore(l, value, l.returns[k].offset_bytes, l.classes[value & ~kTagMask]);
  }
  l.Emit(&OpReturn).ends_block = true;
  return true;
}

bool DecodeNothing(Lowering&) { return true; }

}  // namespace

void AddControlOpcodes(OpcodeTable& table) {
  table["bra"] = {&DecodeBranch, true};
  table["brx"] = {&DecodeBranchIndexed, true};
  table["exit"] = {&DecodeEnding<&OpExit>, true};
  table["ret"] = {&DecodeReturn, true};
  table["trap"] = {&DecodeEnding<&OpTrap>, true};
  table["brkpt"] = {&DecodeEnding<&OpBreakpoint>, true};
  // Hints, and what orders memory more weakly than this machine does by itself.
  for (const char* name :
       {"griddepcontrol", "prefetch", "prefetchu", "applypriority", "discard", "pmevent", "createpolicy"})
    table[name] = {&DecodeNothing, false};
}

}  // namespace tally::sim_driver
