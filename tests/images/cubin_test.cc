#include "images/cubin.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "images/elf_view.h"
#include "images/image_kind.h"
#include "tests/images/test_images.h"

namespace tally::images {

bool operator==(const CubinParameter& a, const CubinParameter& b) { return a.offset == b.offset && a.bytes == b.bytes; }
void PrintTo(const CubinParameter& parameter, std::ostream* out) {
  *out << parameter.bytes << " bytes at " << parameter.offset;
}

namespace {

using testing::ElementsAre;

TEST(CubinView, ReadsParameterLayouts) {
  const std::vector<std::byte> image = ReadImage("sm_90.cubin");
  const Result<CubinView> view = CubinView::Parse(image);
  ASSERT_TRUE(view) << view.error().ToString();
  EXPECT_EQ(view->arch(), 90u);

  const CubinKernel* bounded = view->FindKernel("Bounded");
  ASSERT_NE(bounded, nullptr);
  EXPECT_THAT(bounded->parameters,
              ElementsAre(CubinParameter{0, 8}, CubinParameter{8, 4}, CubinParameter{12, 1}, CubinParameter{13, 200}));
  EXPECT_EQ(bounded->parameter_bytes, 213u);
  EXPECT_THAT(bounded->max_threads, ElementsAre(128, 1, 1));
  EXPECT_EQ(bounded->static_shared_bytes, 33u * 4);
  EXPECT_GT(bounded->registers, 4u);
  EXPECT_GT(bounded->code_bytes, 0u);

  EXPECT_THAT(view->FindKernel("Prints")->parameters, ElementsAre());
  EXPECT_EQ(view->FindKernel("Prints")->parameter_bytes, 0u);
  // More than 4 KB of parameters have records of their own.
  EXPECT_THAT(view->FindKernel("HugeParameter")->parameters,
              ElementsAre(CubinParameter{0, 8000}, CubinParameter{8000, 8}));
  EXPECT_THAT(view->FindKernel("Clustered")->cluster, ElementsAre(2, 1, 1));
  EXPECT_EQ(view->FindKernel("Absent"), nullptr);
}

TEST(CubinView, ReadsOffsetsThatDoNotStartAtZero) {
  const std::vector<std::byte> image = ReadImage("sm_90.cubin");
  const CubinView view = CubinView::Parse(image).value();
  const CubinKernel* aligned = view.FindKernel("AlignedParameter");
  ASSERT_NE(aligned, nullptr);
  ASSERT_EQ(aligned->parameters.size(), 2u);
  EXPECT_EQ(aligned->parameters[0].bytes, 64u);
  EXPECT_EQ(aligned->parameters[1].offset, aligned->parameters[0].offset + 64);
  EXPECT_EQ(aligned->parameter_bytes, aligned->parameters[1].offset + 8);
}

TEST(CubinView, KnowsTheArchitecture) {
  const std::vector<std::byte> image = ReadImage("sm_80.cubin");
  const CubinView view = CubinView::Parse(image).value();
  EXPECT_EQ(view.arch(), 80u);
  EXPECT_EQ(view.kernels().size(), 4u);
  EXPECT_EQ(view.FindKernel("Bounded")->static_shared_bytes, 33u * 4);
}

TEST(CubinView, SeesPrintf) {
  const std::vector<std::byte> image = ReadImage("sm_90.cubin");
  EXPECT_TRUE(CubinView::Parse(image)->mentions_printf());
  EXPECT_TRUE(MentionsPrintf(image));
  EXPECT_TRUE(MentionsPrintf(ReadImage("compute_80.ptx")));
  EXPECT_TRUE(MentionsPrintf(ReadImage("none.fatbin")));
  EXPECT_TRUE(MentionsPrintf(ReadImage("size.fatbin")));  // cannot be ruled out
  EXPECT_FALSE(MentionsPrintf(BytesOf(".version 8.0 .target sm_90")));
  EXPECT_FALSE(MentionsPrintf({}));

  std::vector<std::byte> renamed = image;
  const std::string_view text(reinterpret_cast<const char*>(renamed.data()), renamed.size());
  for (size_t at = text.find("vprintf"); at != std::string_view::npos; at = text.find("vprintf", at))
    renamed[at] = std::byte{'w'};
  EXPECT_FALSE(MentionsPrintf(renamed));
}

TEST(ReadNvAttributes, ReadsEachFormat) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> result;
    for (const int value : values) result.push_back(static_cast<std::byte>(value));
    return result;
  };
  // Without a value, of one byte (another one is there), of two, with a payload.
  const std::vector<std::byte> section =
      bytes({1, 0x11, 0, 0, 2, 0x12, 0x34, 0x56, 3, 0x13, 0x34, 0x56, 4, 0x14, 2, 0, 0xAB, 0xCD});
  const auto records = ReadNvAttributes(section);
  ASSERT_TRUE(records) << records.error().ToString();
  ASSERT_EQ(records->size(), 4u);
  EXPECT_EQ((*records)[1].value, 0x34u);
  EXPECT_EQ((*records)[2].value, 0x5634u);
  EXPECT_EQ((*records)[3].payload.size(), 2u);
  for (const auto& bad : {bytes({5, 0x11, 0, 0}), bytes({4, 0x14, 3, 0, 0xAB, 0xCD}), bytes({1, 0x11, 0})})
    EXPECT_EQ(ReadNvAttributes(bad).error().code(), StatusCode::kDataLoss);
}

TEST(CubinView, RefusesNumbersOfWhatIsNotThere) {
  std::vector<std::byte> image = ReadImage("sm_90.cubin");
  const ElfView elf = ElfView::Parse(image).value();
  const std::vector<ElfSection>& sections = elf.sections();
  // As many as there are is one too many: a symbol table's names, and the ordinal of a parameter.
  const auto symbols = std::ranges::find(sections, uint32_t{SHT_SYMTAB}, &ElfSection::type);
  const uint64_t header = elf.header().e_shoff + static_cast<uint64_t>(symbols - sections.begin()) * sizeof(Elf64_Shdr);
  std::vector<std::byte> bad = image;
  const auto count = static_cast<uint32_t>(sections.size());
  std::memcpy(bad.data() + header + offsetof(Elf64_Shdr, sh_link), &count, sizeof(count));
  EXPECT_FALSE(CubinView::Parse(bad));

  const auto records = std::ranges::find(sections, std::string_view(".nv.info.Bounded"), &ElfSection::name);
  bad = image;
  const std::vector<NvAttribute> attributes = ReadNvAttributes(records->content).value();
  for (const NvAttribute& record : attributes) {
    if (record.id != 0x17 || record.payload[4] != std::byte{3}) continue;  // the last of four parameters
    bad[static_cast<size_t>(record.payload.data() - image.data()) + 4] = std::byte{4};
  }
  ASSERT_NE(bad, image);
  EXPECT_FALSE(CubinView::Parse(bad));
}

TEST(CubinView, RefusesEveryTruncation) {
  const std::vector<std::byte> image = ReadImage("sm_90.cubin");
  for (size_t size = 0; size < image.size(); size += size < 256 ? 1 : 61)
    EXPECT_FALSE(CubinView::Parse(std::span(image).first(size))) << size;
}

TEST(CubinView, MemoryOfTheRunNeedsNoBytes) {
  std::vector<std::byte> image = ReadImage("sm_90.cubin");
  uint64_t section_table = 0;
  uint16_t num_sections = 0;
  std::memcpy(&section_table, image.data() + 0x28, 8);
  std::memcpy(&num_sections, image.data() + 0x3C, 2);
  size_t num_changed = 0;
  for (uint64_t i = 0; i < num_sections; ++i) {
    std::byte* const section = image.data() + section_table + i * 64;
    uint32_t type = 0;
    std::memcpy(&type, section + 4, 4);
    if (type != 8) continue;  // NOBITS
    type = 0x7000000A;        // CUDA's own type for shared memory
    const uint64_t size = image.size() * 2;
    std::memcpy(section + 4, &type, 4);
    std::memcpy(section + 32, &size, 8);
    ++num_changed;
  }
  ASSERT_GT(num_changed, 0u);
  EXPECT_TRUE(CubinView::Parse(image));
  EXPECT_EQ(ImageSizeFromPointer(image.data()).value_or(0), image.size());
}

TEST(CubinView, OverlappingNamesOfAHostileFileTakeLinearTime) {
  // 400 000 symbols that all name the same 4 MB string would be 1.6 TB to read.
  const std::vector<std::byte> image = ReadImage("sm_90.cubin");
  constexpr size_t kNameBytes = size_t{4} << 20;
  constexpr size_t kNumSymbols = 400'000;
  std::vector<std::byte> bad(64 + 4 * 64 + kNameBytes + kNumSymbols * 24);
  std::memcpy(bad.data(), image.data(), 64);
  const auto put = [&bad](size_t offset, auto value) { std::memcpy(bad.data() + offset, &value, sizeof(value)); };
  put(0x20, uint64_t{0});   // e_phoff
  put(0x28, uint64_t{64});  // e_shoff
  put(0x38, uint16_t{0});   // e_phnum
  put(0x3C, uint16_t{4});   // e_shnum
  put(0x3E, uint16_t{1});   // e_shstrndx
  const auto put_section = [&](size_t index, uint32_t type, uint64_t offset, uint64_t size, uint32_t link) {
    const size_t at = 64 + index * 64;
    put(at + 4, type);
    put(at + 24, offset);
    put(at + 32, size);
    put(at + 40, link);
  };
  const uint64_t names = 64 + 4 * 64;
  put_section(1, 3, names + kNameBytes - 1, 1, 0);
  put_section(2, 3, names, kNameBytes, 0);
  put_section(3, 2, names + kNameBytes, kNumSymbols * 24, 2);
  std::memset(bad.data() + names, 'a', kNameBytes - 1);
  EXPECT_EQ(CubinView::Parse(bad).error().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tally::images
