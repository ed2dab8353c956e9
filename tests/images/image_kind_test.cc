#include "images/image_kind.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "images/elf_view.h"
#include "tests/images/test_images.h"

namespace tally::images {
namespace {

struct Segment {
  uint32_t magic = kFatSegmentMagic;
  uint32_t version = 1;
  const void* container = nullptr;
  const void* prelinked = nullptr;
};

TEST(ImageKind, IsToldByTheFirstBytes) {
  EXPECT_EQ(KindOfImage(ReadImage("default.fatbin")), ImageKind::kFatContainer);
  EXPECT_EQ(KindOfImage(ReadImage("sm_90.cubin")), ImageKind::kCubin);
  EXPECT_EQ(KindOfImage(ReadImage("compute_80.ptx")), ImageKind::kPtxText);
  const Segment segment;
  EXPECT_EQ(KindOfImageAt(&segment), ImageKind::kFatSegment);
  EXPECT_EQ(KindOfImageAt("\n"), ImageKind::kPtxText);
  EXPECT_EQ(KindOfImageAt(""), ImageKind::kUnknown);
  EXPECT_EQ(KindOfImageAt("\x01\x02\x03\x04"), ImageKind::kUnknown);
  EXPECT_EQ(KindOfImage({}), ImageKind::kUnknown);
}

TEST(ImageSizeFromPointer, IsExactForWhatTheToolkitMakes) {
  for (const char* name :
       {"none.fatbin", "size.fatbin", "speed.fatbin", "default.fatbin", "sm_90.cubin", "sm_80.cubin"}) {
    std::vector<std::byte> image = ReadImage(name);
    const size_t size = image.size();
    image.resize(size + 64, std::byte{0x7F});  // what follows in memory does not matter
    EXPECT_EQ(ImageSizeFromPointer(image.data()).value_or(0), size) << name;
  }
}

TEST(ImageSizeFromPointer, EndsWithTheLastSectionWhereverItIs) {
  std::vector<std::byte> image = ReadImage("sm_90.cubin");
  const ElfView elf = ElfView::Parse(image).value();
  const auto names = std::ranges::find(elf.sections(), uint32_t{SHT_STRTAB}, &ElfSection::type);
  const uint64_t header =
      elf.header().e_shoff + static_cast<uint64_t>(names - elf.sections().begin()) * sizeof(Elf64_Shdr);
  const uint64_t moved = image.size(), size = moved + names->size;
  image.resize(size + 64);
  std::memcpy(image.data() + header + offsetof(Elf64_Shdr, sh_offset), &moved, sizeof(moved));
  EXPECT_EQ(ImageSizeFromPointer(image.data()).value_or(0), size);
}

TEST(ImageSizeFromPointer, OfTextCountsTheNul) {
  EXPECT_EQ(ImageSizeFromPointer(".version 8.0").value_or(0), 13u);
  const std::string text = ReadTextImage("compute_80.ptx");
  EXPECT_EQ(ImageSizeFromPointer(text.c_str()).value_or(0), text.size() + 1);
}

TEST(ImageSizeFromPointer, RefusesWhatIsNoImage) {
  EXPECT_EQ(ImageSizeFromPointer(nullptr).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ImageSizeFromPointer("\x80\x81\x82\x83").error().code(), StatusCode::kInvalidArgument);
  const Segment segment;
  EXPECT_EQ(ImageSizeFromPointer(&segment).error().code(), StatusCode::kInvalidArgument);
}

TEST(ImageSizeFromPointer, RefusesAbsurdSizes) {
  std::vector<std::byte> container = ReadImage("default.fatbin");
  const uint64_t size = uint64_t{1} << 40;
  std::memcpy(container.data() + 8, &size, sizeof(size));
  EXPECT_EQ(ImageSizeFromPointer(container.data()).error().code(), StatusCode::kOutOfRange);

  std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  std::memcpy(cubin.data() + 0x28, &size, sizeof(size));  // e_shoff
  EXPECT_EQ(ImageSizeFromPointer(cubin.data()).error().code(), StatusCode::kOutOfRange);
}

TEST(ContainersOfSegment, VersionOneHasOne) {
  const std::vector<std::byte> container = ReadImage("default.fatbin");
  const Segment segment{.container = container.data()};
  EXPECT_THAT(ContainersOfSegment(&segment).value(), testing::ElementsAre(container.data()));
}

TEST(ContainersOfSegment, VersionTwoHasTheLinkedOneAndThePrelinkedOnes) {
  const std::vector<std::byte> a = ReadImage("default.fatbin");
  const std::vector<std::byte> b = ReadImage("none.fatbin");
  const std::vector<std::byte> c = ReadImage("size.fatbin");
  const void* const prelinked[] = {b.data(), c.data(), nullptr};
  const Segment segment{.version = 2, .container = a.data(), .prelinked = prelinked};
  EXPECT_THAT(ContainersOfSegment(&segment).value(), testing::ElementsAre(a.data(), b.data(), c.data()));
  // In version 1 the field is a file name.
  const Segment named{.version = 1, .container = a.data(), .prelinked = prelinked};
  EXPECT_THAT(ContainersOfSegment(&named).value(), testing::ElementsAre(a.data()));
}

TEST(ContainersOfSegment, RefusesWhatIsNoSegment) {
  const std::vector<std::byte> container = ReadImage("default.fatbin");
  EXPECT_FALSE(ContainersOfSegment(nullptr));
  EXPECT_FALSE(ContainersOfSegment(container.data()));
  const Segment unknown_version{.version = 3, .container = container.data()};
  EXPECT_THAT(ContainersOfSegment(&unknown_version).error().message(), testing::HasSubstr("version 3"));
  const Segment empty;
  EXPECT_FALSE(ContainersOfSegment(&empty));
  const Segment astray{.container = "text"};
  EXPECT_FALSE(ContainersOfSegment(&astray));
}

}  // namespace
}  // namespace tally::images
