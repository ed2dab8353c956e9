// Compiled CUDA C++, as nvcc emits it.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

class NvccTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(TALLY_TEST_KERNELS_PTX);
    std::stringstream text;
    text << file.rdbuf();
    text_ = text.str();
    program_ = launcher_.Load({text_});
    ASSERT_TRUE(program_);
  }
  template <typename... Arguments>
  void RunWell(std::string_view kernel, Dim3 grid, Dim3 block, uint32_t shared, Arguments... arguments) {
    LaunchRequest request = launcher_.Request(program_, kernel, grid, block, arguments...);
    request.dynamic_shared_bytes = shared;
    auto fault = launcher_.Run(std::move(request));
    ASSERT_FALSE(fault) << fault->message;
  }

  Launcher launcher_;
  std::string text_;
  std::shared_ptr<const Program> program_;
};

TEST_F(NvccTest, EveryKernelIsSupported) {
  for (const Kernel& kernel : program_->kernels()) EXPECT_EQ(kernel.unsupported, "") << kernel.name;
}

TEST_F(NvccTest, Saxpy) {
  std::vector<float> x(1000), y(1000);
  for (int i = 0; i < 1000; ++i) x[i] = 0.25f * i, y[i] = 1000 - i;
  uint64_t dx = launcher_.Upload(x), dy = launcher_.Upload(y);
  RunWell("saxpy", {4}, {256}, 0, 1000, 3.0f, dx, dy);
  auto out = launcher_.Download<float>(dy, 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], std::fma(3.0f, x[i], y[i])) << i;
}

TEST_F(NvccTest, BlockSum) {
  std::vector<int> in(5000);
  int sum = 0;
  for (int i = 0; i < 5000; ++i) sum += in[i] = i * 7 - 1000;
  uint64_t din = launcher_.Upload(in), out = launcher_.Upload(std::vector<int>{0});
  RunWell("block_sum", {20}, {256}, 1024, din, out, 5000);
  EXPECT_EQ(launcher_.Download<int>(out, 1)[0], sum);
}

TEST_F(NvccTest, WarpSum) {
  std::vector<int> in(64);
  for (int i = 0; i < 64; ++i) in[i] = i * i;
  uint64_t din = launcher_.Upload(in), dout = launcher_.Upload(std::vector<int>(66));
  RunWell("warp_sum", {1}, {64}, 0, din, dout);
  auto out = launcher_.Download<int>(dout, 66);
  for (int i = 0; i < 64; ++i) {
    int expected = 0;
    for (int k = i / 8 * 8; k < i / 8 * 8 + 8; ++k) expected += in[k];
    EXPECT_EQ(out[i], expected) << i;
  }
  for (int k = 0; k < 2; ++k) {
    int expected = 0;
    for (int i = 0; i < 32; ++i) expected += in[k * 32 + i];
    EXPECT_EQ(out[64 + k], expected);
  }
}

TEST_F(NvccTest, Recursion) {
  uint64_t out = launcher_.Upload(std::vector<int>(64));
  RunWell("recurse", {1}, {64}, 0, out);
  int fibonacci[13] = {0, 1};
  for (int k = 2; k < 13; ++k) fibonacci[k] = fibonacci[k - 1] + fibonacci[k - 2];
  auto values = launcher_.Download<int>(out, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(values[i], fibonacci[i % 13]) << i;
}

TEST_F(NvccTest, IndirectCallsAndInitialisers) {
  struct Pair {
    int a;
    double b;
  };
  uint64_t out = launcher_.Upload(std::vector<double>(40));
  RunWell("indirect", {1}, {40}, 0, out, Pair{4, 0.5});
  auto values = launcher_.Download<double>(out, 40);
  const int factors[4] = {3, 5, 7, 11};
  for (int i = 0; i < 40; ++i) EXPECT_EQ(values[i], (i % 2 ? i * 0.5 : i + 4) + factors[i % 4] + 5) << i;
}

TEST_F(NvccTest, CooperativeGridSync) {
  constexpr int kBlocks = 40;
  constexpr int kRounds = 9;
  uint64_t values = launcher_.Upload(std::vector<int>(2 * kBlocks));
  LaunchRequest request = launcher_.Request(program_, "grid_sync", {kBlocks}, {64}, values, kRounds);
  request.is_cooperative = true;
  auto fault = launcher_.Run(std::move(request));
  ASSERT_FALSE(fault) << fault->message;
  auto out = launcher_.Download<int>(values, 2 * kBlocks);
  for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(out[i + kRounds % 2 * kBlocks], kRounds) << i;
}

TEST_F(NvccTest, GridSyncWithoutCooperativeLaunchTraps) {
  uint64_t values = launcher_.Upload(std::vector<int>(80));
  auto fault = launcher_.Run(launcher_.Request(program_, "grid_sync", {2}, {64}, values, 1));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultLaunchFailed);
}

TEST_F(NvccTest, ClusterSharedMemory) {
  uint64_t out = launcher_.Upload(std::vector<int>(8));
  LaunchRequest request = launcher_.Request(program_, "cluster_ring", {8}, {64}, out);
  request.cluster = {4, 1, 1};
  auto fault = launcher_.Run(std::move(request));
  ASSERT_FALSE(fault) << fault->message;
  auto values = launcher_.Download<int>(out, 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(values[i], 100 + i / 4 * 4 + (i + 1) % 4) << i;
}

TEST_F(NvccTest, SpinLockAmongLanesWarpsAndBlocks) {
  uint64_t counter = launcher_.Upload(std::vector<int>{0});
  RunWell("spin_lock", {6}, {40}, 0, counter);
  EXPECT_EQ(launcher_.Download<int>(counter, 1)[0], 240);
}

TEST_F(NvccTest, Printf) {
  RunWell("greet", {1}, {2}, 0, 5);
  EXPECT_EQ(launcher_.printed(),
            "thread 0 of greet:  2.50 1099511627776 x%\nthread 1 of greet:  2.50 1099511627776 x%\n");
}

TEST_F(NvccTest, Assert) {
  RunWell("check", {1}, {1}, 0, 3);
  auto fault = launcher_.Run(launcher_.Request(program_, "check", {1}, {1}, 4));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cu_result, kFaultAssert);
  EXPECT_NE(launcher_.printed().find("Assertion `n == 3` failed."), std::string::npos) << launcher_.printed();
}

TEST_F(NvccTest, Halves) {
  std::vector<uint32_t> in(32, 0x3c004000);  // (2, 1)
  uint64_t din = launcher_.Upload(in), out = launcher_.Upload(std::vector<float>(64));
  RunWell("halves", {1}, {32}, 0, din, out);
  auto values = launcher_.Download<float>(out, 64);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(values[2 * i], 4.5f);
    EXPECT_EQ(values[2 * i + 1], 2.5f);
  }
}

TEST_F(NvccTest, MathLibrary) {
  std::vector<double> in(64);
  for (int i = 0; i < 64; ++i) in[i] = 0.1 + 0.37 * i;
  uint64_t din = launcher_.Upload(in), out = launcher_.Upload(std::vector<double>(64));
  RunWell("mathematics", {1}, {64}, 0, din, out);
  auto values = launcher_.Download<double>(out, 64);
  for (int i = 0; i < 64; ++i) {
    double x = in[i];
    double expected = std::sin(x) + std::exp(-x) * std::sqrt(x) + std::pow(x, 1.5) + double{std::sin(float(x))} +
                      std::log(x + 1) + double(static_cast<long long>(x * 1000)) / 7;
    EXPECT_NEAR(values[i], expected, 1e-6 * std::abs(expected)) << i;
  }
}

TEST_F(NvccTest, SwitchesAndLoops) {
  std::vector<int> in(256);
  for (int i = 0; i < 256; ++i) in[i] = i * 37 + 11;
  uint64_t din = launcher_.Upload(in), out = launcher_.Upload(std::vector<int>(256));
  RunWell("many_cases", {1}, {256}, 0, din, out);
  auto values = launcher_.Download<int>(out, 256);
  for (int i = 0; i < 256; ++i) {
    int x = in[i];
    int r = 0;
    for (int k = 0; k < 10; ++k) {
      int which = (x + k) % 9;
      if (which == 0) r += 3;
      if (which == 1) r ^= x;
      if (which == 2) r = static_cast<int>(static_cast<unsigned>(r) * 5 + 1);
      if (which == 3 && !(r & 1)) r >>= 1;
      if (which == 4) r -= x * k;
      if (which == 5) r = static_cast<int>(static_cast<unsigned>(r) << 3 | static_cast<unsigned>(r) >> 29);
      if (which == 6) r = ~r;
      if (which == 7) {
        if (r > 100000) break;
        r += 17;
      }
      if (which == 8) r = __builtin_popcount(static_cast<unsigned>(r)) + __builtin_clz(static_cast<unsigned>(x)) + r;
    }
    EXPECT_EQ(values[i], r) << i;
  }
}

TEST_F(NvccTest, DeviceHeap) {
  uint64_t out = launcher_.Upload(std::vector<int>(40));
  RunWell("heap_list", {1}, {40}, 0, out, 20);
  auto values = launcher_.Download<int>(out, 40);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(values[i], 190 + 20 * i) << i;
}

}  // namespace
}  // namespace tally::sim_driver
