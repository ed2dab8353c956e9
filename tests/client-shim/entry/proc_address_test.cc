#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/client-shim/fake_executor.h"

namespace tally::client_shim {
namespace {

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

}  // namespace
}  // namespace tally::client_shim
