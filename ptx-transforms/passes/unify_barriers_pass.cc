#include "ptx-transforms/passes/unify_barriers_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ptx-transforms/analysis/block_exits.h"
#include "ptx-transforms/analysis/leaving_lanes.h"
#include "ptx-transforms/analysis/spin_loops.h"
#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/open_block.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

constexpr FeatureRule kRules[] = {
    {Feature::kBarrierArrive, "barrier-arrive",
     "arrives at a barrier without waiting, which the next round could meet"},
    {Feature::kExitInFunction, "exit-in-function", "a function that it calls ends the thread"},
};

class UnifyBarriersPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;
};

// How the barriers for all of a kernel are rewritten.
enum class Unification : uint8_t {
  kNone,      // they stay
  kSync,      // all threads meet at one barrier.red.or
  kReducing,  // at two, as some return a value
};

std::optional<Refusal> CheckCallees(const Variant& variant) {
  for (const Function* function : variant.reach.functions) {
    const Instruction* barrier = nullptr;
    VisitInstructions(function->body, [&](const Statement&, const Instruction& instruction) {
      if (instruction.opcode == "bar" || instruction.opcode == "barrier" || instruction.opcode == "shfl" ||
          instruction.opcode == "vote" || instruction.opcode == "match" || instruction.opcode == "redux" ||
          instruction.opcode == "elect")
        barrier = &instruction;
    });
    if (barrier != nullptr)
      return Refusal{"function-barrier", fmt::format("calls {}, in which threads wait for one another ({})",
                                                     function->name, PrintInstruction(*barrier))};
  }
  return std::nullopt;
}

std::string PlaceOf(const LinearBody& body, uint32_t index) {
  return fmt::format("{} at {}", PrintInstruction(*body[index].instruction),
                     body[index].statement->span.position.ToString());
}

// What must change so that lanes which wait at the end are not missed by the warp operations of the others.
struct LaneCounts {
  // Where lanes leave, those that stay are counted: the branch, and whether it is taken by those who leave.
  std::unordered_map<const Statement*, bool> branches;
  std::unordered_set<const Statement*> syncs;  // must name no others than those
};

// Takes a mask of lanes that it waits for, and gives the same result if lanes that are not there are not named.
bool MayNameFewerLanes(const Instruction& instruction) {
  if (instruction.operands.empty() || !instruction.HasModifier("sync")) return false;
  const auto site = BarrierSiteOf(instruction);
  return site ? site->kind == BarrierSite::Kind::kWarp : instruction.opcode != "elect";
}

bool MayCountLanes(const Variant& variant) {
  // Before, all lanes of a warp run in step.
  if (!IsForTarget(variant.module, 70)) return false;
  // What lanes could wait for before they are counted, and what cannot be looked at for that.
  for (const Feature feature : {Feature::kMbarrier, Feature::kCluster, Feature::kIndirectCall, Feature::kUnknownCallee})
    if (variant.features.Has(feature)) return false;
  return std::none_of(variant.reach.functions.begin(), variant.reach.functions.end(), [](const Function* function) {
    const LinearBody body(*function);
    return FindSpinLoop(ControlFlow(body), WaitsFor::kOtherThreads).has_value();
  });
}

std::optional<Refusal> PlanWarpSyncs(Variant& variant, const ControlFlow& flow, const BlockExits& exits,
                                     LaneCounts& counts) {
  const LinearBody& body = flow.body();
  const std::vector<uint32_t> syncs = exits.FindWarpSyncsAfterExit(false);
  if (syncs.empty()) return std::nullopt;
  const std::vector<uint32_t> syncs_of_rows = exits.FindWarpSyncsAfterExit(true);
  if (syncs_of_rows.empty()) {
    variant.needs_warp_rows = true;
    return std::nullopt;
  }
  if (MayCountLanes(variant)) {
    for (const bool warps_are_rows : {false, true}) {
      const std::vector<uint32_t>& named = warps_are_rows ? syncs_of_rows : syncs;
      if (!std::all_of(named.begin(), named.end(), [&](uint32_t i) { return MayNameFewerLanes(*body[i].instruction); }))
        continue;
      std::optional<std::vector<LeavingBranch>> branches = FindLeavingBranches(flow, named, warps_are_rows);
      if (!branches) continue;
      for (const LeavingBranch& branch : *branches)
        counts.branches.emplace(body[branch.instruction].statement, branch.leaves_if_taken);
      for (const uint32_t sync : named) counts.syncs.insert(body[sync].statement);
      variant.needs_warp_rows |= warps_are_rows;
      return std::nullopt;
    }
  }
  return Refusal{"warp-sync-after-exit", fmt::format("lanes may have left their warp when others come to {}",
                                                     PlaceOf(body, syncs_of_rows.front()))};
}

// In front of a branch: those that stay. All lanes that are left come here, and whoever leaves has done what the others
// may find in memory.
std::vector<Statement> CountedLanes(const Variant& variant, const Guard& guard, bool leaves_if_taken) {
  const std::string lanes = variant.Register("lanes");
  const bool stays_if_false = leaves_if_taken != guard.is_negated;
  return ParseSnippet(variant.module,
                      fmt::format("bar.warp.sync {0};\nvote.sync.ballot.b32 {0}, {1}{2}, {0};\n", lanes,
                                  stays_if_false ? "!" : "", guard.predicate),
                      {guard.predicate});
}

// A barrier that the kernel uses in no way that could mix with all threads meeting there; nothing if there is none.
std::optional<uint32_t> ChooseBarrier(const std::vector<PlacedBarrier>& barriers) {
  bool is_used[16] = {};
  for (const PlacedBarrier& barrier : barriers) {
    if (!barrier.site.id) return std::nullopt;
    if (barrier.site.has_count || !barrier.site.is_for_all()) is_used[*barrier.site.id] = true;
  }
  for (uint32_t id = 0; id < 16; ++id)
    if (!is_used[id]) return id;
  return std::nullopt;
}

std::optional<Refusal> Plan(const LinearBody& body, const BlockExits& exits, Unification& unification,
                            uint32_t& barrier_id) {
  unification = Unification::kNone;
  if (!exits.may_leave_before_barrier()) {
    const std::optional<uint32_t> id = ChooseBarrier(exits.barriers());
    if (!id)
      return Refusal{"barrier-identifiers", "names its barriers by register, or uses all sixteen with thread counts"};
    barrier_id = *id;
    return std::nullopt;
  }
  std::optional<uint32_t> id;
  unification = Unification::kSync;
  for (const PlacedBarrier& barrier : exits.barriers()) {
    if (!barrier.site.id)
      return Refusal{"barrier-register", fmt::format("threads may leave early, and {} names its barrier by register",
                                                     PlaceOf(body, barrier.instruction))};
    if (!barrier.site.is_for_all()) continue;
    if (id && *id != *barrier.site.id)
      return Refusal{"several-barriers",
                     fmt::format("threads may leave early, and {} is for all threads as is barrier {}",
                                 PlaceOf(body, barrier.instruction), *id)};
    id = barrier.site.id;
    if (barrier.site.kind == BarrierSite::Kind::kReduce) unification = Unification::kReducing;
  }
  for (const PlacedBarrier& barrier : exits.barriers())
    if (!barrier.site.is_for_all() && *barrier.site.id == *id)
      return Refusal{"barrier-with-count", fmt::format("threads may leave early, and {} waits for some threads at a "
                                                       "barrier that is elsewhere for all",
                                                       PlaceOf(body, barrier.instruction))};
  barrier_id = *id;
  return std::nullopt;
}

// The code that takes the place of one barrier for all: goes to where all threads of the block meet, and comes back as
// number `number`.
std::string UnifiedBarrier(const Variant& variant, const Guard& guard, const BarrierSite& site, Unification unification,
                           uint32_t number) {
  const bool reduces = site.kind == BarrierSite::Kind::kReduce;
  const std::string back = variant.Label(fmt::format("back{}", number));
  const std::string past = variant.Label(fmt::format("past{}", number));
  const std::string counts = variant.Register("counts");
  std::string text;
  if (guard.is_present()) text += fmt::format("@{}{} bra {};\n", guard.is_negated ? "" : "!", guard.predicate, past);
  // All reductions become counts of those inside, to which threads at the end add nothing.
  if (reduces) {
    const bool is_inverted = site.predicate->negated != (site.reduction == BarrierSite::Reduction::kAnd);
    text += fmt::format("{}.pred {}, {};\n", is_inverted ? "not" : "mov", counts, site.predicate->name);
  } else if (unification == Unification::kReducing) {
    text += fmt::format("mov.pred {}, 0;\n", counts);
  }
  text +=
      fmt::format("mov.u32 {}, {};\nbra {};\n{}:\n", variant.Register("place"), number, variant.Label("meet"), back);
  if (reduces) {
    const std::string result = PrintOperand(*site.result), count = variant.Register("count");
    switch (site.reduction) {
      case BarrierSite::Reduction::kPopc:
        text += fmt::format("mov.u32 {}, {};\n", result, count);
        break;
      case BarrierSite::Reduction::kAnd:
        text += fmt::format("setp.eq.u32 {}, {}, 0;\n", result, count);
        break;
      default:
        text += fmt::format("setp.ne.u32 {}, {}, 0;\n", result, count);
    }
  }
  if (guard.is_present()) text += past + ":\n";
  return text;
}

void SetGuard(std::vector<Statement>& statements, const Guard& guard) {
  if (!guard.is_present()) return;
  for (Statement& statement : statements)
    if (auto* instruction = std::get_if<Instruction>(&statement.node)) instruction->guard = guard;
}

// Of the lanes that an operation names, only those that are left.
void NameLanesThatAreLeft(const Variant& variant, Statement& statement, std::vector<Statement>& out) {
  auto& instruction = std::get<Instruction>(statement.node);
  std::vector<Operand> operands(instruction.operands.begin(), instruction.operands.end());
  Operand& mask = operands.back();
  std::string named = variant.Register("lanes");
  const bool names_all = mask.kind == OperandKind::kInteger && static_cast<uint32_t>(mask.bits) == ~uint32_t{0};
  if (!names_all) {
    const bool is_register = mask.kind == OperandKind::kRegister;
    std::vector<Statement> narrowed = ParseSnippet(
        variant.module, fmt::format("and.b32 {}, {}, {};", variant.Register("members"), PrintOperand(mask), named),
        {is_register ? mask.name : std::string_view()});
    SetGuard(narrowed, instruction.guard);
    Append(out, std::move(narrowed));
    named = variant.Register("members");
  }
  mask = Operand{.kind = OperandKind::kRegister, .name = variant.module.arena().Keep(named)};
  instruction.operands = variant.module.arena().Copy(std::span<const Operand>(operands));
  statement.edited = true;
  out.push_back(std::move(statement));
}

using Sites = std::unordered_map<const Statement*, BarrierSite>;

bool HoldsSite(const Block& block, const Sites& sites) {
  return std::any_of(block.statements.begin(), block.statements.end(), [&](const Statement& statement) {
    const auto* inner = std::get_if<Block>(&statement.node);
    return sites.contains(&statement) || (inner != nullptr && HoldsSite(*inner, sites));
  });
}

// Threads come back to barriers from outside of the blocks of statements in which they stand: those are opened.
std::optional<Refusal> FindBlocksToOpen(const Variant& variant, const Sites& sites,
                                        std::unordered_set<const Statement*>& opened) {
  for (const Statement& statement : variant.kernel.body) {
    const auto* block = std::get_if<Block>(&statement.node);
    if (block == nullptr || !HoldsSite(*block, sites)) continue;
    if (!CanOpenBlock(*block))
      return Refusal{"barrier-in-scope",
                     fmt::format("threads may leave early, and the barrier inside {{ }} at {} has labels, variables or "
                                 "further braces beside it",
                                 statement.span.position.ToString())};
    opened.insert(&statement);
  }
  return std::nullopt;
}

// Returns how many barriers have become places from which threads go to meet.
uint32_t Rewrite(Variant& variant, const Sites& sites, const std::unordered_set<const Statement*>& opened,
                 Unification unification, const LaneCounts& counts) {
  const std::string end = variant.Label("end");
  uint32_t num_places = 0, num_opened = 0;
  EditStatements(variant.kernel.body, [&](Statement& statement, std::vector<Statement>& out) {
    const auto* instruction = std::get_if<Instruction>(&statement.node);
    if (const auto branch = counts.branches.find(&statement); branch != counts.branches.end())
      Append(out, CountedLanes(variant, instruction->guard, branch->second));
    if (counts.syncs.contains(&statement)) return NameLanesThatAreLeft(variant, statement, out);
    if (instruction != nullptr && IsLeave(*instruction)) {
      std::vector<Statement> branch = ParseSnippet(variant.module, fmt::format("bra {};", end));
      SetGuard(branch, instruction->guard);
      return Append(out, std::move(branch));
    }
    if (opened.contains(&statement))
      return Append(out, OpenBlock(variant, std::move(std::get<Block>(statement.node)), ++num_opened));
    const auto site = sites.find(&statement);
    if (site == sites.end()) {
      out.push_back(std::move(statement));
      return;
    }
    const bool reduces = site->second.kind == BarrierSite::Kind::kReduce;
    Append(out, ParseSnippet(variant.module,
                             UnifiedBarrier(variant, instruction->guard, site->second, unification, ++num_places),
                             {reduces ? site->second.result->name : "", reduces ? site->second.predicate->name : "",
                              instruction->guard.predicate}));
  });
  return num_places;
}

// Where all threads of the block meet: as often as some come to a barrier, and once more when all are at the end. One
// place, so that the lanes of a warp are at one instruction, wherever they came from.
std::string Meeting(const Variant& variant, Unification unification, uint32_t num_places) {
  const std::string meet = variant.Label("meet"), places = variant.Label("places"), leave = variant.Label("leave");
  const std::string place = variant.Register("place"), is_inside = variant.Register("is_inside");
  const std::string any_inside = variant.Register("any_inside"), counts = variant.Register("counts");
  std::string text = fmt::format("mov.u32 {}, 0;\n", place);
  if (unification == Unification::kReducing) text += fmt::format("mov.pred {}, 0;\n", counts);
  text += fmt::format("{}:\nsetp.ne.u32 {}, {}, 0;\n", meet, is_inside, place);
  text += fmt::format("barrier.red.or.pred {0}, {1}, {2};\n@!{0} bra {3};\n", any_inside, variant.barrier_id, is_inside,
                      leave);
  if (unification == Unification::kReducing)
    text += fmt::format("barrier.red.popc.u32 {}, {}, {};\n", variant.Register("count"), variant.barrier_id, counts);
  text += fmt::format("{}: .branchtargets {}", places, meet);
  for (uint32_t number = 1; number <= num_places; ++number)
    text += fmt::format(", {}", variant.Label(fmt::format("back{}", number)));
  return text + fmt::format(";\nbrx.idx {}, {};\n{}:\n", place, places, leave);
}

std::string EndOfBlock(const Variant& variant, const Features& features, Unification unification, uint32_t num_places) {
  std::string text = fmt::format("{}:\n", variant.Label("end"));
  // What the thread has started must not write into the next block's memory.
  if (features.Has(Feature::kAsyncCopy)) text += "cp.async.wait_all;\n";
  if (features.Has(Feature::kBulkCopy)) text += "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
  text += unification == Unification::kNone ? fmt::format("barrier.sync {};\n", variant.barrier_id)
                                            : Meeting(variant, unification, num_places);
  return text + "ret;\n";
}

std::optional<Refusal> UnifyBarriersPass::Run(Variant& variant) {
  const Features& features = variant.features;
  if (auto refusal = CheckUnderstood(variant, features)) return refusal;
  if (auto refusal = CheckFeatures(features, kRules)) return refusal;
  if (auto refusal = CheckCallees(variant)) return refusal;
  const LinearBody body(variant.kernel);
  const ControlFlow flow(body);
  const BlockExits exits(flow);
  LaneCounts counts;
  if (auto refusal = PlanWarpSyncs(variant, flow, exits, counts)) return refusal;
  Unification unification = Unification::kNone;
  if (auto refusal = Plan(body, exits, unification, variant.barrier_id)) return refusal;

  Sites sites;
  if (unification != Unification::kNone)
    for (const PlacedBarrier& barrier : exits.barriers())
      if (barrier.site.is_for_all()) sites.emplace(body[barrier.instruction].statement, barrier.site);
  std::unordered_set<const Statement*> opened;
  if (auto refusal = FindBlocksToOpen(variant, sites, opened)) return refusal;
  const uint32_t num_places = Rewrite(variant, sites, opened, unification, counts);
  if (!counts.syncs.empty())
    InsertPrologue(variant.kernel,
                   ParseSnippet(variant.module, fmt::format(".reg .b32 {0}, {1};\nmov.u32 {0}, -1;\n",
                                                            variant.Register("lanes"), variant.Register("members"))));
  if (unification != Unification::kNone) {
    std::string text = fmt::format(".reg .pred {}, {};\n.reg .b32 {};\n", variant.Register("any_inside"),
                                   variant.Register("is_inside"), variant.Register("place"));
    if (unification == Unification::kReducing)
      text += fmt::format(".reg .pred {};\n.reg .b32 {};\n", variant.Register("counts"), variant.Register("count"));
    InsertPrologue(variant.kernel, ParseSnippet(variant.module, text));
  }
  Append(variant.kernel.body, ParseSnippet(variant.module, EndOfBlock(variant, features, unification, num_places)));
  variant.has_unified_end = true;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakeUnifyBarriersPass() { return std::make_unique<UnifyBarriersPass>(); }

}  // namespace tally::ptx_transforms
