#include "client-shim/origins/pairing.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "images/fat_container.h"
#include "tests/images/test_images.h"

namespace tally::client_shim {
namespace {

using images::ReadImage;
using images::ReadTextImage;

using Capabilities = std::vector<uint32_t>;

bool IsPaired(std::span<const std::byte> cubin, const Capabilities& capabilities) {
  ::setenv("TRITON_CACHE_DIR", "/nonexistent", 1);
  const std::vector<std::byte> pair = PairWithPtx(cubin, "", capabilities);
  EXPECT_TRUE(pair.empty() || images::ValidateImage(pair));
  return !pair.empty();
}
void Learn(std::span<const std::byte> cubin, std::string ptx) {
  Origins().Learn(cubin, std::make_shared<const std::string>(std::move(ptx)));
}

TEST(PairWithPtx, OnlyForExactlyTheDevicesThereAre) {
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  EXPECT_FALSE(IsPaired(cubin, {90}));  // not known yet
  Learn(cubin, ReadTextImage("compute_90.ptx"));
  EXPECT_TRUE(IsPaired(cubin, {90}));
  EXPECT_TRUE(IsPaired(cubin, {90, 90}));
  // There the driver would take the PTX, or nothing: natively it is an error.
  EXPECT_FALSE(IsPaired(cubin, {100}));
  EXPECT_FALSE(IsPaired(cubin, {80}));
  EXPECT_FALSE(IsPaired(cubin, {90, 100}));
  EXPECT_FALSE(IsPaired(cubin, {}));
}

TEST(PairWithPtx, OnlyWithATextOfAllItsKernels) {
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  Learn(cubin, ReadTextImage("compute_80.ptx"));  // has no Clustered
  EXPECT_FALSE(IsPaired(cubin, {90}));
  Learn(cubin, "no PTX at all");
  EXPECT_FALSE(IsPaired(cubin, {90}));
  std::string newer = ReadTextImage("compute_90.ptx");
  newer.replace(newer.find("sm_90"), 5, "sm_91");
  Learn(cubin, newer);
  EXPECT_FALSE(IsPaired(cubin, {90}));
  std::string tied = ReadTextImage("compute_90.ptx");
  tied.replace(tied.find("sm_90"), 5, "sm_90a");
  Learn(cubin, tied);
  EXPECT_TRUE(IsPaired(cubin, {90}));
}

TEST(PairWithPtx, NeverWithWhatCannotBeLoaded) {
  const std::vector<std::byte> separate = ReadImage("separate.cubin");
  Learn(separate, ReadTextImage("compute_90.ptx"));
  EXPECT_FALSE(IsPaired(separate, {90}));
  EXPECT_FALSE(IsPaired({}, {90}));
}

TEST(IsPtxKept, ObeysTheEnvironment) {
  ::unsetenv("TALLY_KEEP_PTX");
  EXPECT_TRUE(IsPtxKept());  // before cuInit nobody has said that it is not wanted
  ::setenv("TALLY_KEEP_PTX", "0", 1);
  EXPECT_FALSE(IsPtxKept());
  ::setenv("TALLY_KEEP_PTX", "1", 1);
  EXPECT_TRUE(IsPtxKept());
  ::unsetenv("TALLY_KEEP_PTX");
}

TEST(Origins, AreWholeInAForkedChild) {
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  Learn(cubin, ReadTextImage("compute_90.ptx"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(IsPaired(cubin, {90}) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tally::client_shim
