// The verifier must see every way in which a fix-up can go wrong: here all of them, byte by byte.
#include <elf.h>
#include <gtest/gtest.h>

#include "cubin-transforms/add_gates.h"
#include "images/elf_view.h"
#include "tests/cubin-transforms/test_cubins.h"

namespace tally::cubin_transforms {
namespace {

// Bytes that mean something: of the header, the tables, and sections with content.
std::vector<bool> MeaningfulBytes(std::span<const std::byte> file) {
  const auto elf = images::ElfView::Parse(file).value();
  std::vector<bool> meaningful(file.size());
  const auto mark = [&](uint64_t at, uint64_t bytes) {
    for (uint64_t i = at; i < at + bytes; ++i) meaningful[i] = true;
  };
  mark(0, sizeof(Elf64_Ehdr));
  mark(elf.header().e_phoff, elf.header().e_phnum * sizeof(Elf64_Phdr));
  for (size_t i = 0; i < elf.sections().size(); ++i) {
    const images::ElfSection& section = elf.sections()[i];
    mark(elf.header().e_shoff + i * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
    if (images::HasBytes(section.type)) mark(section.offset, section.size);
  }
  return meaningful;
}

TEST(VerifyGated, SeesEveryChangedByte) {
  const std::vector<std::byte> cubin = ReadCubin(90);
  std::vector<std::byte> gated = AddGates(cubin)->cubin;
  const std::vector<bool> meaningful = MeaningfulBytes(gated);
  size_t num_seen = 0;
  for (size_t at = 0; at < gated.size(); ++at) {
    if (!meaningful[at]) continue;
    gated[at] ^= std::byte{1};
    const Status status = VerifyGated(cubin, gated);
    gated[at] ^= std::byte{1};
    EXPECT_FALSE(status.ok()) << "byte " << at;
    ++num_seen;
  }
  EXPECT_GT(num_seen, gated.size() / 2);
  EXPECT_TRUE(VerifyGated(cubin, gated).ok());
}

TEST(VerifyGated, RefusesTheOriginalAsItsOwnGatedForm) {
  const std::vector<std::byte> cubin = ReadCubin(90);
  EXPECT_EQ(VerifyGated(cubin, cubin).code(), StatusCode::kFailedPrecondition);
}

TEST(VerifyGated, RefusesAnotherCubinsGatedForm) {
  EXPECT_FALSE(VerifyGated(ReadCubin(80), AddGates(ReadCubin(90))->cubin).ok());
  EXPECT_FALSE(VerifyGated(ReadCubin(90), {}).ok());
}

}  // namespace
}  // namespace tally::cubin_transforms
