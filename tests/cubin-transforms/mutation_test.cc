// Thousands of damaged cubins, the same ones in every run: AddGates may refuse them or gate what is whole in them, but
// never touches a byte outside (the address sanitizer watches), takes long, or gives out what VerifyGated does not
// accept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "cubin-transforms/add_gates.h"
#include "images/elf_view.h"
#include "tests/cubin-transforms/test_cubins.h"

namespace tally::cubin_transforms {
namespace {

// Where damage matters: the tables and .nv.info, more often than code.
std::vector<size_t> InterestingBytes(std::span<const std::byte> cubin) {
  const auto elf = images::ElfView::Parse(cubin).value();
  std::vector<size_t> bytes;
  const auto add = [&](uint64_t at, uint64_t count) {
    for (uint64_t i = at; i < at + count; ++i) bytes.push_back(i);
  };
  add(0, sizeof(Elf64_Ehdr));
  add(elf.header().e_phoff, elf.header().e_phnum * sizeof(Elf64_Phdr));
  add(elf.header().e_shoff, elf.sections().size() * sizeof(Elf64_Shdr));
  for (const images::ElfSection& section : elf.sections())
    if (section.type == images::kSectionTypeNvInfo || section.type == SHT_SYMTAB || section.type == SHT_RELA)
      add(section.offset, section.size);
  return bytes;
}

TEST(AddGatesToDamagedCubins, RefusesOrGivesOutWhatIsRight) {
  constexpr uint64_t kNasty[] = {0,       1,           0x7F,        0xFF,        0x7FFF,     0xFFFF,
                                 0x10000, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFF8u, 1ull << 63, ~0ull};
  std::mt19937 random(20261122);
  size_t num_gated = 0, num_refused = 0;
  for (const int arch : {80, 90, 100}) {
    const std::vector<std::byte> cubin = ReadCubin(arch);
    const std::vector<size_t> interesting = InterestingBytes(cubin);
    for (int run = 0; run < 1500; ++run) {
      std::vector<std::byte> damaged = cubin;
      for (uint32_t i = 1 + random() % 3; i != 0; --i) {
        const size_t at = random() % 8 == 0 ? random() % damaged.size() : interesting[random() % interesting.size()];
        if (random() % 2 == 0) {
          damaged[at] ^= static_cast<std::byte>(1u << random() % 8);
        } else {
          const uint64_t value = kNasty[random() % std::size(kNasty)];
          std::memcpy(&damaged[at], &value, std::min<size_t>(size_t{1} << random() % 4, damaged.size() - at));
        }
      }
      if (random() % 50 == 0) damaged.resize(random() % damaged.size());
      // In an allocation of exactly its size, so that the sanitizer sees one byte too far.
      const auto exact = std::make_unique<std::byte[]>(damaged.size());
      std::memcpy(exact.get(), damaged.data(), damaged.size());
      const std::span<const std::byte> bytes(exact.get(), damaged.size());
      const Result<GatedImage> image = AddGates(bytes);
      if (!image || image->num_gated() == 0) {
        if (image) {
          EXPECT_TRUE(std::ranges::equal(image->cubin, bytes));
        }
        ++num_refused;
        continue;
      }
      ++num_gated;
      EXPECT_LT(image->cubin.size(), 3 * bytes.size());
      EXPECT_EQ(VerifyGated(bytes, image->cubin).ToString(), OkStatus().ToString());
    }
  }
  // The damage is worth something: some cubins survive it, some do not.
  EXPECT_GT(num_gated, 500u);
  EXPECT_GT(num_refused, 500u);
}

TEST(VerifyGatedOfDamagedFiles, NeverLeavesTheBytes) {
  const std::vector<std::byte> cubin = ReadCubin(90), gated = AddGates(cubin)->cubin;
  const std::vector<size_t> interesting = InterestingBytes(gated);
  std::mt19937 random(7);
  for (int run = 0; run < 3000; ++run) {
    std::vector<std::byte> damaged = gated;
    const size_t at = interesting[random() % interesting.size()];
    const uint64_t value = (uint64_t{random()} << 32 | random()) >> random() % 64;
    std::memcpy(&damaged[at], &value, std::min<size_t>(size_t{1} << random() % 4, damaged.size() - at));
    if (damaged == gated) continue;
    EXPECT_FALSE(VerifyGated(cubin, damaged).ok()) << "byte " << at;
  }
}

}  // namespace
}  // namespace tally::cubin_transforms
