#include "images/fat_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "images/codecs.h"
#include "images/cubin.h"
#include "tests/images/test_images.h"

namespace tally::images {
namespace {

std::vector<std::byte> Pair(const std::string& cubin, const std::string& ptx) {
  const std::string text = ReadTextImage(ptx);
  const std::vector<std::byte> code = ReadImage(cubin);
  return WriteCubinWithPtx(code, CubinView::Parse(code)->arch(), text, ReadPtxHead(text).value());
}

TEST(WriteCubinWithPtx, IsReadBackAsItWas) {
  const std::vector<std::byte> container = Pair("sm_90.cubin", "compute_80.ptx");
  const auto kind = ValidateImage(container);
  ASSERT_TRUE(kind) << kind.error().ToString();
  EXPECT_EQ(*kind, ImageKind::kFatContainer);
  EXPECT_EQ(ImageSizeFromPointer(container.data()).value(), container.size());
  const auto entries = ReadFatContainer(container);
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 2u);
  const FatEntry& ptx = (*entries)[0];
  const FatEntry& cubin = (*entries)[1];
  EXPECT_EQ(ptx.kind, FatEntryKind::kPtx);
  EXPECT_EQ(ptx.arch, 80u);
  EXPECT_EQ(DecompressPtx(ptx).value(), ReadTextImage("compute_80.ptx"));
  EXPECT_EQ(cubin.kind, FatEntryKind::kCubin);
  EXPECT_EQ(cubin.arch, 90u);
  const std::vector<std::byte> code = ReadImage("sm_90.cubin");
  ASSERT_GE(cubin.payload.size(), code.size());
  EXPECT_TRUE(std::equal(code.begin(), code.end(), cubin.payload.begin()));
}

// Byte for byte the headers that the toolkit writes for the same two files.
TEST(WriteCubinWithPtx, WritesWhatFatbinaryWrites) {
  const std::vector<std::byte> ours = Pair("sm_90.cubin", "compute_80.ptx"), theirs = ReadImage("none.fatbin");
  const auto a = ReadFatContainer(ours), b = ReadFatContainer(theirs);
  ASSERT_EQ(a->size(), b->size());
  for (size_t i = 0; i < a->size(); ++i) {
    const FatEntry &mine = (*a)[i], &wanted = (*b)[i];
    const size_t header_bytes = mine.whole.size() - mine.payload.size();
    ASSERT_EQ(header_bytes, wanted.whole.size() - wanted.payload.size()) << i;
    std::vector<std::byte> header(wanted.whole.begin(), wanted.whole.begin() + static_cast<long>(header_bytes));
    const uint64_t padded_bytes = mine.payload.size();  // fatbinary leaves the PTX's comments out
    std::memcpy(header.data() + 8, &padded_bytes, sizeof(padded_bytes));
    EXPECT_TRUE(std::equal(header.begin(), header.end(), mine.whole.begin())) << i;
  }
}

TEST(WriteCubinWithPtx, IsListedByTheToolkit) {
  const std::string path = testing::TempDir() + "/tally_pair.fatbin";
  const std::vector<std::byte> container = Pair("linked.cubin", "compute_90.ptx");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(container.data()), static_cast<long>(container.size()));
  const std::string tool = TALLY_TEST_CUDA_LIB_DIR "/../bin/cuobjdump";
  if (!std::ifstream(tool)) GTEST_SKIP() << "no " << tool;
  const std::string command = tool + " --list-elf --list-ptx " + path + " > " + path + ".list";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream list(path + ".list");
  const std::string text((std::istreambuf_iterator<char>(list)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("sm_90.cubin"), std::string::npos) << text;
  EXPECT_NE(text.find("sm_90.ptx"), std::string::npos) << text;
}

}  // namespace
}  // namespace tally::images
