// Compiles kernels with NVRTC, which needs no GPU.
#include "pipelines/stages/source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "pipelines/plan/training.h"
#include "pipelines/runtime/compiler.h"

namespace tally::pipelines {
namespace {

Layer Linear(int in, int out, Activation activation = Activation::kRelu) {
  return {.hidden = in, .out = out, .activation = activation};
}

// What each part of a kernel needs at least once.
std::vector<Chain> Corpus() {
  std::vector<Chain> chains(5);
  chains[0].layers = {Linear(8, 16), Linear(16, 48, Activation::kGelu), Linear(48, 64, Activation::kNone)};
  chains[1].layers = {Linear(384, 128, Activation::kSilu), Linear(128, 128, Activation::kNone)};
  chains[1].layers[1].norm = Norm::kLayer;
  chains[1].layers[1].epsilon = 1e-5f;
  chains[2].element = Element::kFp16;
  chains[2].layers = {Linear(72, 256), Linear(256, 256, Activation::kGeluTanh), Linear(256, 72 + 8, Activation::kNone)};
  chains[2].layers[1].takes_input = TakesInput::kFirst;
  chains[3].layers = {Linear(64, 128), Linear(128, 64, Activation::kNone)};
  chains[3].layers[1].norm = Norm::kRms;
  chains[3].layers[1].residual = true;
  chains[3].layers[1].takes_input = TakesInput::kLast;
  chains[4].layers = {Linear(16, 512), Linear(512, 256), Linear(256, 64)};
  Chain trained, large;
  trained.layers = {Linear(80, 48), Linear(48, 144, Activation::kNone), Linear(144, 16, Activation::kNone)};
  large.layers = {Linear(256, 256), Linear(256, 256), Linear(256, 208, Activation::kNone)};
  for (const Chain& chain : {trained, large}) {
    for (const Chain& pass : {Forward(chain), Backward(chain, true), Backward(chain, false)}) chains.push_back(pass);
  }
  return chains;
}

class PipelineSource : public ::testing::Test {
 protected:
  PipelineSource() { ::setenv("TALLY_PIPELINES_CACHE", "", 1); }
};

constexpr Machine kHopper;
// An A100.
constexpr Machine kAmpere{
    .compute_capability = 80, .has_wgmma = false, .multiprocessors = 108, .shared_bytes = 166'912};

void CompileAllOf(const Machine& machine, const std::vector<Chain>& chains) {
  const std::string architecture = Architecture(machine.compute_capability, machine.has_wgmma, Code::kMachineCode);
  for (const Chain& chain : chains) {
    const auto checked = Check(chain, machine, 65536);
    ASSERT_TRUE(checked) << checked.error();
    // The smallest and the largest: the others differ in a number.
    std::vector<Variant> variants = VariantsFor(chain, machine, 65536);
    variants.erase(variants.begin() + (machine.has_wgmma && variants.size() > 1 ? 1 : 0), variants.end() - 1);
    for (const Variant& variant : variants) {
      const std::string source =
          KernelSource(chain, variant) +
          fmt::format("static_assert(tally_pipeline::kSharedBytes == {});\n", SharedBytes(chain, variant));
      const auto cubin = Compile(source, architecture);
      ASSERT_TRUE(cubin) << cubin.error();
    }
  }
}

TEST_F(PipelineSource, EachKernelCompilesAndTakesTheSharedMemoryOfThePlan) { CompileAllOf(kHopper, Corpus()); }
// Norms, wide layers, a large backward pass: the others are compiled to PTX by pipelines_chains_mma_test.
TEST_F(PipelineSource, KernelsCompileForAnAmpereGpu) {
  const std::vector<Chain> chains = Corpus();
  CompileAllOf(kAmpere, {chains[2], chains[3], chains[4], chains[9]});
}
TEST_F(PipelineSource, EachGpuHasItsArchitecture) {
  EXPECT_EQ(Architecture(90, true, Code::kMachineCode), "sm_90a");
  EXPECT_EQ(Architecture(90, true, Code::kPtx), "compute_90a");
  EXPECT_EQ(Architecture(86, false, Code::kMachineCode), "sm_86");
  EXPECT_EQ(Architecture(120, false, Code::kPtx), "compute_80");
}

TEST_F(PipelineSource, SourcesThatCompileAtOnceStayApart) {
  std::vector<std::string> sources;
  for (int i = 0; i < 6; ++i) {
    sources.push_back(fmt::format("extern \"C\" __global__ void kernel_{}() {{ {} }}", i, i == 3 ? "nothing();" : ""));
  }
  const auto compiled = CompileAll(sources, "compute_80");
  ASSERT_EQ(compiled.size(), sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string name = fmt::format("kernel_{}", i);
    if (i == 3) {
      ASSERT_FALSE(compiled[i].has_value());
      EXPECT_THAT(compiled[i].error(), testing::HasSubstr("tally_vertical.cu(1)"));
      continue;
    }
    ASSERT_TRUE(compiled[i].has_value()) << compiled[i].error();
    EXPECT_THAT(std::string(compiled[i]->data()), testing::HasSubstr(name));
  }
  EXPECT_TRUE(CompileAll({}, "compute_80").empty());
}

TEST_F(PipelineSource, WhatDoesNotCompileIsReportedWithItsLine) {
  const auto cubin = Compile("__global__ void broken() { nothing(); }", "sm_80");
  ASSERT_FALSE(cubin);
  EXPECT_THAT(cubin.error(), ::testing::HasSubstr("nothing"));
}

}  // namespace
}  // namespace tally::pipelines
