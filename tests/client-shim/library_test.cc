// The built library as a file: what it exports, what it runs when it is loaded, and that no call crashes on null
// pointers.
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
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

TEST(ShimLibrary, ExportsTheDriversNamesAndItsMarkerOnly) {
  std::set<std::string> expected = ReadLibrary(TALLY_CUDA_ROOT "/lib64/stubs/libcuda.so").exports;
  ASSERT_GT(expected.size(), 600u);
  expected.insert("tally_shim_marker");
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

// getproc_map.tsv row by row: the version of the row gives its symbol, one version less gives an older ABI or says why
// not.
TEST(ShimLibrary, ProcAddressAnswersAsTheTableSays) {
  void* library = OpenShim();
  ASSERT_NE(library, nullptr);
  const auto get = SHIM(cuGetProcAddress_v2);
  std::ifstream table(TALLY_GETPROC_TABLE);
  ASSERT_TRUE(table.is_open());
  std::string line;
  std::getline(table, line);
  struct Abi {
    int version;
    std::string symbol;
  };
  std::map<std::pair<std::string, bool>, std::vector<Abi>> names;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string base, version, flag, symbol;
    std::getline(fields, base, '\t');
    std::getline(fields, version, '\t');
    std::getline(fields, flag, '\t');
    std::getline(fields, symbol, '\t');
    names[{base, flag.starts_with("per-thread")}].push_back({std::stoi(version), symbol});
  }
  ASSERT_GT(names.size(), 400u);
  for (auto& [key, rows] : names) {
    const auto& [base, is_per_thread] = key;
    std::ranges::sort(rows, {}, &Abi::version);
    const cuuint64_t flags = is_per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      void* found = nullptr;
      CUdriverProcAddressQueryResult status{};
      EXPECT_EQ(get(base.c_str(), &found, rows[i].version, flags, &status), CUDA_SUCCESS) << base;
      EXPECT_EQ(found, ::dlsym(library, rows[i].symbol.c_str())) << base << " " << rows[i].version;
      EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
      const CUresult before = get(base.c_str(), &found, rows[i].version - 1, flags, &status);
      if (i != 0) {
        EXPECT_EQ(found, ::dlsym(library, rows[i - 1].symbol.c_str())) << base;
      } else {
        EXPECT_EQ(before, CUDA_SUCCESS) << base;
        EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) << base;
        EXPECT_EQ(found, nullptr);
      }
    }
  }
  void* found = library;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(get("cuNoSuchThing", &found, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(get("", &found, 0, 0, nullptr), CUDA_SUCCESS);  // the runtime's probe: anything but STUB_LIBRARY
  EXPECT_EQ(get("cuInit", &found, CUDA_VERSION + 10, 0, &status), CUDA_SUCCESS);  // which driver is not known yet
  EXPECT_EQ(get("cuInit", &found, 2000, 3, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(ShimLibrary, NamesEveryErrorOfTheHeader) {
  std::ifstream header(TALLY_CUDA_ROOT "/include/cuda.h");
  ASSERT_TRUE(header.is_open());
  std::string line;
  size_t count = 0;
  while (std::getline(header, line)) {
    char name[128];
    int value = 0;
    if (std::sscanf(line.c_str(), " %127[A-Z_0-9] = %d", name, &value) != 2) continue;
    if (std::strncmp(name, "CUDA_ERROR_", 11) != 0 && std::strcmp(name, "CUDA_SUCCESS") != 0) continue;
    ++count;
    const char* text = nullptr;
    EXPECT_EQ(SHIM(cuGetErrorName)(static_cast<CUresult>(value), &text), CUDA_SUCCESS) << name;
    EXPECT_STREQ(text, name);
    EXPECT_EQ(SHIM(cuGetErrorString)(static_cast<CUresult>(value), &text), CUDA_SUCCESS) << name;
    EXPECT_TRUE(text != nullptr && *text != '\0') << name;
  }
  EXPECT_GT(count, 90u);
  const char* text = "left";
  EXPECT_EQ(SHIM(cuGetErrorName)(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace tally::client_shim
