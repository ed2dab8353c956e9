#include "server/executor/driver/driver_table.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "base/installed_files.h"
#include "base/log.h"
#include "proto/driver/driver_directories.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {
namespace {

// Our own shim must never be taken for the driver. It exports exactly the driver's names, so it is told by a string
// that it alone contains (the variable that it reads), and by its size: NVIDIA's library is several times as large.
constexpr std::string_view kShimMarker = "TALLY_SOCKET";
constexpr uintmax_t kMaxShimBytes = 16 << 20;
constexpr const char* kSimLibraryName = "libtally-sim-driver.so";

struct Attempt {
  std::optional<LoadedDriver> driver;
  std::string failure;
};

template <typename Function>
void FillMember(void* library, const char* name, Function* member) {
  *member = reinterpret_cast<Function>(::dlsym(library, name));
}

bool IsOwnShim(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxShimBytes) return false;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return bytes.find(kShimMarker) != std::string::npos;
}

Attempt Open(const std::string& path, bool is_software) {
  Attempt attempt;
  if (!is_software && IsOwnShim(path)) {
    attempt.failure = fmt::format("{}: this is Tally's client library, not a driver", path);
    return attempt;
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    attempt.failure = ::dlerror();
    return attempt;
  }
  LoadedDriver driver;
#define TALLY_DRIVER_FUNCTION(symbol) FillMember(library, #symbol, &driver.table.symbol);
#include "proto/driver/generated/driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
  const DriverTable& table = driver.table;
  if (table.cuInit == nullptr || table.cuDeviceGetCount == nullptr || table.cuDriverGetVersion == nullptr ||
      table.cuDevicePrimaryCtxRetain == nullptr || table.cuCtxSetCurrent == nullptr ||
      table.cuStreamCreateWithPriority == nullptr || table.cuLaunchKernel == nullptr) {
    attempt.failure = fmt::format("{}: lacks basic driver functions", path);
    return attempt;  // stays loaded: a driver's threads may not survive dlclose
  }
  if (const CUresult result = table.cuInit(0); result != CUDA_SUCCESS) {
    attempt.failure = fmt::format("{}: cuInit: {}", path, CudaErrorName(table, result));
    return attempt;
  }
  if (const CUresult result = table.cuDeviceGetCount(&driver.num_devices); result != CUDA_SUCCESS) {
    attempt.failure = fmt::format("{}: cuDeviceGetCount: {}", path, CudaErrorName(table, result));
    return attempt;
  }
  if (driver.num_devices <= 0) {
    attempt.failure = fmt::format("{}: no device", path);
    return attempt;
  }
  const uint32_t version = DriverVersion(table);
  driver.is_software = is_software;
  driver.description = fmt::format("{} {}.{} ({})", is_software ? "software driver" : "CUDA driver", version / 1000,
                                   version % 1000 / 10, path);
  attempt.driver = std::move(driver);
  return attempt;
}

void AddIfSet(const char* variable, std::vector<std::string>* paths) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') paths->emplace_back(value);
}

std::vector<std::string> CudaCandidates(const DriverLibraries& libraries) {
  if (!libraries.cuda_path.empty()) return {libraries.cuda_path};
  std::vector<std::string> paths;
  AddIfSet("TALLY_REAL_LIBCUDA", &paths);
  for (const char* directory : kDriverDirectories) {
    std::string path = fmt::format("{}/libcuda.so.1", directory);
    if (::access(path.c_str(), R_OK) == 0) paths.push_back(std::move(path));
  }
  return paths;
}

std::vector<std::string> SimCandidates(const DriverLibraries& libraries) {
  if (!libraries.sim_path.empty()) return {libraries.sim_path};
  std::vector<std::string> paths;
  AddIfSet("TALLY_SIM_DRIVER", &paths);
  const std::filesystem::path here = ProgramDirectory();
  for (const auto& directory :
       {here, here / "../lib", here / "../lib/tally", here / "../sim-driver", here / "../sim-driver/api"}) {
    const std::filesystem::path path = directory / kSimLibraryName;
    std::error_code error;
    if (std::filesystem::exists(path, error)) paths.push_back(path.lexically_normal().string());
  }
  return paths;
}

Attempt OpenFirst(const std::vector<std::string>& paths, bool is_software) {
  Attempt last;
  last.failure = is_software
                     ? fmt::format("{} was not found beside the program (TALLY_SIM_DRIVER names it)", kSimLibraryName)
                     : "libcuda.so.1 is not installed (TALLY_REAL_LIBCUDA names it)";
  std::string failures;
  for (const std::string& path : paths) {
    last = Open(path, is_software);
    if (last.driver) return last;
    failures += (failures.empty() ? "" : "; ") + last.failure;
  }
  if (!failures.empty()) last.failure = failures;
  return last;
}

}  // namespace

uint32_t DriverVersion(const DriverTable& driver) {
  int version = 0;
  driver.cuDriverGetVersion(&version);
  return static_cast<uint32_t>(version);
}

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

std::string CudaErrorName(const DriverTable& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName != nullptr) driver.cuGetErrorName(result, &name);
  return name != nullptr ? std::string(name) : fmt::format("CUDA error {}", static_cast<int>(result));
}

Result<LoadedDriver> LoadDriver(const DriverLibraries& libraries) {
  std::string failure;
  if (libraries.choice != control::DriverChoice::kSim) {
    Attempt attempt = OpenFirst(CudaCandidates(libraries), false);
    if (attempt.driver) {
      attempt.driver->libraries = libraries;
      attempt.driver->libraries.choice = control::DriverChoice::kCuda;
      return std::move(*attempt.driver);
    }
    failure = attempt.failure;
    if (libraries.choice == control::DriverChoice::kCuda)
      return Error(StatusCode::kUnavailable, "no CUDA driver: " + failure);
  }
  Attempt attempt = OpenFirst(SimCandidates(libraries), true);
  if (attempt.driver) {
    if (libraries.choice == control::DriverChoice::kAuto) {
      LOG_WARNING("no usable GPU ({}): using the {}", failure, attempt.driver->description);
    }
    attempt.driver->libraries = libraries;
    attempt.driver->libraries.choice = control::DriverChoice::kSim;
    return std::move(*attempt.driver);
  }
  if (!failure.empty()) failure = "no CUDA driver: " + failure + "; ";
  return Error(StatusCode::kUnavailable, failure + "no software driver: " + attempt.failure);
}

}  // namespace tally::server
