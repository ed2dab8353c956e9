#include "images/codecs.h"

#include <gmock/gmock.h>

#include "tests/images/test_images.h"

namespace tally::images {
namespace {

TEST(DecompressEntry, GivesBackWhatWentIn) {
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  const std::string ptx = ReadTextImage("compute_80.ptx");
  for (const char* name : {"none.fatbin", "size.fatbin", "speed.fatbin", "default.fatbin"}) {
    const std::vector<std::byte> image = ReadImage(name);
    const std::vector<FatEntry> entries = ReadFatContainer(image).value();
    // fatbinary drops the comments at the top and blank lines; the code itself is as it was.
    const Result<std::string> text = DecompressPtx(entries[0]);
    ASSERT_TRUE(text) << name << text.error().ToString();
    EXPECT_EQ(text->find('\0'), std::string::npos);
    EXPECT_THAT(*text, testing::HasSubstr(ptx.substr(ptx.find(".version"), 12))) << name;
    EXPECT_THAT(*text, testing::HasSubstr("HugeParameter_param_0[8000]")) << name;
    EXPECT_EQ(DecompressEntry(entries[1]).value(), cubin) << name;
  }
}

TEST(DecompressEntry, RefusesToGrowBeyondTheLimit) {
  const std::vector<std::byte> image = ReadImage("size.fatbin");
  const std::vector<FatEntry> entries = ReadFatContainer(image).value();
  EXPECT_EQ(DecompressEntry(entries[1], 100).error().code(), StatusCode::kResourceExhausted);
  FatEntry liar = entries[1];
  liar.uncompressed_bytes = uint64_t{1} << 60;
  EXPECT_EQ(DecompressEntry(liar).error().code(), StatusCode::kResourceExhausted);
}

// A bomb: memory of hundreds of MiB for a few KiB of somebody else's. The claim alone gives it away.
TEST(DecompressEntry, RefusesAClaimThatNoCodeCouldMakeTrue) {
  const std::vector<std::byte> image = ReadImage("size.fatbin");
  FatEntry liar = ReadFatContainer(image).value()[1];
  liar.uncompressed_bytes = 500 << 20;
  EXPECT_EQ(DecompressEntry(liar).error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(DecompressEntry(liar).error().message(), testing::HasSubstr("times its size"));
}

TEST(DecompressEntry, SeesThatSizesDoNotAgree) {
  for (const char* name : {"size.fatbin", "speed.fatbin"}) {
    const std::vector<std::byte> image = ReadImage(name);
    const FatEntry ptx = ReadFatContainer(image).value()[0];
    FatEntry liar = ptx;
    liar.uncompressed_bytes = ptx.uncompressed_bytes + 1;
    EXPECT_EQ(DecompressEntry(liar).error().code(), StatusCode::kDataLoss) << name;
    liar.uncompressed_bytes = ptx.uncompressed_bytes - 1;
    EXPECT_EQ(DecompressEntry(liar).error().code(), StatusCode::kDataLoss) << name;
    liar = ptx;
    liar.payload = ptx.payload.first(ptx.payload.size() / 2);
    EXPECT_EQ(DecompressEntry(liar).error().code(), StatusCode::kDataLoss) << name;
  }
}

TEST(DecompressEntry, RefusesUnknownCompressionAndKind) {
  const std::vector<std::byte> image = ReadImage("none.fatbin");
  const std::vector<FatEntry> entries = ReadFatContainer(image).value();
  FatEntry unknown = entries[0];
  unknown.compression = Compression::kUnknown;
  EXPECT_EQ(DecompressEntry(unknown).error().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(DecompressPtx(entries[1]).error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tally::images
