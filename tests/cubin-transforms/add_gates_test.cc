#include "cubin-transforms/add_gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cubin-transforms/gate/gate_template.h"
#include "images/cubin.h"
#include "images/elf_view.h"
#include "proto/device/gate_abi.h"
#include "tests/cubin-transforms/test_cubins.h"

namespace tally::cubin_transforms {
namespace {

const GatedKernel& Find(const GatedImage& image, std::string_view name) {
  const auto found = std::ranges::find(image.kernels, name, &GatedKernel::name);
  EXPECT_NE(found, image.kernels.end()) << name;
  return *found;
}

class AddGatesTo : public testing::TestWithParam<int> {};

// Of ours the one that says that it belongs to NCCL.
bool IsExcepted(std::string_view kernel) { return kernel.starts_with("nccl"); }

TEST_P(AddGatesTo, GatesEveryKernelButNccls) {
  const std::vector<std::byte> cubin = ReadCubin(GetParam());
  const Result<GatedImage> image = AddGates(cubin);
  ASSERT_TRUE(image) << image.error().ToString();
  EXPECT_GE(image->kernels.size(), 11u);
  for (const GatedKernel& kernel : image->kernels)
    EXPECT_EQ(kernel.refusal, IsExcepted(kernel.name) ? "it communicates with other GPUs, by its name" : "")
        << kernel.name;
  EXPECT_EQ(VerifyGated(cubin, image->cubin).ToString(), OkStatus().ToString());
}

// What the driver will be told, read by the reader that the rest of Tally uses.
TEST_P(AddGatesTo, DescribesTheHiddenParameterAsTheLastOne) {
  const std::vector<std::byte> cubin = ReadCubin(GetParam());
  const GatedImage image = AddGates(cubin).value();
  const auto before = images::CubinView::Parse(cubin), after = images::CubinView::Parse(image.cubin);
  ASSERT_TRUE(after) << after.error().ToString();
  ASSERT_EQ(before->kernels().size(), after->kernels().size());
  for (const images::CubinKernel& old_kernel : before->kernels()) {
    SCOPED_TRACE(old_kernel.name);
    if (IsExcepted(old_kernel.name)) continue;
    const images::CubinKernel& kernel = *after->FindKernel(old_kernel.name);
    const GatedKernel& gated = Find(image, old_kernel.name);
    EXPECT_EQ(gated.num_parameters, old_kernel.parameters.size());
    EXPECT_EQ(gated.parameter_bytes, old_kernel.parameter_bytes);
    EXPECT_EQ(gated.hidden_offset, device::GateOffset(old_kernel.parameter_bytes));
    ASSERT_EQ(kernel.parameters.size(), old_kernel.parameters.size() + 1);
    for (size_t i = 0; i < old_kernel.parameters.size(); ++i) {
      EXPECT_EQ(kernel.parameters[i].offset, old_kernel.parameters[i].offset);
      EXPECT_EQ(kernel.parameters[i].bytes, old_kernel.parameters[i].bytes);
    }
    EXPECT_EQ(kernel.parameters.back().offset, gated.hidden_offset);
    EXPECT_EQ(kernel.parameters.back().bytes, sizeof(device::GateParameters));
    EXPECT_EQ(kernel.parameter_bytes, gated.hidden_offset + sizeof(device::GateParameters));
    EXPECT_EQ(kernel.registers, std::max(old_kernel.registers, FindGateTemplate(before->arch())->registers));
    EXPECT_EQ(kernel.static_shared_bytes, old_kernel.static_shared_bytes);
    EXPECT_EQ(kernel.max_threads, old_kernel.max_threads);
    EXPECT_EQ(kernel.cluster, old_kernel.cluster);
    EXPECT_GT(kernel.code_bytes, old_kernel.code_bytes);
  }
}

// A gated kernel begins with a jump, which cannot be moved: nothing is gated twice.
TEST_P(AddGatesTo, RefusesWhatIsGated) {
  const GatedImage once = AddGates(ReadCubin(GetParam())).value();
  const GatedImage twice = AddGates(once.cubin).value();
  EXPECT_EQ(twice.num_gated(), 0u);
  EXPECT_EQ(twice.cubin, once.cubin);
  for (const GatedKernel& kernel : twice.kernels) {
    if (IsExcepted(kernel.name)) continue;
    EXPECT_EQ(kernel.refusal, "its first instruction cannot be moved") << kernel.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, AddGatesTo, testing::ValuesIn(kTestArchitectures));

TEST(AddGates, IsTheSameEveryTime) {
  const std::vector<std::byte> cubin = ReadCubin(90);
  EXPECT_EQ(AddGates(cubin)->cubin, AddGates(cubin)->cubin);
}

TEST(AddGates, LeavesALinkersInputAsItIs) {
  const std::vector<std::byte> cubin = ReadCubin("separate.cubin");
  const GatedImage image = AddGates(cubin).value();
  EXPECT_EQ(image.num_gated(), 0u);
  EXPECT_EQ(image.cubin, cubin);
  EXPECT_EQ(Find(image, "Plain").refusal, "it is relocatable");
}

TEST(AddGates, RefusesWhatIsNoCubin) {
  EXPECT_EQ(AddGates({}).error().code(), StatusCode::kInvalidArgument);
  std::vector<std::byte> cubin = ReadCubin(90);
  cubin.resize(cubin.size() / 2);
  EXPECT_FALSE(AddGates(cubin));
}

TEST(GateTemplates, AreThereForEveryArchitecture) {
  std::set<uint32_t> archs;
  for (const GateTemplate& gate : GateTemplates()) archs.insert(gate.arch);
  EXPECT_THAT(archs, testing::IsSupersetOf({75, 80, 86, 89, 90, 100, 120}));
  EXPECT_EQ(FindGateTemplate(87), FindGateTemplate(86));
  EXPECT_EQ(FindGateTemplate(70), nullptr);
}

}  // namespace
}  // namespace tally::cubin_transforms
