// Kernels that we did not make: every cubin of some installed libraries for several architectures is gated, and read
// again by readers that share nothing with the writer: Tally's own cubin reader and, for some, binutils' readelf.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/tool/library_cubins.h"
#include "cubin-transforms/tool/nv_linker.h"
#include "images/cubin.h"
#include "images/elf_view.h"
#include "images/image_kind.h"
#include "proto/device/gate_abi.h"

namespace tally::cubin_transforms {
namespace {

struct Counts {
  size_t cubins = 0;
  size_t kernels = 0;
  size_t gated = 0;
};

void CheckCubin(std::span<const std::byte> cubin, Counts& counts) {
  const Result<GatedImage> image = AddGates(cubin);
  ASSERT_TRUE(image) << image.error().ToString();
  const auto view = images::CubinView::Parse(image->cubin);
  ASSERT_TRUE(view) << view.error().ToString();
  EXPECT_EQ(images::ImageSizeFromPointer(image->cubin.data()).value_or(0), image->cubin.size());
  for (const GatedKernel& kernel : image->kernels) {
    if (!kernel.is_gated()) continue;
    const images::CubinKernel* found = view->FindKernel(kernel.name);
    ASSERT_NE(found, nullptr) << kernel.name;
    ASSERT_EQ(found->parameters.size(), kernel.num_parameters + 1) << kernel.name;
    EXPECT_EQ(found->parameters.back().offset, kernel.hidden_offset) << kernel.name;
    EXPECT_EQ(found->parameters.back().bytes, sizeof(device::GateParameters)) << kernel.name;
  }
  ++counts.cubins;
  counts.kernels += image->kernels.size();
  counts.gated += image->num_gated();
}

Result<Counts> CheckLibrary(const std::string& name, const std::set<uint32_t>& archs) {
  const Result<MappedFile> file = MappedFile::Open(TALLY_TEST_CUDA_LIB_DIR "/" + name);
  if (!file) return std::unexpected(file.error());
  Counts counts;
  ForEachCubin(file->bytes(), [&](const FoundCubin& cubin) {
    if (!archs.contains(cubin.arch)) return;
    ASSERT_TRUE(cubin.bytes) << cubin.bytes.error().ToString();
    CheckCubin(*cubin.bytes, counts);
  });
  return counts;
}

TEST(InstalledLibraries, EveryKernelOfCublasIsGated) {
  const Result<Counts> counts = CheckLibrary("libcublas.so.13", {80, 90, 120});
  if (!counts) GTEST_SKIP() << "SKIPPED: " << counts.error().ToString();
  EXPECT_GT(counts->kernels, 3000u);
  EXPECT_EQ(counts->gated, counts->kernels);
}

// Its kernels are of the older format (OS/ABI 0x33) in part.
TEST(InstalledLibraries, EveryKernelOfCufftForSm90IsGated) {
  const Result<Counts> counts = CheckLibrary("libcufft.so.12", {89, 90});
  if (!counts) GTEST_SKIP() << "SKIPPED: " << counts.error().ToString();
  EXPECT_GT(counts->kernels, 300u);
  EXPECT_EQ(counts->gated, counts->kernels);
}

std::span<const std::byte> Section(const images::ElfView& elf, std::string_view name) {
  const auto found = std::ranges::find(elf.sections(), name, &images::ElfSection::name);
  return found != elf.sections().end() ? found->content : std::span<const std::byte>();
}

// GEMMs written by hand are relocatable there. Linking finds nothing to change in their code, and all can be gated.
TEST(InstalledLibraries, EveryKernelOfCublasLtForSm80IsGatedOnceLinked) {
  const Result<NvLinker> linker = NvLinker::Open("");
  const Result<MappedFile> file = MappedFile::Open(TALLY_TEST_CUDA_LIB_DIR "/libcublasLt.so.13");
  if (!linker || !file) GTEST_SKIP() << "SKIPPED: no libnvJitLink, or no libcublasLt";
  Counts counts;
  size_t num_linked = 0;
  ForEachCubin(file->bytes(), [&](const FoundCubin& cubin) {
    if (cubin.arch != 80 || !IsRelocatable(*cubin.bytes)) return;
    const auto linked = linker->Link(cubin);
    ASSERT_TRUE(linked) << linked.error().ToString();
    CheckCubin(*linked, counts);
    const auto before = images::ElfView::Parse(*cubin.bytes).value(), after = images::ElfView::Parse(*linked).value();
    for (const images::ElfSection& section : after.sections()) {
      if (!section.name.starts_with(".text.") && !section.name.starts_with(".nv.constant0.")) continue;
      EXPECT_TRUE(std::ranges::equal(section.content, Section(before, section.name))) << section.name;
      ++num_linked;
    }
  });
  EXPECT_GT(counts.kernels, 2000u);
  EXPECT_EQ(counts.gated, counts.kernels);
  EXPECT_EQ(num_linked, 2 * counts.kernels);
}

// Standard output of a command; its complaints are not wanted.
std::string OutputOf(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  char buffer[4096];
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) != 0;) text.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

// As readelf sees it: name, type, flags, link and alignment of each section, and its size.
std::vector<std::pair<std::string, uint64_t>> SectionsByReadelf(const std::filesystem::path& file) {
  std::istringstream lines(OutputOf("readelf --sections --wide " + file.string()));
  std::vector<std::pair<std::string, uint64_t>> sections;
  for (std::string line; std::getline(lines, line);) {
    const size_t bracket = line.find(']');
    if (line.find('[') == std::string::npos || bracket == std::string::npos || line.find("Name") != std::string::npos)
      continue;
    std::istringstream fields(line.substr(bracket + 1));
    std::vector<std::string> words;
    for (std::string word; fields >> word;) words.push_back(word);
    if (words.size() < 9) continue;  // the first one has no name
    sections.emplace_back(words[0] + ' ' + words[1] + ' ' + words.back(), std::stoull(words[4], nullptr, 16));
  }
  return sections;
}

TEST(InstalledLibraries, ReadelfSeesTheSameSectionsAndOnlyGatedOnesGrow) {
  const Result<MappedFile> file = MappedFile::Open(TALLY_TEST_CUDA_LIB_DIR "/libcurand.so.10");
  if (!file) GTEST_SKIP() << "SKIPPED: " << file.error().ToString();
  const std::filesystem::path folder = testing::TempDir() + "cubin_transforms_readelf";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::span<const std::byte> bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return folder / name;
  };
  size_t num_kernels = 0;
  ForEachCubin(file->bytes(), [&](const FoundCubin& cubin) {
    if (cubin.arch != 90 && cubin.arch != 80) return;
    const GatedImage image = AddGates(*cubin.bytes).value();
    const auto before = SectionsByReadelf(write("before.cubin", *cubin.bytes));
    const auto after = SectionsByReadelf(write("after.cubin", image.cubin));
    ASSERT_GT(before.size(), 5u);
    ASSERT_EQ(before.size(), after.size());
    size_t num_grown = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].first, after[i].first);
      if (before[i].second != after[i].second) ++num_grown;
    }
    EXPECT_EQ(num_grown, 3 * image.num_gated());
    num_kernels += image.num_gated();
  });
  EXPECT_GT(num_kernels, 500u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tally::cubin_transforms
