#include "server/executor/issue/variant_module.h"

#include <cstring>

#include "proto/device/gate_abi.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

constexpr const char* kText = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry right(.param .u64 out, .param .align 16 .b8 hidden[16]) { ret; }
.visible .entry larger(.param .u64 out, .param .align 16 .b8 hidden[32]) { ret; }
.visible .entry none(.param .u64 out) { ret; }
)";

using VariantModuleTest = SimDeviceTest;

// We fill in what we think is there, which must be all of it: else it is not the code that we have made.
TEST_F(VariantModuleTest, OnlyCodeWithOurParameterIsUsed) {
  static_assert(sizeof(device::GateParameters) == 16);
  for (const char* entry : {"right", "larger", "none", "nowhere"}) {
    CompiledVariants variants;
    variants.gated.entry = entry;
    variants.gated.image.resize(std::strlen(kText) + 1);
    std::memcpy(variants.gated.image.data(), kText, variants.gated.image.size());
    VariantModule module(driver_, context_, std::make_shared<const CompiledVariants>(std::move(variants)));
    module.Load(1);
    EXPECT_TRUE(module.is_loaded());
    EXPECT_EQ(module.gated().function != nullptr, std::strcmp(entry, "right") == 0) << entry;
    EXPECT_EQ(module.slices().function, nullptr);
  }
}

}  // namespace
}  // namespace tally::server
