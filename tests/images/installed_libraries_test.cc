// Every container of installed CUDA libraries is read and validated: real input that we did not make.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "images/codecs.h"
#include "images/cubin.h"

namespace tally::images {
namespace {

// The section of that name of a host ELF file, or nothing.
std::span<const std::byte> SectionOf(std::span<const std::byte> file, std::string_view wanted) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  const auto section_at = [&](size_t index) {
    Elf64_Shdr section;
    std::memcpy(&section, file.data() + header.e_shoff + index * sizeof(section), sizeof(section));
    return section;
  };
  const Elf64_Shdr names = section_at(header.e_shstrndx);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = section_at(i);
    const auto* name = reinterpret_cast<const char*>(file.data() + names.sh_offset + section.sh_name);
    if (wanted == name) return file.subspan(section.sh_offset, section.sh_size);
  }
  return {};
}

struct Counts {
  size_t containers = 0;
  size_t cubins = 0;
  size_t kernels = 0;
  size_t texts = 0;
  size_t bytes = 0;
  size_t slim_bytes = 0;
};

// Decompresses an entry, reads it and counts.
void ReadEntry(const FatEntry& entry, Counts& counts) {
  const Result<std::vector<std::byte>> bytes = DecompressEntry(entry);
  ASSERT_TRUE(bytes) << bytes.error().ToString();
  if (entry.kind == FatEntryKind::kCubin) {
    const Result<CubinView> view = CubinView::Parse(*bytes);
    ASSERT_TRUE(view) << view.error().ToString();
    EXPECT_EQ(view->arch(), entry.arch);
    EXPECT_EQ(ImageSizeFromPointer(bytes->data()).value_or(0), bytes->size());
    for (const CubinKernel& kernel : view->kernels()) {
      EXPECT_GT(kernel.registers, 0u) << kernel.name;
      uint32_t end = 0;
      for (const CubinParameter& parameter : kernel.parameters) end = std::max(end, parameter.offset + parameter.bytes);
      EXPECT_EQ(end, kernel.parameter_bytes) << kernel.name;
    }
    ++counts.cubins;
    counts.kernels += view->kernels().size();
  } else if (entry.kind == FatEntryKind::kPtx) {
    EXPECT_NE(DecompressPtx(entry)->find(".version"), std::string::npos);
    ++counts.texts;
  }
}

// Bytes of what an H100 needs; it must read as the same container with fewer entries.
size_t SlimBytes(std::span<const std::byte> container, const std::vector<FatEntry>& entries) {
  constexpr uint32_t kH100[] = {90};
  std::vector<std::byte> header, whole;
  const auto pieces = WithoutUnusable(container, kH100, &header);
  if (pieces.empty()) return container.size();
  for (const auto piece : pieces) whole.insert(whole.end(), piece.begin(), piece.end());
  EXPECT_EQ(FatContainerBytes(whole).value_or(0), whole.size());
  EXPECT_TRUE(ValidateImage(whole));
  const std::vector<FatEntry> left = ReadFatContainer(whole).value();
  auto kept = left.begin();
  for (const FatEntry& entry : entries) {
    if (!IsUsable(entry, 90)) continue;
    EXPECT_EQ(kept->arch, entry.arch);
    EXPECT_TRUE(std::ranges::equal(kept->whole, entry.whole));
    ++kept;
  }
  return whole.size();
}

// Reads every container; of the entries every `stride`th is decompressed.
void ReadLibrary(const std::string& name, size_t stride, Counts& counts) {
  const std::string path = std::string(TALLY_TEST_CUDA_LIB_DIR "/") + name;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) GTEST_SKIP() << "SKIPPED: no " << path << " on this machine";
  struct stat status;
  ASSERT_EQ(fstat(fd.get(), &status), 0);
  // Stays mapped until the process ends.
  const auto file_bytes = static_cast<size_t>(status.st_size);
  const void* const file = mmap(nullptr, file_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(file, MAP_FAILED);
  std::span<const std::byte> rest = SectionOf({static_cast<const std::byte*>(file), file_bytes}, ".nv_fatbin");
  size_t num_entries = 0;
  while (rest.size() >= 16) {
    if (KindOfImage(rest) != ImageKind::kFatContainer) {  // padding between containers
      rest = rest.subspan(8);
      continue;
    }
    const Result<size_t> size = FatContainerBytes(rest);
    ASSERT_TRUE(size) << size.error().ToString();
    const Result<ImageKind> kind = ValidateImage(rest.first(*size));
    ASSERT_TRUE(kind) << kind.error().ToString();
    EXPECT_EQ(ImageSizeFromPointer(rest.data()).value_or(0), *size);
    const std::vector<FatEntry> entries = ReadFatContainer(rest).value();
    for (const FatEntry& entry : entries)
      if (num_entries++ % stride == 0) ReadEntry(entry, counts);
    ++counts.containers;
    counts.bytes += *size;
    counts.slim_bytes += SlimBytes(rest.first(*size), entries);
    rest = rest.subspan(*size);
  }
}

TEST(InstalledLibraries, CurandIsReadInFull) {
  Counts counts;
  ReadLibrary("libcurand.so.10", 9, counts);
  if (testing::Test::IsSkipped()) return;
  EXPECT_GE(counts.containers, 5u);
  EXPECT_GT(counts.kernels, 100u);
  EXPECT_GT(counts.texts, 0u);
  EXPECT_LT(counts.slim_bytes, counts.bytes / 4);
}

TEST(InstalledLibraries, CusparseIsReadInFull) {
  Counts counts;
  ReadLibrary("libcusparse.so.12", 37, counts);
  if (testing::Test::IsSkipped()) return;
  EXPECT_GE(counts.containers, 50u);
  EXPECT_GT(counts.kernels, 100u);
}

}  // namespace
}  // namespace tally::images
