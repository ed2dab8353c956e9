#include "client-shim/launcher/program.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
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

  // The head of an ELF program with one segment: what names its loader, or, without a loader, code.
  static std::string Elf(const std::string& loader, uint16_t machine = EM_X86_64, uint8_t elf_class = ELFCLASS64) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_machine = machine;
    header.e_phoff = sizeof(header);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = loader.empty() ? PT_LOAD : PT_INTERP;
    segment.p_offset = sizeof(header) + sizeof(segment);
    segment.p_filesz = loader.size() + 1;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
    return bytes.append(loader.c_str(), loader.size() + 1);
  }

  // `reason` is why Tally cannot help the program, and not why it cannot be run.
  static void ExpectRefused(const Program& program, const std::string& reason) {
    EXPECT_EQ(program.path, "");
    EXPECT_EQ(program.exit_status, 1);
    EXPECT_THAT(program.error, HasSubstr(reason));
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(FindProgramTest, AnEmptyEntryOfPathIsTheWorkingDirectory) {
  WriteFile("mine", "#!/bin/sh\n", 0755);
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  for (const char* path : {":/nowhere", "/nowhere:", "/nowhere::/elsewhere", ""}) {
    ::setenv("PATH", path, 1);
    EXPECT_EQ(FindProgram("mine").path, "./mine") << path;
  }
  std::filesystem::current_path(before);
}

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

TEST_F(FindProgramTest, RefusesProgramsThatCannotLoadTheLibrary) {
  ExpectRefused(FindProgram(WriteFile("static", Elf(""), 0755)), "statically linked");
  ExpectRefused(FindProgram(WriteFile("musl", Elf("/lib/ld-musl-x86_64.so.1"), 0755)), "built for musl");
  ExpectRefused(FindProgram(WriteFile("small", Elf("", EM_386, ELFCLASS32), 0755)), "a 32-bit program");
  ExpectRefused(FindProgram(WriteFile("arm", Elf("/lib/ld.so", EM_AARCH64), 0755)), "not a program for x86-64");
  ExpectRefused(FindProgram(WriteFile("ld-linux-x86-64.so.2", Elf(""), 0755)), "name the program itself");
}

TEST_F(FindProgramTest, NamesTheLoaderOfProgramsAndScripts) {
  const std::string program = WriteFile("program", Elf("/opt/ld.so"), 0755);
  EXPECT_EQ(FindProgram(program).loader, "/opt/ld.so");
  const Program script = FindProgram(WriteFile("script", "#! " + program + " -x\n", 0755));
  EXPECT_EQ(script.loader, "/opt/ld.so");
  EXPECT_EQ(script.image, program);
  EXPECT_EQ(script.path, directory_ + "/script");
  EXPECT_EQ(FindProgram(WriteFile("nested", "#!" + script.path + "\n", 0755)).loader, "/opt/ld.so");
}

TEST_F(FindProgramTest, FollowsScriptsToTheirInterpreter) {
  const std::string fixed = WriteFile("fixed", Elf(""), 0755);
  ExpectRefused(FindProgram(WriteFile("direct", "#!" + fixed + "\n", 0755)), "'" + fixed + "'");
  ::setenv("PATH", directory_.c_str(), 1);
  WriteFile("env", Elf("/lib64/ld-linux-x86-64.so.2"), 0755);
  ExpectRefused(FindProgram(WriteFile("env-1", "#!" + directory_ + "/env fixed", 0755)), "'" + fixed + "'");
  ExpectRefused(FindProgram(WriteFile("env-2", "#!" + directory_ + "/env -S A=b fixed x\n", 0755)), "'" + fixed + "'");
}

TEST_F(FindProgramTest, LeavesBrokenFilesToTheKernel) {
  WriteFile("loop", "#!" + directory_ + "/loop\n", 0755);
  const std::string whole = Elf("/opt/ld.so");
  for (size_t size = 0; size < sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 5; size += 5) {
    const Program cut = FindProgram(WriteFile("cut", whole.substr(0, size), 0755));
    EXPECT_EQ(cut.error, "") << size;
    EXPECT_EQ(cut.loader, "") << size;
  }
  EXPECT_EQ(FindProgram(directory_ + "/loop").error, "");
}

}  // namespace
}  // namespace tally::launcher
