#include "server/executor/issue/launch_gates.h"

#include <gtest/gtest.h>

#include <chrono>

#include "server/executor/issue/kernel_code.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Of a kernel whose code has a gate, of which nobody knows whether its blocks wait for one another.
class LaunchGatesTest : public testing::Test {
 protected:
  LaunchGatesTest() {
    kernel_.function = reinterpret_cast<CUfunction>(0x1000);
    kernel_.gate = KernelGate{.hidden_offset = 64};
    launch_.kernel = &kernel_;
    launch_.here = &here_;
    launch_.shape = {.grid = {132, 1, 1}, .block = {128, 1, 1}, .shared_bytes = 1024};
    Holds(132);
  }
  void Holds(uint64_t num_resident) { here_.num_resident[{128, 1024}] = num_resident; }
  GatedFunction Gate(nanoseconds duration) const { return *FindGate(launch_, nullptr, duration); }

  Kernel kernel_;
  KernelOnDevice here_;
  PendingLaunch launch_;
};

TEST_F(LaunchGatesTest, AGridIsAsItsProgramGaveIt) {
  const GatedFunction code = Gate(microseconds(200));
  EXPECT_EQ(code.finer, 1u);
  EXPECT_TRUE(FormOf(launch_, code, 1).is_whole);
  EXPECT_EQ(PieceOf(launch_, code, ChunkFor(launch_, code, microseconds(200)), microseconds(200)), microseconds(200));
}

TEST_F(LaunchGatesTest, AKernelThatTakesAnyIsStoppedAfterAPiece) {
  here_.takes_any_grid = true;
  const GatedFunction code = Gate(microseconds(200));
  EXPECT_EQ(code.finer, 10u);
  EXPECT_FALSE(FormOf(launch_, code, 1).is_whole);
  const uint32_t chunk = ChunkFor(launch_, code, microseconds(200));
  EXPECT_EQ(chunk, 1u);
  const nanoseconds piece = PieceOf(launch_, code, chunk, microseconds(200));
  EXPECT_GE(piece, microseconds(20));
  EXPECT_LT(piece, microseconds(21));
}

TEST_F(LaunchGatesTest, BlocksThatShareAMultiprocessorAreSmaller) {
  here_.takes_any_grid = true;
  Holds(3 * 132);
  EXPECT_EQ(Gate(microseconds(200)).finer, 30u);
}

TEST_F(LaunchGatesTest, AShortKernelKeepsItsGrid) {
  here_.takes_any_grid = true;
  Holds(3 * 132);
  EXPECT_EQ(Gate(microseconds(20)).finer, 1u);
  EXPECT_FALSE(FormOf(launch_, Gate(microseconds(20)), 1).is_whole);
  EXPECT_EQ(Gate(nanoseconds(20'001)).finer, 6u);
}

TEST_F(LaunchGatesTest, OneThatIsNotMeasuredIsCutAllTheSame) {
  here_.takes_any_grid = true;
  const GatedFunction code = Gate(nanoseconds(0));
  EXPECT_EQ(code.finer, 16u);
  EXPECT_EQ(ChunkFor(launch_, code, nanoseconds(0)), 1u);
}

TEST_F(LaunchGatesTest, ALongKernelHasSoManyPiecesAtMost) {
  here_.takes_any_grid = true;
  EXPECT_EQ(Gate(microseconds(64 * 20)).finer, 64u);
  EXPECT_EQ(Gate(std::chrono::seconds(1)).finer, 64u);
}

TEST_F(LaunchGatesTest, ThereAreNoMoreBlocksThanAQueueCanNumber) {
  here_.takes_any_grid = true;
  launch_.shape.grid[0] = 1 << 27;
  Holds(1 << 27);
  EXPECT_EQ(Gate(std::chrono::seconds(1)).finer, 2u);
  launch_.shape.grid[0] = 1 << 30;
  EXPECT_EQ(Gate(std::chrono::seconds(1)).finer, 1u);
}

TEST_F(LaunchGatesTest, NothingIsKnownOfWhatTheDeviceCannotHold) {
  here_.takes_any_grid = true;
  Holds(0);
  EXPECT_EQ(Gate(microseconds(200)).finer, 1u);
  launch_.shape.grid[0] = 0;
  EXPECT_EQ(Gate(microseconds(200)).finer, 1u);
}

}  // namespace
}  // namespace tally::server
