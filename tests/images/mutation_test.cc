// Thousands of damaged images, the same ones in every run: no reader may touch a byte outside (the address sanitizer
// watches) or take long, and what ValidateImage accepts can be read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "images/codecs.h"
#include "images/cubin.h"
#include "images/kernel_identity.h"
#include "tests/images/test_images.h"

namespace tally::images {
namespace {

// In an allocation of exactly its size, so that the sanitizer sees one byte too far.
class ExactBytes {
 public:
  explicit ExactBytes(std::span<const std::byte> bytes) : size_(bytes.size()), bytes_(new std::byte[bytes.size()]) {
    std::copy(bytes.begin(), bytes.end(), bytes_.get());
  }
  std::span<const std::byte> span() const { return {bytes_.get(), size_}; }

 private:
  size_t size_;
  std::unique_ptr<std::byte[]> bytes_;
};

void Mutate(std::vector<std::byte>& bytes, std::mt19937& random) {
  static constexpr uint64_t kNasty[] = {0,
                                        1,
                                        0x7F,
                                        0xFF,
                                        0x7FFF,
                                        0xFFFF,
                                        0x7FFFFFFF,
                                        0xFFFFFFFF,
                                        0xFFFFFFF8,
                                        uint64_t{1} << 63,
                                        ~uint64_t{0},
                                        ~uint64_t{15}};
  const size_t num_edits = 1 + random() % 4;
  for (size_t i = 0; i < num_edits && !bytes.empty(); ++i) {
    // Headers are near the front and, in a cubin, at the end.
    const size_t range = std::min<size_t>(bytes.size(), random() % 2 == 0 ? 256 : bytes.size());
    const size_t at = random() % 3 == 0 ? bytes.size() - 1 - random() % range : random() % range;
    switch (random() % 4) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1u << random() % 8);
        break;
      case 1: {
        const uint64_t value = kNasty[random() % std::size(kNasty)];
        std::memcpy(&bytes[at], &value, std::min<size_t>(size_t{1} << random() % 4, bytes.size() - at));
        break;
      }
      case 2:
        if (random() % 4 == 0) bytes.resize(at);
        break;
      default:
        std::copy_n(bytes.begin() + static_cast<long>(random() % bytes.size() / 2),
                    std::min<size_t>(random() % 64, bytes.size() / 2 - std::min(at, bytes.size() / 2)),
                    bytes.begin() + static_cast<long>(at / 2));
        break;
    }
  }
}

// Reads everything that can be read; returns whether ValidateImage took it.
bool ReadAll(std::span<const std::byte> bytes) {
  const Result<ImageKind> kind = ValidateImage(bytes);
  const Result<CubinView> cubin = CubinView::Parse(bytes);
  const Result<std::vector<FatEntry>> entries = ReadFatContainer(bytes);
  (void)MentionsPrintf(bytes);
  if (const auto identities = IdentifyKernels(bytes)) {
    size_t identity_bytes = 0;
    for (const KernelIdentity& kernel : *identities) identity_bytes += kernel.identity.size();
    EXPECT_LE(identity_bytes, 8 * bytes.size());
  }
  if (entries) {
    for (const FatEntry& entry : *entries) {
      (void)DecompressEntry(entry, size_t{1} << 20);
      (void)CubinView::Parse(entry.payload);
    }
  }
  if (!kind) return false;
  // An accepted image is inside: the pointer's own size agrees.
  const Result<size_t> size = ImageSizeFromPointer(bytes.data());
  EXPECT_TRUE(size) << size.error().ToString();
  EXPECT_LE(size.value_or(~size_t{0}), bytes.size());
  return true;
}

class Mutation : public testing::TestWithParam<const char*> {};

TEST_P(Mutation, NeverLeavesTheBytes) {
  const std::vector<std::byte> image = ReadImage(GetParam());
  std::mt19937 random(20240607);
  size_t num_accepted = 0;
  constexpr size_t kNumRuns = 3000;
  for (size_t run = 0; run < kNumRuns; ++run) {
    std::vector<std::byte> bytes = image;
    Mutate(bytes, random);
    const ExactBytes exact(bytes);
    num_accepted += ReadAll(exact.span()) ? 1 : 0;
  }
  // The mutations are worth something: some images survive them, some do not.
  EXPECT_GT(num_accepted, 0u);
  EXPECT_LT(num_accepted, kNumRuns);
}

INSTANTIATE_TEST_SUITE_P(Images, Mutation,
                         testing::Values("none.fatbin", "size.fatbin", "speed.fatbin", "sm_90.cubin", "sm_80.cubin",
                                         "linked.cubin", "separate.cubin"));

}  // namespace
}  // namespace tally::images
