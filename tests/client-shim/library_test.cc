// The built library as a file: what it exports, what it runs when it is loaded, and that no call crashes on null
// pointers.
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/client-shim/fake_executor.h"

namespace tally::client_shim {
namespace {

std::vector<char> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Names of the defined dynamic symbols of a 64-bit ELF file, and the bytes of its .init_array.
struct Library {
  std::set<std::string> exports;
  size_t init_array_entries = 0;
};
Library ReadLibrary(const std::string& path) {
  const std::vector<char> bytes = ReadFile(path);
  Library library;
  EXPECT_GT(bytes.size(), sizeof(Elf64_Ehdr)) << path;
  if (bytes.size() <= sizeof(Elf64_Ehdr)) return library;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type == SHT_INIT_ARRAY) library.init_array_entries = section.sh_size / sizeof(void*);
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + section.sh_offset);
    const char* names = bytes.data() + sections[section.sh_link].sh_offset;
    for (size_t s = 0; s < section.sh_size / sizeof(Elf64_Sym); ++s) {
      if (symbols[s].st_shndx != SHN_UNDEF && symbols[s].st_name != 0)
        library.exports.insert(names + symbols[s].st_name);
    }
  }
  return library;
}

TEST(ShimLibrary, ExportsTheDriversNamesItsMarkerAndDeclarationsOnly) {
  std::set<std::string> expected = ReadLibrary(TALLY_CUDA_ROOT "/lib64/stubs/libcuda.so").exports;
  ASSERT_GT(expected.size(), 600u);
  expected.insert({"tally_shim_marker", "tally_declare_segments", "tally_declare_opaque", "tally_expect_work",
                   "tally_task_begin", "tally_task_end"});
  EXPECT_EQ(ReadLibrary(TALLY_SHIM_PATH).exports, expected);
}

// Static constructors run in every program that loads the library, before main: none may be ours. What is there comes
// with the compiler (frame registration) and the C++ runtime inside the library.
TEST(ShimLibrary, RunsNothingOfItsOwnWhenLoaded) {
  EXPECT_LE(ReadLibrary(TALLY_SHIM_PATH).init_array_entries, 10u);
  for (const std::string& object : {std::string(TALLY_SHIM_OBJECTS)}) {
    const std::string command =
        "for o in $(find " + object +
        " -name '*.o'); do readelf -SW $o | grep -l -q '\\.init_array\\|\\.ctors' && echo $o; done";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char line[512];
    while (std::fgets(line, sizeof(line), pipe) != nullptr) ADD_FAILURE() << "has a static constructor: " << line;
    ::pclose(pipe);
  }
}

enum Verdict { kLocal, kAsync, kSync, kRefused, kTwin };

struct Row {
  const char* name;
  Verdict verdict;
};
constexpr Row kRows[] = {
#define TALLY_SYMBOL(index, name, verdict) {name, verdict},
#include "proto/driver/generated/symbols.inc"
#undef TALLY_SYMBOL
};

TEST(ShimLibrary, EveryRowOfTheTableIsExported) {
  void* library = OpenShim();
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(std::size(kRows), 637u);
  for (const Row& row : kRows) EXPECT_NE(::dlsym(library, row.name), nullptr) << row.name;
}

// Calls everything with null arguments. 0 if every refused call says so.
int CallEverything() {
  void* library = OpenShim();
  using Any = CUresult (*)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*);
  int failures = 0;
  for (const Row& row : kRows) {
    const auto call = reinterpret_cast<Any>(::dlsym(library, row.name));
    void* no = nullptr;
    const CUresult result = call(no, no, no, no, no, no, no, no, no, no, no);
    if (row.verdict == kRefused && result != CUDA_ERROR_NOT_SUPPORTED) {
      std::fprintf(stderr, "%s: %d\n", row.name, result);
      failures = 1;
    }
  }
  return failures;
}

// Refused calls say so whatever they are given; all others survive null pointers, with and without a session.
TEST(ShimLibrary, RefusalsAre801AndNullArgumentsDoNotCrash) {
  EXPECT_EQ(RunInChild("/nonexistent/tally.sock", [] { return CallEverything(); }), 0);
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         CUcontext context = nullptr;
                         if (SHIM(cuInit)(0) != CUDA_SUCCESS) return 2;
                         if (SHIM(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS) return 3;
                         if (SHIM(cuCtxSetCurrent)(context) != CUDA_SUCCESS) return 4;
                         return CallEverything();
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
