#include "cubin-transforms/tool/library_cubins.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "images/codecs.h"
#include "images/cubin.h"
#include "images/fat_container.h"

namespace tally::cubin_transforms {
namespace {

// Where a container may begin next; the end if nowhere.
size_t FindContainer(std::span<const std::byte> file, size_t from) {
  const uint32_t magic = images::kFatContainerMagic;
  if (from >= file.size()) return file.size();
  const void* const found = memmem(file.data() + from, file.size() - from, &magic, sizeof(magic));
  return found == nullptr ? file.size() : static_cast<size_t>(static_cast<const std::byte*>(found) - file.data());
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return std::unexpected(StatusFromErrno(errno, "open " + path));
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return std::unexpected(StatusFromErrno(errno, "map " + path));
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

size_t ForEachCubin(std::span<const std::byte> file, const std::function<void(const FoundCubin&)>& visit) {
  size_t num_cubins = 0;
  if (const Result<images::CubinView> cubin = images::CubinView::Parse(file)) {
    visit({.arch = cubin->arch(), .bytes = std::vector<std::byte>(file.begin(), file.end())});
    return 1;
  }
  size_t container = 0;
  for (size_t at = FindContainer(file, 0); at < file.size();) {
    const auto rest = file.subspan(at);
    const Result<size_t> size = images::FatContainerBytes(rest);
    const auto entries = images::ReadFatContainer(rest);
    if (!size || !entries) {  // the magic number by chance
      at = FindContainer(file, at + 1);
      continue;
    }
    for (const images::FatEntry& entry : *entries) {
      if (entry.kind != images::FatEntryKind::kCubin) continue;
      visit({.container = container,
             .arch = entry.arch,
             .is_arch_specific = (entry.flags & images::fat_flag::kArchSpecific) != 0,
             .bytes = images::DecompressEntry(entry)});
      ++num_cubins;
    }
    ++container;
    at = FindContainer(file, at + *size);
  }
  return num_cubins;
}

}  // namespace tally::cubin_transforms
