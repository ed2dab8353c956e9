// Control flow, dominance, loops, barriers and uniformity of small kernels.
#include <gmock/gmock.h>

#include "ptx-transforms/analysis/barrier_sites.h"
#include "ptx-transforms/analysis/block_exits.h"
#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/analysis/leaving_lanes.h"
#include "ptx-transforms/analysis/loops.h"
#include "ptx-transforms/analysis/spin_loops.h"
#include "ptx-transforms/analysis/uniformity.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A kernel and what is known about its flow.
struct Kernel {
  explicit Kernel(std::string_view statements)
      : module(
            MustParse(InKernel(".reg .pred %p<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<9>;\n" + std::string(statements)))),
        body(*module.FindFunction("kernel")),
        flow(body) {}

  Module module;
  LinearBody body;
  ControlFlow flow;
};

TEST(LinearBody, ResolvesNamesInTheirScopes) {
  const Kernel kernel(
      "mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 2; } mov.u32 %r2, %r1; { .reg .b32 t; mov.u32 t, 3; }");
  ASSERT_EQ(kernel.body.size(), 4u);
  const RegisterId outer = kernel.body[0].defines[0];
  EXPECT_NE(kernel.body[1].defines[0], outer);
  EXPECT_THAT(kernel.body[2].uses, ElementsAre(outer));
  EXPECT_THAT(kernel.body.unresolved(), IsEmpty());
}

TEST(LinearBody, ARangeEndsBeforeItsNumber) {
  EXPECT_THAT(Kernel("mov.u32 %r18, 1;").body.unresolved(), IsEmpty());
  EXPECT_THAT(Kernel("mov.u32 %r19, 1;").body.unresolved(), ElementsAre("%r19"));
}

TEST(LinearBody, OneComponentIsWrittenAndTheOthersStay) {
  const Kernel kernel(".reg .v4 .b32 %v; mov.b32 %v.x, 1; mov.b32 %v.w, 1;");
  EXPECT_THAT(kernel.body[0].uses, ElementsAre(kernel.body[0].defines[0]));
  EXPECT_THAT(kernel.body[1].uses, ElementsAre(kernel.body[1].defines[0]));
}

TEST(LinearBody, KnowsWhatIsWrittenAndRead) {
  const Kernel kernel(
      "ld.global.v2.u32 {%r1, %r2}, [%rd1]; st.global.u32 [%rd1], %r1; @%p1 mov.u32 %r3, 1; add.cc.u32 %r4, %r1, %r2;"
      "addc.u32 %r5, %r1, %r2; bar.sync %r1; setp.eq.u32 %p1|%p2, %r1, 0;");
  EXPECT_EQ(kernel.body[0].defines.size(), 2u);
  EXPECT_EQ(kernel.body[0].uses.size(), 1u);
  EXPECT_TRUE(kernel.body[1].defines.empty());
  EXPECT_EQ(kernel.body[1].uses.size(), 2u);
  EXPECT_EQ(kernel.body[2].uses.size(), 2u) << "its guard, and the value that may stay";
  EXPECT_THAT(kernel.body[3].defines, ::testing::Contains(kCarryRegister));
  EXPECT_THAT(kernel.body[4].uses, ::testing::Contains(kCarryRegister));
  EXPECT_TRUE(kernel.body[5].defines.empty());
  EXPECT_EQ(kernel.body[6].defines.size(), 2u);
}

TEST(ControlFlow, EndsBlocksAtBranchesAndLabels) {
  // 0: test; 1: fall through; 2: M; 3: exit
  const Kernel kernel("setp.eq.u32 %p1, %r1, 0; @%p1 bra M; mov.u32 %r1, 1; M: ret;");
  ASSERT_EQ(kernel.flow.blocks().size(), 4u);
  EXPECT_THAT(kernel.flow.block(0).successors, ElementsAre(2, 1));
  EXPECT_THAT(kernel.flow.block(1).successors, ElementsAre(2));
  EXPECT_THAT(kernel.flow.block(2).successors, ElementsAre(3));
  EXPECT_EQ(kernel.flow.exit_block(), 3u);
}

TEST(ControlFlow, FollowsEveryFormOfLeaving) {
  const Kernel kernel("@%p1 exit; @%p2 trap; brx.idx %r1, T; T: .branchtargets A, B; A: ret; B: mov.u32 %r1, 1;");
  EXPECT_THAT(kernel.flow.block(0).successors, ElementsAre(kernel.flow.exit_block(), 1));
  EXPECT_THAT(kernel.flow.block(1).successors, ElementsAre(2)) << "a trap leads nowhere";
  EXPECT_THAT(kernel.flow.block(2).successors, ElementsAre(3, 4));
  EXPECT_THAT(kernel.flow.block(4).successors, ElementsAre(kernel.flow.exit_block())) << "runs off the end";
  EXPECT_EQ(Kernel("").flow.exit_block(), 0u);
}

TEST(DominatorTree, OfALoopWithABranch) {
  // 0 -> 1 head -> 2 | 3 -> 4 latch -> 1 | 5 ret -> 6 exit
  const Kernel kernel("mov.u32 %r1, 0; H: @%p1 bra A; mov.u32 %r2, 1; bra B; A: mov.u32 %r2, 2; B: @%p2 bra H; ret;");
  const DominatorTree forward(kernel.flow, DominatorTree::Direction::kForward);
  EXPECT_EQ(forward.parent(4), 1u);
  EXPECT_TRUE(forward.Dominates(0, 5));
  EXPECT_FALSE(forward.Dominates(2, 4));
  const DominatorTree backward(kernel.flow, DominatorTree::Direction::kBackward);
  EXPECT_TRUE(backward.Dominates(4, 1));
  EXPECT_FALSE(backward.Dominates(3, 1));
  const auto controllers = ControlDependences(kernel.flow, backward);
  EXPECT_THAT(controllers[2], ElementsAre(1));
  EXPECT_THAT(controllers[1], ElementsAre(4));
  EXPECT_THAT(controllers[5], IsEmpty());
  const Loops loops = FindLoops(kernel.flow, forward);
  ASSERT_EQ(loops.loops.size(), 1u);
  EXPECT_THAT(loops.loops[0].blocks, ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(loops.is_irreducible);
}

TEST(Loops, WithTwoEntriesAreSeen) {
  const Kernel kernel("@%p1 bra B; A: mov.u32 %r1, 1; B: @%p2 bra A; ret;");
  const DominatorTree forward(kernel.flow, DominatorTree::Direction::kForward);
  EXPECT_TRUE(FindLoops(kernel.flow, forward).is_irreducible);
}

TEST(BarrierSites, AreToldApart) {
  const auto site = [](std::string_view text) {
    const Kernel kernel(text);
    return BarrierSiteOf(*kernel.body[0].instruction);
  };
  EXPECT_TRUE(site("bar.sync 0;")->is_for_all());
  EXPECT_TRUE(site("bar.sync 0;")->is_aligned);
  EXPECT_FALSE(site("barrier.sync 0;")->is_aligned);
  EXPECT_TRUE(site("barrier.cta.sync.aligned 15;")->is_aligned);
  EXPECT_EQ(site("barrier.cta.sync.aligned 15;")->id, 15u);
  EXPECT_FALSE(site("bar.sync 3, 64;")->is_for_all());
  EXPECT_EQ(site("bar.sync %r1;")->id, std::nullopt);
  EXPECT_EQ(site("bar.arrive 1, 64;")->kind, BarrierSite::Kind::kArrive);
  EXPECT_EQ(site("bar.warp.sync -1;")->kind, BarrierSite::Kind::kWarp);
  EXPECT_EQ(site("barrier.cluster.wait;")->kind, BarrierSite::Kind::kCluster);
  EXPECT_EQ(site("bar.red.and.pred %p1, 0, %p2;")->reduction, BarrierSite::Reduction::kAnd);
  EXPECT_TRUE(site("barrier.red.popc.u32 %r1, 0, %p2;")->is_for_all());
  EXPECT_FALSE(site("barrier.red.popc.u32 %r1, 0, 64, !%p2;")->is_for_all());
  EXPECT_EQ(site("membar.gl;"), std::nullopt);
}

// Of the last definition in a kernel.
Variance VarianceOfLast(std::string_view statements, bool warps_are_rows = false) {
  const Kernel kernel(statements);
  const Uniformity uniformity(kernel.flow, {.warps_are_rows = warps_are_rows});
  return uniformity.OfRegister(kernel.body[kernel.body.size() - 1].defines[0]);
}

TEST(Uniformity, OfValues) {
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, %ntid.x, 3;"), Variance::kBlock);
  EXPECT_EQ(VarianceOfLast("ld.param.u64 %rd1, [p];"), Variance::kBlock);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1;"), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1];"), Variance::kWarp) << "may change";
  EXPECT_EQ(VarianceOfLast("ld.param.u64 %rd1, [p]; ld.volatile.global.u32 %r1, [%rd1];"), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("ld.param.u64 %rd1, [p]; ld.u32 %r1, [%rd1];"), Variance::kThread) << "may be local";
  EXPECT_EQ(VarianceOfLast("mov.u32 %r2, %tid.x; ld.shared.u32 %r1, [%r2];"), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("ld.param.u64 %rd1, [p]; ld.global.nc.u32 %r1, [%rd1];"), Variance::kBlock);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; bar.red.or.pred %p2, 0, %p1;"),
            Variance::kBlock);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; add.cc.u32 %r2, %r1, 1; addc.u32 %r3, 0, 0;"), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("frob.u32 %r1, 1;"), Variance::kThread);
}

TEST(Uniformity, OfWarps) {
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; add.u32 %r3, %r2, 1;", true), Variance::kWarp);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 4;", true), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5;", false), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 64;", true), Variance::kWarp);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 63;", true), Variance::kThread);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; setp.le.u32 %p1, %r1, 63;", true), Variance::kWarp);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.y;", true), Variance::kWarp);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r1, %tid.x; mov.u32 %r1, 7; shr.u32 %r2, %r1, 5;", true), Variance::kThread)
      << "the register holds something else too";
}

TEST(Uniformity, OfWhatBranchesDecide) {
  const std::string test = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; ";
  EXPECT_EQ(VarianceOfLast(test + "mov.u32 %r2, 1; @%p1 bra M; mov.u32 %r2, 2; M: mov.u32 %r3, %r2;"),
            Variance::kThread);
  EXPECT_EQ(VarianceOfLast(test + "@%p1 mov.u32 %r2, 2; mov.u32 %r3, %r2;"), Variance::kThread);
  EXPECT_EQ(VarianceOfLast(test + "@%p1 bra M; mov.u32 %r2, 2; M: mov.u32 %r3, 5;"), Variance::kBlock);
  EXPECT_EQ(VarianceOfLast("mov.u32 %r2, 0; mov.u32 %r1, %tid.x; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1;"
                           "@%p1 bra L; mov.u32 %r3, %r2;"),
            Variance::kThread)
      << "threads leave the loop at different times";
  EXPECT_EQ(VarianceOfLast(test + "@%p1 bra M; trap; M: mov.u32 %r2, 1;"), Variance::kBlock) << "a trap ends all";
}

TEST(BlockExits, KnowWhetherBarriersAreMissed) {
  const auto misses = [](std::string_view statements) {
    const Kernel kernel(statements);
    return BlockExits(kernel.flow).may_leave_before_barrier();
  };
  const std::string test = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; ";
  EXPECT_TRUE(misses(test + "@%p1 ret; bar.sync 0; ret;"));
  EXPECT_FALSE(misses(test + "bar.sync 0; @%p1 ret; ret;"));
  EXPECT_FALSE(misses("ld.param.u64 %rd1, [p]; setp.eq.u64 %p1, %rd1, 0; @%p1 ret; bar.sync 0; ret;"));
  EXPECT_FALSE(misses(test + "@%p1 bra M; mov.u32 %r2, 1; M: bar.sync 0; ret;"));
  EXPECT_TRUE(misses(test + "@%p1 bar.sync 0; ret;"));
  EXPECT_FALSE(misses(test + "@%p1 ret; bar.sync 1, 64; ret;")) << "one with a count is not for all";
}

TEST(LeavingLanes, AreCountedWhereTheyLeave) {
  using Found = std::vector<std::pair<uint32_t, bool>>;
  const auto find = [](std::string_view statements) -> std::optional<Found> {
    const Kernel kernel(statements);
    const std::vector<uint32_t> syncs = BlockExits(kernel.flow).FindWarpSyncsAfterExit(false);
    const auto branches = FindLeavingBranches(kernel.flow, syncs, false);
    if (!branches) return std::nullopt;
    Found found;
    for (const LeavingBranch& branch : *branches) found.emplace_back(branch.instruction, branch.leaves_if_taken);
    return found;
  };
  const std::string test = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; ";
  EXPECT_EQ(find(test + "@%p1 ret; bar.warp.sync -1; ret;"), (Found{{3, true}}));
  EXPECT_EQ(find(test + "@%p1 bra M; ret; M: bar.warp.sync -1; ret;"), (Found{{3, false}}));
  EXPECT_EQ(find(test + "@%p1 ret; @!%p2 exit; bar.warp.sync -1; ret;"), (Found{{3, true}, {4, true}}));
  EXPECT_EQ(find(test + "@%p1 ret; bar.warp.sync -1; @!%p2 exit; ret;"), (Found{{3, true}})) << "nobody is named after";
  EXPECT_EQ(find("ld.param.u32 %r2, [p]; " + test +
                 "L: @%p1 ret; bar.warp.sync -1; add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 9; @%p3 bra L; ret;"),
            (Found{{4, true}}))
      << "of those that are left all go round as often";
  EXPECT_EQ(find(test + "L: bar.warp.sync -1; sub.u32 %r1, %r1, 1; setp.ne.u32 %p3, %r1, 0; @%p3 bra L; ret;"),
            (Found{{6, false}}));
  EXPECT_EQ(find(test + "@%p2 bra M; @%p1 ret; M: bar.warp.sync -1; ret;"), std::nullopt) << "not all come there";
}

TEST(SpinLoops, WaitForBlocksOrThreads) {
  const Kernel kernel("L: ld.volatile.shared.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;");
  EXPECT_FALSE(FindSpinLoop(kernel.flow));
  EXPECT_TRUE(FindSpinLoop(kernel.flow, WaitsFor::kOtherThreads));
}

TEST(Reach, FollowsCallsAndAliases) {
  const Module module = MustParse(WithHeader(
      ".extern .func vprintf;\n.extern .func other;\n.func c(){\nret;\n}\n.func b(){\ncall c;\ncall vprintf;\nret;\n}\n"
      ".alias a, b;\n.visible .entry kernel(){\ncall a;\ncall other;\nret;\n}\n"));
  const Reach reach = FindReach(module, *module.FindFunction("kernel"));
  ASSERT_EQ(reach.functions.size(), 2u);
  EXPECT_EQ(reach.functions[0]->name, "c");
  EXPECT_EQ(reach.functions[1]->name, "b");
  EXPECT_THAT(reach.unknown, ElementsAre("other"));
  EXPECT_THAT(reach.system, ElementsAre("vprintf"));
  EXPECT_FALSE(reach.is_recursive);
}

}  // namespace
}  // namespace tally::ptx_transforms
