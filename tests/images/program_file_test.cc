#include "images/program_file.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "images/byte_reader.h"
#include "tests/images/test_images.h"

namespace tally::images {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::byte> ThisProgram() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

void Append(std::vector<std::byte>& file, const std::vector<std::byte>& more) {
  file.insert(file.end(), more.begin(), more.end());
}

// The smallest file that is one: a header and the segments.
std::vector<std::byte> FileWith(const std::vector<Elf64_Phdr>& segments, const std::vector<std::byte>& content) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<uint16_t>(segments.size());
  std::vector<std::byte> file(sizeof(header) + segments.size() * sizeof(Elf64_Phdr));
  std::memcpy(file.data(), &header, sizeof(header));
  if (!segments.empty()) {
    std::memcpy(file.data() + sizeof(header), segments.data(), segments.size() * sizeof(Elf64_Phdr));
  }
  Append(file, content);
  return file;
}

TEST(ProgramFile, SaysWhatThisTestIs) {
  const auto file = ReadProgramFile(ThisProgram());
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_THAT(file->loader, HasSubstr("ld-linux-x86-64.so.2"));
  EXPECT_TRUE(file->is_dynamic);
  EXPECT_FALSE(file->is_static_program());
  EXPECT_GE(file->needs_glibc, (GlibcVersion{2, 2}));
  EXPECT_LT(file->needs_glibc, (GlibcVersion{3, 0}));
}

TEST(ProgramFile, FindsPtxAndMachineCodeWhereverTheyLie) {
  std::vector<std::byte> file = FileWith({}, {});
  EXPECT_THAT(ReadProgramFile(file)->device_code, IsEmpty());
  for (const char* container : {"none.fatbin", "speed.fatbin", "none.fatbin"}) {
    const uint32_t magic = kFatContainerMagic;  // by chance, in front of the real one
    const auto* bytes = reinterpret_cast<const std::byte*>(&magic);
    file.insert(file.end(), bytes, bytes + sizeof(magic));
    file.resize(file.size() + 3);
    Append(file, ReadImage(container));
  }
  EXPECT_THAT(ReadProgramFile(file)->device_code,
              ElementsAre(DeviceCode{FatEntryKind::kPtx, 80, 0}, DeviceCode{FatEntryKind::kCubin, 90, 0}));
}

TEST(ProgramFile, AStaticProgramThatMayLieAnywhereIsStillStatic) {
  Elf64_Phdr dynamic{};
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
  dynamic.p_filesz = 2 * sizeof(Elf64_Dyn);
  std::vector<std::byte> content(2 * sizeof(Elf64_Dyn));
  EXPECT_TRUE(ReadProgramFile(FileWith({dynamic}, content))->is_static_program());
  const Elf64_Dyn needed{DT_NEEDED, {1}};
  std::memcpy(content.data(), &needed, sizeof(needed));
  EXPECT_FALSE(ReadProgramFile(FileWith({dynamic}, content))->is_static_program());
}

TEST(ProgramFile, ReadsVersions) {
  EXPECT_EQ(ParseGlibcVersion("GLIBC_2.28"), (GlibcVersion{2, 28}));
  EXPECT_EQ(ParseGlibcVersion("GLIBC_2.2.5"), (GlibcVersion{2, 2}));
  EXPECT_GT(ParseGlibcVersion("GLIBC_2.34"), ParseGlibcVersion("GLIBC_2.4"));
  for (const char* none : {"GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "GLIBCXX_3.4", "GLIBC_2", "GLIBC_2.", ""}) {
    EXPECT_EQ(ParseGlibcVersion(none), GlibcVersion()) << none;
  }
}

TEST(ProgramFile, RefusesWhatIsNone) {
  EXPECT_EQ(ReadProgramFile(BytesOf("#!/bin/sh\n")).error().message(), "no ELF file");
  EXPECT_EQ(ReadProgramFile({}).error().message(), "no ELF file");
  EXPECT_EQ(ReadProgramFile(ReadImage("sm_90.cubin")).error().message(), "no 64-bit ELF file for x86");
  Elf64_Phdr outside{};
  outside.p_type = PT_INTERP;
  outside.p_offset = 1000;
  outside.p_filesz = ~uint64_t{0};
  EXPECT_EQ(ReadProgramFile(FileWith({outside}, {})).error().code(), StatusCode::kDataLoss);
}

// Under the address sanitizer: whatever the bytes say, nothing outside of them is read.
TEST(ProgramFile, SurvivesRandomBytesInItsTables) {
  const std::vector<std::byte> original = ThisProgram();
  std::vector<std::byte> file(original.begin(), original.begin() + std::min<size_t>(original.size(), 1 << 16));
  const auto header = Load<Elf64_Ehdr>(original, 0);
  // Its sections lie at the end: a copy of them near the beginning keeps the file small.
  Elf64_Ehdr moved = header;
  moved.e_shoff = file.size();
  const uint64_t size = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  file.insert(file.end(), original.begin() + static_cast<ptrdiff_t>(header.e_shoff),
              original.begin() + static_cast<ptrdiff_t>(header.e_shoff + size));
  std::memcpy(file.data(), &moved, sizeof(moved));
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> damaged = file;
    for (int i = 0; i < 8; ++i) {
      const bool is_in_sections = i % 2 == 0;
      const size_t at = is_in_sections ? moved.e_shoff + random() % size : random() % 4096;
      damaged[at] = static_cast<std::byte>(random());
    }
    std::memcpy(damaged.data(), ELFMAG, SELFMAG);
    const auto read = ReadProgramFile(damaged);
    if (read) {
      EXPECT_LE(read->loader.size(), damaged.size());
    }
  }
}

}  // namespace
}  // namespace tally::images
