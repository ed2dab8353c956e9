#include "images/kernel_identity.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "images/cubin.h"
#include "images/elf_view.h"
#include "tests/images/test_images.h"

namespace tally::images {
namespace {

using Identities = std::map<std::string, std::vector<std::byte>>;

Identities IdentitiesOf(std::span<const std::byte> cubin) {
  Identities result;
  const auto kernels = IdentifyKernels(cubin);
  EXPECT_TRUE(kernels) << kernels.error().ToString();
  for (const KernelIdentity& kernel : *kernels) result[std::string(kernel.name)] = kernel.identity;
  return result;
}

TEST(IdentifyKernels, FindsThemAgainAfterALink) {
  const std::vector<std::byte> separate = ReadImage("separate.cubin"), linked = ReadImage("linked.cubin");
  EXPECT_FALSE(CubinView::Parse(separate)->is_linked());
  EXPECT_TRUE(CubinView::Parse(linked)->is_linked());
  const Identities before = IdentitiesOf(separate), after = IdentitiesOf(linked);
  ASSERT_EQ(before.size(), 8u);
  ASSERT_EQ(after.size(), 8u);
  for (const auto& [name, identity] : before) {
    EXPECT_TRUE(identity == after.at(name)) << name;
    // Whose code is that function?
    EXPECT_EQ(identity.empty(), name == "CallsAFunction") << name;
  }
}

TEST(IdentifyKernels, VariablesHaveFirstValues) {
  const std::vector<std::byte> cubin = ReadImage("separate.cubin");
  const Identities before = IdentitiesOf(cubin);
  const int32_t values[] = {4, 5, 0};
  const auto bytes = std::as_bytes(std::span(values));
  const auto found = std::search(cubin.begin(), cubin.end(), bytes.begin(), bytes.end());
  ASSERT_NE(found, cubin.end());
  std::vector<std::byte> changed = cubin;
  changed[static_cast<size_t>(found - cubin.begin())] = std::byte{6};
  for (const auto& [name, identity] : IdentitiesOf(changed))
    EXPECT_EQ(identity == before.at(name), name != "NamesAVariable") << name;
}

TEST(IdentifyKernels, NoticesWhichVariableAndWhatConstants) {
  const std::vector<std::byte> cubin = ReadImage("separate.cubin");
  const Identities before = IdentitiesOf(cubin);
  std::vector<std::byte> renamed = cubin;
  const std::span<const std::byte> name = BytesOf("counters");
  for (auto at = std::search(renamed.begin(), renamed.end(), name.begin(), name.end()); at != renamed.end();
       at = std::search(at, renamed.end(), name.begin(), name.end()))
    *at = std::byte{'k'};
  for (const auto& [kernel, identity] : IdentitiesOf(renamed))
    EXPECT_EQ(identity == before.at(kernel), kernel != "NamesAVariable") << kernel;

  const ElfView elf = ElfView::Parse(cubin).value();
  const auto bank = std::ranges::find(elf.sections(), std::string_view(".nv.constant0.Bounded"), &ElfSection::name);
  ASSERT_NE(bank, elf.sections().end());
  std::vector<std::byte> changed = cubin;
  changed[bank->offset + 1] ^= std::byte{1};
  for (const auto& [kernel, identity] : IdentitiesOf(changed))
    EXPECT_EQ(identity == before.at(kernel), kernel != "Bounded") << kernel;
}

TEST(IdentifyKernels, TellsThemApart) {
  const Identities kernels = IdentitiesOf(ReadImage("linked.cubin"));
  for (const auto& [a, first] : kernels) {
    for (const auto& [b, second] : kernels) {
      EXPECT_EQ(first == second, a == b) << a << " " << b;
    }
  }
  // The same source for another architecture.
  const Identities older = IdentitiesOf(ReadImage("sm_80.cubin"));
  EXPECT_NE(older.at("Bounded"), kernels.at("Bounded"));
}

TEST(IdentifyKernels, NoticesEveryByteOfTheCode) {
  const std::vector<std::byte> cubin = ReadImage("linked.cubin");
  const Identities before = IdentitiesOf(cubin);
  size_t num_noticed = 0;
  for (size_t at = 64; at < cubin.size(); at += 97) {
    std::vector<std::byte> changed = cubin;
    changed[at] ^= std::byte{1};
    const auto kernels = IdentifyKernels(changed);
    if (!kernels) continue;
    Identities after;
    for (const KernelIdentity& kernel : *kernels) after[std::string(kernel.name)] = kernel.identity;
    num_noticed += after != before ? 1 : 0;
  }
  EXPECT_GT(num_noticed, 30u);  // code and constants are most of the file
}

}  // namespace
}  // namespace tally::images
