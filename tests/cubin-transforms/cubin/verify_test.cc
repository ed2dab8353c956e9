// The verifier must see every way in which a fix-up can go wrong: here all of them, byte by byte.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/gate/gate_template.h"
#include "images/byte_reader.h"
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

// Without a record of its registers a kernel must have had as many as the gate needs, which stand beside its code, too.
TEST(VerifyGated, SeesAGateForWhichTheRegistersMayNotSuffice) {
  const std::vector<std::byte> cubin = ReadCubin(80), gated = AddGates(cubin)->cubin;
  const auto elf = images::ElfView::Parse(cubin).value(), gated_elf = images::ElfView::Parse(gated).value();
  const auto records_of = [](const images::ElfView& view) {
    const auto section = std::ranges::find(view.sections(), std::string_view(".nv.info"), &images::ElfSection::name);
    return images::ReadNvAttributes(section->content).value();
  };
  const auto records = records_of(elf), gated_records = records_of(gated_elf);
  size_t num_with_enough = 0, num_with_few = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].id != 0x2F) continue;
    const images::ElfSymbol& kernel = elf.symbols()[images::Load<uint32_t>(records[i].payload, 0)];
    if (kernel.type != STT_FUNC || elf.sections()[kernel.section].size == gated_elf.sections()[kernel.section].size)
      continue;
    std::vector<std::byte> without = cubin, gated_without = gated;
    const auto at = static_cast<size_t>(records[i].whole.data() - cubin.data());
    const auto gated_at = static_cast<size_t>(gated_records[i].whole.data() - gated.data());
    without[at + 1] = std::byte{0x11};  // FRAME_SIZE
    std::memcpy(&gated_without[gated_at], &without[at], records[i].whole.size());
    const bool has_enough = elf.sections()[kernel.section].info >> 24 >= FindGateTemplate(80)->registers;
    EXPECT_EQ(VerifyGated(without, gated_without).message(),
              has_enough ? "" : "a gated kernel has no record of its registers, or several")
        << kernel.name;
    ++(has_enough ? num_with_enough : num_with_few);
  }
  EXPECT_GT(num_with_enough, 0u);
  EXPECT_GT(num_with_few, 0u);
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
