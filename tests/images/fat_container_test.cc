#include "images/fat_container.h"

#include <gmock/gmock.h>

#include <cstring>

#include "tests/images/test_images.h"

namespace tally::images {
namespace {

template <typename T>
void Put(std::vector<std::byte>& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

TEST(ReadFatContainer, ListsEntriesOfEachCompression) {
  const struct {
    const char* name;
    Compression ptx;
    Compression cubin;
  } kCases[] = {{"none.fatbin", Compression::kStored, Compression::kStored},
                {"size.fatbin", Compression::kZstd, Compression::kZstd},
                {"speed.fatbin", Compression::kLz4, Compression::kStored},
                {"default.fatbin", Compression::kZstd, Compression::kStored}};
  for (const auto& expected : kCases) {
    const std::vector<std::byte> image = ReadImage(expected.name);
    const Result<std::vector<FatEntry>> entries = ReadFatContainer(image);
    ASSERT_TRUE(entries) << expected.name << entries.error().ToString();
    ASSERT_EQ(entries->size(), 2u) << expected.name;
    const FatEntry& ptx = (*entries)[0];
    EXPECT_EQ(ptx.kind, FatEntryKind::kPtx);
    EXPECT_EQ(ptx.arch, 80u);
    EXPECT_EQ(ptx.compression, expected.ptx) << expected.name;
    EXPECT_NE(ptx.flags & fat_flag::k64Bit, 0u);
    const FatEntry& cubin = (*entries)[1];
    EXPECT_EQ(cubin.kind, FatEntryKind::kCubin);
    EXPECT_EQ(cubin.arch, 90u);
    EXPECT_EQ(cubin.compression, expected.cubin) << expected.name;
    EXPECT_EQ(cubin.uncompressed_bytes, ReadImage("sm_90.cubin").size()) << expected.name;
  }
}

std::vector<uint32_t> ArchsFor(std::span<const std::byte> image, std::vector<uint32_t> capabilities) {
  std::vector<std::byte> header, whole;
  for (const auto piece : WithoutUnusable(image, capabilities, &header)) {
    whole.insert(whole.end(), piece.begin(), piece.end());
  }
  std::vector<uint32_t> archs;
  if (whole.empty()) return archs;
  const std::vector<FatEntry> entries = ReadFatContainer(whole).value();
  for (const FatEntry& entry : entries) archs.push_back(entry.arch);
  return archs;
}

TEST(WithoutUnusable, KeepsWhatADeviceMayRun) {
  // PTX for 8.0, a cubin for 9.0.
  std::vector<std::byte> image = ReadImage("none.fatbin");
  using Archs = std::vector<uint32_t>;
  EXPECT_EQ(ArchsFor(image, {80}), Archs{80});
  EXPECT_EQ(ArchsFor(image, {120}), Archs{80});
  EXPECT_EQ(ArchsFor(image, {90}), Archs());      // all of it
  EXPECT_EQ(ArchsFor(image, {80, 90}), Archs());  // two kinds of device: what either needs
  EXPECT_EQ(ArchsFor(image, {75}), Archs());      // nothing would remain: the driver says so best
  EXPECT_EQ(ArchsFor(image, {}), Archs());
  image.resize(image.size() - 1);
  EXPECT_EQ(ArchsFor(image, {80}), Archs());  // makes no sense
}

TEST(WithoutUnusable, KnowsWhichCubinsRunWhere) {
  FatEntry cubin;
  cubin.kind = FatEntryKind::kCubin;
  const auto runs = [&](uint32_t arch, uint32_t capability) {
    cubin.arch = arch;
    return IsUsable(cubin, capability);
  };
  EXPECT_TRUE(runs(80, 86));
  EXPECT_FALSE(runs(86, 80));
  EXPECT_FALSE(runs(80, 90));
  EXPECT_TRUE(runs(90, 90));
  EXPECT_TRUE(runs(100, 103));
  EXPECT_TRUE(runs(101, 110));  // one by two names
  EXPECT_FALSE(runs(100, 120));
  FatEntry other;
  other.kind = FatEntryKind::kLtoIr;
  other.arch = 120;
  EXPECT_TRUE(IsUsable(other, 80));
}

TEST(ReadFatContainer, IgnoresWhatFollows) {
  std::vector<std::byte> image = ReadImage("default.fatbin");
  const size_t size = image.size();
  image.resize(size + 100);
  EXPECT_EQ(FatContainerBytes(image).value_or(0), size);
  EXPECT_EQ(ReadFatContainer(image).value().size(), 2u);
}

TEST(ReadFatContainer, RefusesEveryTruncation) {
  const std::vector<std::byte> image = ReadImage("default.fatbin");
  for (size_t size = 0; size < image.size(); size += size < 256 ? 1 : 97)
    EXPECT_FALSE(ReadFatContainer(std::span(image).first(size))) << size;
}

TEST(ReadFatContainer, RefusesEntriesThatPointOut) {
  const std::vector<std::byte> image = ReadImage("default.fatbin");
  const struct {
    size_t offset;  // in the first entry, at 16
    uint64_t value;
    size_t bytes;
  } kLies[] = {{4, 0, 4},      {4, 0x7FFFFFFF, 4},  {8, ~uint64_t{0}, 8}, {8, image.size(), 8}, {16, 0x7FFFFFFF, 4},
               {20, 0x200, 4}, {20, 0xFFFFFFF0, 4}, {32, 0xFFFFFFFF, 4},  {36, 0xFFFFFFFF, 4}};
  for (const auto& lie : kLies) {
    std::vector<std::byte> bad = image;
    std::memcpy(bad.data() + 16 + lie.offset, &lie.value, lie.bytes);
    const auto entries = ReadFatContainer(bad);
    ASSERT_FALSE(entries) << lie.offset;
    EXPECT_EQ(entries.error().code(), StatusCode::kDataLoss) << lie.offset;
  }
}

TEST(ReadFatContainer, RefusesAnUnknownVersion) {
  std::vector<std::byte> image = ReadImage("default.fatbin");
  Put<uint16_t>(image, 4, 7);
  EXPECT_EQ(ReadFatContainer(image).error().code(), StatusCode::kInvalidArgument);
}

TEST(ValidateImage, AcceptsWhatTheToolkitMakes) {
  for (const char* name : {"none.fatbin", "size.fatbin", "speed.fatbin", "default.fatbin"})
    EXPECT_EQ(ValidateImage(ReadImage(name)).value_or(ImageKind::kUnknown), ImageKind::kFatContainer) << name;
  for (const char* name : {"sm_80.cubin", "sm_90.cubin"})
    EXPECT_EQ(ValidateImage(ReadImage(name)).value_or(ImageKind::kUnknown), ImageKind::kCubin) << name;
}

TEST(ValidateImage, WantsTheNulOfText) {
  std::vector<std::byte> text = ReadImage("compute_80.ptx");
  EXPECT_EQ(ValidateImage(text).error().code(), StatusCode::kDataLoss);
  text.push_back(std::byte{0});
  EXPECT_EQ(ValidateImage(text).value_or(ImageKind::kUnknown), ImageKind::kPtxText);
}

TEST(ValidateImage, RefusesForeignElfFilesAndSegments) {
  std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  Put<uint16_t>(cubin, 18, 62);  // e_machine: x86-64
  EXPECT_EQ(ValidateImage(cubin).error().code(), StatusCode::kInvalidArgument);
  const uint32_t segment[6] = {kFatSegmentMagic, 1};
  EXPECT_FALSE(ValidateImage(std::as_bytes(std::span(segment))));
  EXPECT_FALSE(ValidateImage({}));
}

TEST(ValidateImage, LooksIntoStoredEntries) {
  std::vector<std::byte> image = ReadImage("none.fatbin");
  const std::vector<FatEntry> entries = ReadFatContainer(image).value();
  const auto cubin_offset = static_cast<size_t>(entries[1].payload.data() - image.data());
  Put<uint64_t>(image, cubin_offset + 0x28, uint64_t{1} << 33);  // e_shoff of the cubin
  EXPECT_EQ(ValidateImage(image).error().code(), StatusCode::kDataLoss);
}

TEST(ValidateImage, RefusesCubinsWhoseSectionsPointOut) {
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  uint64_t section_table = 0;
  uint16_t num_sections = 0;
  std::memcpy(&section_table, cubin.data() + 0x28, 8);
  std::memcpy(&num_sections, cubin.data() + 0x3C, 2);
  for (uint64_t i = 1; i < num_sections; ++i) {
    std::vector<std::byte> bad = cubin;
    uint32_t type = 0;
    std::memcpy(&type, cubin.data() + section_table + i * 64 + 4, 4);
    Put<uint64_t>(bad, section_table + i * 64 + 24, uint64_t{0} - 8);  // sh_offset
    EXPECT_EQ(static_cast<bool>(ValidateImage(bad)), type == 8 /* NOBITS: nothing to read */) << i;
  }
}

// Entries that claim so much each are fine by themselves; what is done for an image is done for all of them.
TEST(ValidateImage, BoundsWhatAllEntriesClaimTogether) {
  const auto container = [](size_t num_entries, uint64_t claim) {
    constexpr size_t kEntryBytes = 64 + (1 << 10);
    std::vector<std::byte> bytes(16 + num_entries * kEntryBytes);
    const auto put = [&](size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof(value)); };
    put(0, kFatContainerMagic);
    put(4, uint16_t{1});
    put(6, uint16_t{16});
    put(8, uint64_t{num_entries * kEntryBytes});
    for (size_t at = 16; at < bytes.size(); at += kEntryBytes) {
      put(at, FatEntryKind::kPtx);
      put(at + 4, uint32_t{64});
      put(at + 8, uint64_t{1 << 10});
      put(at + 16, uint32_t{1 << 10});
      put(at + 40, fat_flag::kZstd);
      put(at + 56, claim);
    }
    return bytes;
  };
  EXPECT_TRUE(ValidateImage(container(1024, 1 << 20)));
  const auto sum = ValidateImage(container(1025, 1 << 20));
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().code(), StatusCode::kResourceExhausted);
  const auto ratio = ValidateImage(container(1, 2 << 20));
  ASSERT_FALSE(ratio);
  EXPECT_EQ(ratio.error().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tally::images
