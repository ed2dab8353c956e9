// Speed of the engine: PTX instructions of one thread per second ("thread_instructions/s"), and what a launch costs.
#include <benchmark/benchmark.h>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

std::string LoopText(const std::string& body) {
  return PtxHeader() +
         ".visible .entry k(.param .u64 p, .param .u32 n){.reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg "
         ".f64 %fd<9>; .reg .pred %p<5>; .shared .align 4 .b8 s[4096];\n" +
         "ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; mov.u32 %r2,%tid.x; mov.u32 %r3,0; mov.f32 %f1,0f3F800000; "
         "mov.f32 %f2,0f3F000000; mul.wide.u32 %rd2,%r2,4; add.u64 %rd3,%rd1,%rd2; mov.u32 %r9,s; shl.b32 %r8,%r2,2; "
         "add.u32 %r9,%r9,%r8;\n" +
         "L:\n" + body +
         "\nadd.u32 %r3,%r3,1; setp.lt.u32 %p1,%r3,%r1; @%p1 bra L; st.global.f32 [%rd3],%f1; st.global.u32 "
         "[%rd3],%r4; ret;}";
}

void RunLoop(benchmark::State& state, const std::string& body, uint32_t threads = 256) {
  Launcher launcher({.num_workers = 1});
  auto program = launcher.Load({LoopText(body)});
  uint64_t buffer = launcher.Upload(std::vector<uint32_t>(4096));
  uint64_t before = launcher.machine().counters().thread_instructions;
  for (auto _ : state) {
    auto fault = launcher.Run(launcher.Request(program, "k", {8}, {threads}, buffer, uint32_t{2000}));
    if (fault) state.SkipWithError(fault->message.c_str());
  }
  uint64_t executed = launcher.machine().counters().thread_instructions - before;
  state.counters["thread_instructions/s"] =
      benchmark::Counter(static_cast<double>(executed), benchmark::Counter::kIsRate);
}

void BM_Integer(benchmark::State& state) {
  RunLoop(state,
          "mad.lo.u32 %r4,%r3,%r2,%r4; xor.b32 %r5,%r4,%r3; shl.b32 %r6,%r5,3; add.u32 %r4,%r4,%r6; and.b32 "
          "%r7,%r4,%r5; min.s32 %r4,%r7,%r4;");
}
void BM_Float(benchmark::State& state) {
  RunLoop(state,
          "fma.rn.f32 %f1,%f1,%f2,%f2; mul.f32 %f3,%f1,%f2; add.f32 %f4,%f3,%f1; max.f32 %f5,%f4,%f3; fma.rn.f32 "
          "%f1,%f5,%f2,%f3;");
}
void BM_Double(benchmark::State& state) {
  RunLoop(state,
          "cvt.f64.f32 %fd1,%f1; fma.rn.f64 %fd2,%fd1,%fd1,%fd1; add.f64 %fd3,%fd2,%fd1; cvt.rn.f32.f64 %f3,%fd3;");
}
void BM_GlobalMemory(benchmark::State& state) {
  RunLoop(state, "ld.global.f32 %f3,[%rd3]; add.f32 %f3,%f3,%f2; st.global.f32 [%rd3],%f3;");
}
void BM_SharedMemory(benchmark::State& state) {
  RunLoop(state, "st.shared.u32 [%r9],%r4; ld.shared.u32 %r5,[%r9]; add.u32 %r4,%r5,%r3;");
}
void BM_Divergent(benchmark::State& state) {
  RunLoop(state,
          "and.b32 %r5,%r2,1; setp.eq.u32 %p2,%r5,0; @%p2 bra A; add.u32 %r4,%r4,1; xor.b32 %r4,%r4,%r3; bra.uni B; A: "
          "sub.u32 %r4,%r4,3; xor.b32 %r4,%r4,%r2; B:");
}
void BM_Barrier(benchmark::State& state) { RunLoop(state, "bar.sync 0; add.u32 %r4,%r4,1;"); }
void BM_Shuffle(benchmark::State& state) { RunLoop(state, "shfl.sync.bfly.b32 %r5,%r4,1,31,-1; add.u32 %r4,%r5,%r3;"); }
void BM_Atomic(benchmark::State& state) { RunLoop(state, "red.global.add.u32 [%rd3],1; add.u32 %r4,%r4,1;"); }

void BM_EmptyLaunch(benchmark::State& state) {
  Launcher launcher;
  auto program = launcher.Load({PtxHeader() + ".visible .entry k(){ret;}"});
  for (auto _ : state) launcher.Run(launcher.Request(program, "k", {1}, {32}));
}
void BM_SmallBlocks(benchmark::State& state) {
  Launcher launcher({.num_workers = 1});
  auto program = launcher.Load(
      {PtxHeader() + ".visible .entry k(){.reg .b32 %r<3>; mov.u32 %r1,%tid.x; add.u32 %r2,%r1,1; ret;}"});
  for (auto _ : state) launcher.Run(launcher.Request(program, "k", {10000}, {64}));
  state.SetItemsProcessed(state.iterations() * 10000);
}

BENCHMARK(BM_Integer)->UseRealTime();
BENCHMARK(BM_Float)->UseRealTime();
BENCHMARK(BM_Double)->UseRealTime();
BENCHMARK(BM_GlobalMemory)->UseRealTime();
BENCHMARK(BM_SharedMemory)->UseRealTime();
BENCHMARK(BM_Divergent)->UseRealTime();
BENCHMARK(BM_Barrier)->UseRealTime();
BENCHMARK(BM_Shuffle)->UseRealTime();
BENCHMARK(BM_Atomic)->UseRealTime();
BENCHMARK(BM_EmptyLaunch)->UseRealTime();
BENCHMARK(BM_SmallBlocks)->UseRealTime();

}  // namespace
}  // namespace tally::sim_driver
