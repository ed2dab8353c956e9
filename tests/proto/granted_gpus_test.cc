#include "proto/control/granted_gpus.h"

#include <gtest/gtest.h>

namespace tally::control {
namespace {

std::vector<GpuUuid> Three() {
  std::vector<GpuUuid> gpus(3);
  for (uint8_t i = 0; i < 3; ++i) gpus[i].fill(static_cast<uint8_t>(0xa0 + i));
  return gpus;
}

using Ordinals = std::vector<int>;

TEST(GrantedGpus, AreInTheGrantsOrderEachOnce) {
  const auto gpus = Three();
  EXPECT_EQ(OrdinalsOf("", gpus), (Ordinals{0, 1, 2}));
  EXPECT_EQ(OrdinalsOf("2,0", gpus), (Ordinals{2, 0}));
  EXPECT_EQ(OrdinalsOf(NameOfGpu(gpus[1]) + ",0", gpus), (Ordinals{1, 0}));
  EXPECT_EQ(OrdinalsOf(NameOfGpu(gpus[1]) + ",1,0", gpus), (Ordinals{1, 0}));
  EXPECT_EQ(OrdinalsOf("1,0," + NameOfGpu(gpus[1]), gpus), (Ordinals{1, 0})) << "not next to one another";
}

TEST(GrantedGpus, OneThatIsGoneIsLeftOutAndNeverAnotherOne) {
  auto gpus = Three();
  const std::string lost = NameOfGpu(gpus[0]);
  gpus.erase(gpus.begin());
  EXPECT_EQ(OrdinalsOf(lost + "," + NameOfGpu(gpus[1]), gpus), Ordinals{1});
  EXPECT_EQ(OrdinalsOf(lost, gpus), Ordinals{});
  EXPECT_EQ(OrdinalsOf("7", gpus), Ordinals{});
  EXPECT_EQ(OrdinalsOf("0", {}), Ordinals{});
  EXPECT_EQ(OrdinalsOf(",", gpus), Ordinals{});
}

TEST(GrantedGpus, AreNamedAsNvidiaSmiDoes) {
  GpuUuid uuid{};
  for (uint8_t i = 0; i < 16; ++i) uuid[i] = static_cast<uint8_t>(i * 17);
  EXPECT_EQ(NameOfGpu(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_TRUE(IsNameOfGpu(NameOfGpu(uuid)));
  EXPECT_EQ(NameOfGpu(uuid).size(), kGpuNameBytes);
  for (const char* wrong : {"", "+1", "1x", "64", "99999999999999999999", "GPU-",
                            "MIG-00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-AABBCCDDEEFF"}) {
    EXPECT_FALSE(IsNameOfGpu(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace tally::control
