#include "server/executor/issue/launch_accesses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/server/executor/issue/listed_memory.h"

namespace tally::server {
namespace {

using ptx_transforms::SegmentClass;
using scheduler::AccessKind;
using scheduler::Extent;
using Sort = LaunchMemory::Sort;

constexpr uint64_t kAllocated = uint64_t{7} << 40;

// Threads of a block of 32 at `offset` bytes from a pointer, and one more access.
std::string TouchingKernel(const std::string& body) {
  return R"(.version 8.0
.target sm_90
.address_size 64
.global .align 4 .b8 table[64];
.visible .entry kernel(.param .u64 p, .param .u64 q, .param .u32 n, .param .u32 m)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
)" + body +
         "\n\tret;\n}\n";
}

class LaunchAccessesTest : public testing::Test {
 protected:
  LaunchAccesses Of(const std::string& body, uint64_t p, uint64_t q = 0, uint32_t n = 0, uint32_t m = 0) {
    auto module = ptx_transforms::ParseModule(TouchingKernel(body));
    EXPECT_TRUE(module) << module.error().ToString();
    const auto segments = ptx_transforms::FindSegments(*module, "kernel");
    EXPECT_TRUE(segments && segments->barriers.empty());
    std::array<std::byte, 24> parameters{};
    std::memcpy(parameters.data(), &p, 8);
    std::memcpy(parameters.data() + 8, &q, 8);
    std::memcpy(parameters.data() + 16, &n, 4);
    std::memcpy(parameters.data() + 20, &m, 4);
    answers_ = {};
    variables_.resize(segments->symbols.size());
    for (size_t k = 0; k < variables_.size(); ++k) variables_[k] = table_;
    return AccessesOf(*segments, {.grid = {1, 1, 1}, .block = {32, 1, 1}, .parameters = parameters}, memory_,
                      variables_, answers_);
  }
  static std::string BarrierOf(const LaunchAccesses& accesses) {
    EXPECT_EQ(accesses.barrier != nullptr, accesses.extent == Extent::kAnything);
    return accesses.barrier != nullptr ? accesses.barrier : "";
  }

  ListedMemory memory_;
  ptx_transforms::MemorySpan table_ = {kAllocated - 4096, 64};
  std::vector<ptx_transforms::MemorySpan> variables_;
  MemoryAnswers answers_;
};

constexpr const char* kRead = "\tld.global.u32 %r3, [%rd4];";
constexpr const char* kWrite = "\tst.global.u32 [%rd4], %r2;";

TEST_F(LaunchAccessesTest, BoxesAndKinds) {
  memory_.Set({{kAllocated, 4096}});
  const LaunchAccesses read = Of(kRead, kAllocated + 8);
  ASSERT_EQ(BarrierOf(read), "");
  ASSERT_EQ(read.accesses.size(), 1u);
  EXPECT_EQ(read.accesses[0].box, *scheduler::Box::Range(kAllocated + 8, 128));
  EXPECT_EQ(read.accesses[0].kind, AccessKind::kRead);
  EXPECT_EQ(read.extent, Extent::kSaid);
  EXPECT_EQ(read.widest, SegmentClass::kBox);
  EXPECT_EQ(Of(kWrite, kAllocated).accesses.at(0).kind, AccessKind::kWrite);
  const LaunchAccesses atomic = Of("\tred.global.add.u32 [%rd4], %r2;", kAllocated);
  EXPECT_EQ(atomic.accesses.at(0).kind, AccessKind::kReadWrite) << "it reads, too";
}

TEST_F(LaunchAccessesTest, RowsStayRows) {
  memory_.Set({{kAllocated, 4096}});
  const LaunchAccesses rows = Of("\tadd.s64 %rd4, %rd4, %rd3;\n\tst.global.u32 [%rd4], %r2;", kAllocated);
  ASSERT_EQ(rows.accesses.size(), 1u);
  EXPECT_EQ(rows.accesses[0].box, *scheduler::Box::Rows(kAllocated, 4, 32, 8)) << "every second number only";
}

TEST_F(LaunchAccessesTest, OneBeforeThePointerIsTheAllocationBefore) {
  memory_.Set({{kAllocated, 128}, {kAllocated + 128, 128}});
  const LaunchAccesses accesses = Of("\tst.global.u32 [%rd1+-4], %r2;", kAllocated + 128);
  ASSERT_EQ(accesses.accesses.size(), 1u);
  EXPECT_EQ(accesses.accesses[0].box, *scheduler::Box::Range(kAllocated + 124, 4));
  memory_.Set({{kAllocated, 128, Sort::kHost}, {kAllocated + 128, 128}});
  EXPECT_EQ(BarrierOf(Of("\tst.global.u32 [%rd1+-4], %r2;", kAllocated + 128)), "host-memory");
}

TEST_F(LaunchAccessesTest, NothingRunsBesideWhatTheHostSees) {
  memory_.Set({{kAllocated, 4096, Sort::kHost}});
  EXPECT_EQ(BarrierOf(Of(kRead, kAllocated)), "host-memory");
  EXPECT_EQ(BarrierOf(Of(kWrite, kAllocated)), "host-memory");
  memory_.Set({{kAllocated, 64}, {kAllocated + 64, 64, Sort::kHost}});
  EXPECT_EQ(BarrierOf(Of(kWrite, kAllocated)), "host-memory") << "only its end is the host's";
  memory_.Set({{kAllocated, 4096, Sort::kShared}});
  EXPECT_EQ(BarrierOf(Of(kRead, kAllocated)), "shared-memory");
}

TEST_F(LaunchAccessesTest, MemoryOfOthersIsUnknown) {
  memory_.Set({{kAllocated, 4096}});
  EXPECT_EQ(BarrierOf(Of(kRead, kAllocated + 8192)), "unknown-memory");
  EXPECT_EQ(BarrierOf(Of(kRead, kAllocated + 4096)), "unknown-memory");
  EXPECT_EQ(BarrierOf(Of(kWrite, 0)), "unknown-memory");
}

// The index is from memory, so all depends on the allocation of the pointer.
constexpr const char* kIndexed =
    "\tld.global.u32 %r3, [%rd4];\n\tmul.wide.u32 %rd6, %r3, 4;\n\tadd.s64 %rd7, %rd2, %rd6;\n"
    "\tst.global.u32 [%rd7], %r2;";

TEST_F(LaunchAccessesTest, WholeAllocationsWhereMemoryDecides) {
  memory_.Set({{kAllocated, 4096}, {kAllocated + 8192, 512}});
  const LaunchAccesses accesses = Of(kIndexed, kAllocated, kAllocated + 8192 + 16);
  ASSERT_EQ(BarrierOf(accesses), "");
  ASSERT_EQ(accesses.accesses.size(), 2u);
  EXPECT_EQ(accesses.accesses[1].box, *scheduler::Box::Range(kAllocated + 8192, 512));
  EXPECT_EQ(accesses.widest, SegmentClass::kAllocation);
  EXPECT_EQ(BarrierOf(Of(kIndexed, kAllocated, kAllocated + 16384)), "unknown-memory")
      << "no pointer from memory is there";
}

TEST_F(LaunchAccessesTest, AnswersHoldUntilTheMemoryInQuestionChanges) {
  memory_.Set({{kAllocated, 4096}, {kAllocated + 8192, 512}});
  ASSERT_EQ(BarrierOf(Of(kIndexed, kAllocated, kAllocated + 8192)), "");
  memory_.Set({{kAllocated, 4096}, {kAllocated + 8192, 512}, {kAllocated + 65536, 4, Sort::kHost}});
  EXPECT_TRUE(answers_.Hold(memory_)) << "elsewhere";
  memory_.Set({{kAllocated, 4096}, {kAllocated + 8192, 1024}});
  EXPECT_FALSE(answers_.Hold(memory_)) << "the allocation is a longer one";
  memory_.Set({{kAllocated, 4096, Sort::kHost}, {kAllocated + 8192, 512}});
  EXPECT_FALSE(answers_.Hold(memory_));
  memory_.Set({{kAllocated + 8192, 512}});
  EXPECT_FALSE(answers_.Hold(memory_)) << "an exact box asked for no allocation, but it is gone";
}

TEST_F(LaunchAccessesTest, PointersFromMemory) {
  memory_.Set({{kAllocated, 4096}});
  const std::string load = "\tadd.s64 %rd4, %rd4, %rd3;\n\tld.global.u64 %rd6, [%rd4];\n";
  const LaunchAccesses read = Of(load + "\tld.global.u32 %r3, [%rd6];", kAllocated);
  EXPECT_EQ(BarrierOf(read), "");
  EXPECT_EQ(read.extent, Extent::kReadsAnything);
  EXPECT_EQ(read.widest, SegmentClass::kAnywhere);
  EXPECT_EQ(BarrierOf(Of(load + "\tst.global.u32 [%rd6], %r2;", kAllocated)), "pointer-from-memory");
}

TEST_F(LaunchAccessesTest, TwoNumbersThatLookLikeAPointerAreNone) {
  // n and m together, as 8 bytes, are an address in memory. The kernel uses n as a number.
  memory_.Set({{kAllocated, 4096}, {kAllocated + 8192, 512, Sort::kHost}});
  const uint64_t like_pointer = kAllocated + 8192;
  const LaunchAccesses accesses =
      Of("\tst.global.u32 [%rd4], %r1;", kAllocated, 0, static_cast<uint32_t>(like_pointer), like_pointer >> 32);
  ASSERT_EQ(BarrierOf(accesses), "");
  ASSERT_EQ(accesses.accesses.size(), 1u);
  EXPECT_EQ(accesses.accesses[0].box, *scheduler::Box::Range(kAllocated, 128));
}

TEST_F(LaunchAccessesTest, VariablesOfTheModule) {
  const std::string write = "\tmov.u64 %rd6, table;\n\tst.global.u32 [%rd6+8], %r2;";
  const LaunchAccesses accesses = Of(write, kAllocated);
  ASSERT_EQ(BarrierOf(accesses), "") << "no program has asked for its address";
  ASSERT_EQ(accesses.accesses.size(), 1u);
  EXPECT_EQ(accesses.accesses[0].box, *scheduler::Box::Range(table_.address + 8, 4));
  table_ = {};
  EXPECT_NE(BarrierOf(Of(write, kAllocated)), "") << "nobody knows where it is";
}

TEST_F(LaunchAccessesTest, MoreThanAWindowTakes) {
  memory_.Set({{kAllocated, uint64_t{1} << 30}});
  std::string many;
  for (int k = 0; k < 257; ++k) many += "\tst.global.u32 [%rd1+" + std::to_string(k * 1024) + "], %r2;\n";
  EXPECT_EQ(BarrierOf(Of(many, kAllocated)), "too-many");
}

TEST_F(LaunchAccessesTest, TexturesAreNotLookedInto) {
  EXPECT_EQ(BarrierOf(Of("\ttex.1d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r2}];", 5)), "object");
}

}  // namespace
}  // namespace tally::server
