#include "client-shim/launcher/program.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tally::launcher {
namespace {

using ::testing::HasSubstr;

class FindProgramTest : public ::testing::Test {
 protected:
  std::string WriteFile(const std::string& name, const std::string& bytes, mode_t mode) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    ::chmod(path.c_str(), mode);
    return path;
  }

  // The head of an ELF program whose only segment has `type`.
  static std::string ElfWithSegment(uint32_t type) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_phoff = sizeof(header);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = type;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    return bytes.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(FindProgramTest, LooksInPathLikeAShell) {
  WriteFile("mine", "#!/bin/sh\n", 0755);
  ::setenv("PATH", ("/nowhere:" + directory_).c_str(), 1);
  EXPECT_EQ(FindProgram("mine").path, directory_ + "/mine");
  const Program missing = FindProgram("not-mine");
  EXPECT_EQ(missing.exit_status, 127);
  EXPECT_THAT(missing.error, HasSubstr("no program 'not-mine' in PATH"));
}

TEST_F(FindProgramTest, SaysWhyAFileCannotBeRun) {
  const Program plain = FindProgram(WriteFile("plain", "text", 0644));
  EXPECT_EQ(plain.exit_status, 126);
  EXPECT_THAT(plain.error, HasSubstr("not an executable file"));
  EXPECT_EQ(FindProgram(directory_).exit_status, 126);
  EXPECT_EQ(FindProgram(directory_ + "/gone").exit_status, 127);
  EXPECT_EQ(FindProgram(directory_ + "/plain/below").exit_status, 127);
}

TEST_F(FindProgramTest, PointsOutStaticPrograms) {
  const Program fixed = FindProgram(WriteFile("static", ElfWithSegment(PT_LOAD), 0755));
  EXPECT_FALSE(fixed.path.empty());
  EXPECT_THAT(fixed.warning, HasSubstr("statically linked"));
  EXPECT_EQ(FindProgram(WriteFile("dynamic", ElfWithSegment(PT_INTERP), 0755)).warning, "");
  EXPECT_EQ(FindProgram(WriteFile("script", "#!/bin/sh\n", 0755)).warning, "");
  EXPECT_EQ(FindProgram(WriteFile("cut", ElfWithSegment(PT_LOAD).substr(0, 70), 0755)).warning, "");
}

}  // namespace
}  // namespace tally::launcher
