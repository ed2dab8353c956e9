// Our versions beside this machine's own, which dlsym still finds: ours are hidden.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/support/temporary_directory.h"

extern "C" uint32_t arc4random() noexcept;  // for whoever builds with headers older than 2.36
extern "C" unsigned long __isoc23_strtoul(const char*, char**, int);
extern "C" unsigned long long __isoc23_strtoull(const char*, char**, int);
extern "C" int __isoc23_sscanf(const char*, const char*, ...);

namespace tally {
namespace {

template <typename Function>
Function* OfGlibc(Function* ours, const char* name) {
  void* theirs = ::dlsym(RTLD_DEFAULT, name);
  EXPECT_NE(theirs, nullptr) << name;
  EXPECT_NE(theirs, reinterpret_cast<void*>(ours)) << name << " is not ours";
  return reinterpret_cast<Function*>(theirs);
}

TEST(NewerGlibc, StateOfFilesIsGlibcs) {
  const TemporaryDirectory directory;
  const std::string link = directory.path() + "/link";
  ASSERT_EQ(::symlink("/usr/bin", link.c_str()), 0);
  for (const auto& [ours, name] : {std::pair{&::stat, "stat"}, std::pair{&::lstat, "lstat"}}) {
    auto* theirs = OfGlibc(ours, name);
    struct stat own {};
    struct stat expected {};
    ASSERT_EQ(ours(link.c_str(), &own), 0);
    ASSERT_EQ(theirs(link.c_str(), &expected), 0);
    EXPECT_EQ(std::memcmp(&own, &expected, sizeof(own)), 0) << name;
    EXPECT_EQ(S_ISLNK(own.st_mode), ours == &::lstat);
    errno = 0;
    EXPECT_EQ(ours("/nowhere", &own), -1);
    EXPECT_EQ(errno, ENOENT);
  }
  struct stat of_path {};
  struct stat of_descriptor {};
  ASSERT_EQ(::stat("/dev/null", &of_path), 0);
  OfGlibc(&::fstat, "fstat");
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::fstat(null, &of_descriptor), 0);
  EXPECT_EQ(std::memcmp(&of_path, &of_descriptor, sizeof(of_path)), 0);
  ::close(null);
  errno = 0;
  EXPECT_EQ(::fstat(-1, &of_descriptor), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(NewerGlibc, ObjectsOfAddressesAreTheLoaders) {
  auto* theirs = OfGlibc(&::_dl_find_object, "_dl_find_object");
  int on_stack = 0;
  void* code_and_none[] = {reinterpret_cast<void*>(&OfGlibc<int()>),
                           ::dlsym(RTLD_DEFAULT, "malloc"),
                           ::dlsym(RTLD_DEFAULT, "_Unwind_Resume"),
                           &on_stack,
                           nullptr,
                           reinterpret_cast<void*>(-1)};
  for (void* address : code_and_none) {
    dl_find_object own{};
    dl_find_object expected{};
    const int found = theirs(address, &expected);
    ASSERT_EQ(::_dl_find_object(address, &own), found) << address;
    if (found != 0) continue;
    EXPECT_EQ(own.dlfo_eh_frame, expected.dlfo_eh_frame);
    EXPECT_LE(own.dlfo_map_start, address);
    EXPECT_GT(own.dlfo_map_end, address);
  }
}

TEST(NewerGlibc, NumbersAreReadAsBefore) {
  char text[] = "18446744073709551615x";
  char* end = nullptr;
  EXPECT_EQ(::__isoc23_strtoul(text, &end, 10), ~0UL);
  EXPECT_EQ(end, text + 20);
  EXPECT_EQ(::__isoc23_strtoull("ff", nullptr, 16), 255U);
  unsigned domain = 0, bus = 0;
  EXPECT_EQ(::__isoc23_sscanf("1a:2", "%x:%x", &domain, &bus), 2);
  EXPECT_EQ(domain, 26U);
  EXPECT_EQ(bus, 2U);
}

TEST(NewerGlibc, RandomNumbersDiffer) {
  const uint32_t first = ::arc4random();
  EXPECT_TRUE(::arc4random() != first || ::arc4random() != first);
}

}  // namespace
}  // namespace tally
