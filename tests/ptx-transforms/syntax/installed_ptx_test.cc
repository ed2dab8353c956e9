// All PTX of an installed CUDA library, which we did not make: understood in full and back byte for byte.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <span>

#include "base/unique_fd.h"
#include "images/codecs.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

TEST(InstalledPtx, OfCurandComesBackByteForByte) {
  const std::string path = TALLY_TEST_CUDA_LIB_DIR "/libcurand.so.10";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) GTEST_SKIP() << "SKIPPED: no " << path << " on this machine";
  struct stat status;
  ASSERT_EQ(fstat(fd.get(), &status), 0);
  const auto size = static_cast<size_t>(status.st_size);
  const void* const file = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(file, MAP_FAILED);
  std::span<const std::byte> rest(static_cast<const std::byte*>(file), size);
  size_t num_texts = 0;
  size_t num_kernels = 0;
  // Containers are aligned to 8 bytes; anything else in the file is passed over.
  while (rest.size() > 16) {
    const Result<size_t> bytes = images::FatContainerBytes(rest);
    const Result<std::vector<images::FatEntry>> entries = images::ReadFatContainer(rest);
    if (!bytes || !entries) {
      rest = rest.subspan(8);
      continue;
    }
    for (const images::FatEntry& entry : *entries) {
      if (entry.kind != images::FatEntryKind::kPtx) continue;
      const Result<std::string> text = images::DecompressPtx(entry);
      ASSERT_TRUE(text) << text.error().ToString();
      const Module module = MustParse(*text);
      ++num_texts;
      for (const Item& item : module.items())
        if (const auto* function = std::get_if<Function>(&item.node)) num_kernels += function->is_entry ? 1 : 0;
    }
    rest = rest.subspan((*bytes + 7) / 8 * 8);
  }
  EXPECT_GT(num_texts, 3u);
  EXPECT_GT(num_kernels, 100u);
}

}  // namespace
}  // namespace tally::ptx_transforms
