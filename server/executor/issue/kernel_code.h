// Loaded device code and the kernels in it, as launches use them. The session's: guarded by its sequencer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file_cache.h"
#include "proto/shm/records_abi.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/gated_code.h"

namespace tally::server {

struct KernelAccesses;
struct LoadedImage;
class KernelProfile;
class VariantModule;
struct VariantDevice;

// The other forms of a kernel, and what is known about them.
struct KernelOnDevice {
  bool is_loaded = false;                   // its code is on the device
  const VariantDevice* device = nullptr;    // null before the first launch that may take another form
  std::shared_ptr<KernelProfile> profile;   // likewise
  bool takes_any_grid = false;              // of a kernel with a profile (device::kAnyGrid)
  std::shared_ptr<VariantModule> variants;  // null until there are some
  // Blocks of its gated form that the device holds at one time, by threads of a block and its dynamic shared memory.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> num_resident;
};

// What the launch path needs, found once when the kernel is looked up.
struct Kernel {
  CUfunction function = nullptr;  // exactly one of the two is set at first; function_of_kernel fills in later
  CUkernel kernel = nullptr;
  CUfunction function_of_kernel = nullptr;
  LoadedImage* image = nullptr;
  uint64_t handle = 0;
  std::vector<shm::ParameterLayout> layout;
  uint32_t parameter_bytes = 0;
  // Its code begins with a gate, which wants device::GateParameters behind its own parameters in every launch.
  std::optional<KernelGate> gate;
  std::string gate_refusal;                  // why not, where gates were put into its image
  std::map<int, KernelOnDevice> on_device;   // by ordinal; of best-effort tenants
  std::shared_ptr<KernelAccesses> accesses;  // null until somebody asks what its launches touch

  // A CUkernel may stand for its function in launches and occupancy queries.
  CUfunction ForLaunch() const { return function != nullptr ? function : reinterpret_cast<CUfunction>(kernel); }
};

// The bytes handed to the driver, and the wrapper around them if there is one.
struct ImageBytes {
  struct Wrapper {  // allow: NVIDIA's word for .nvFatBinSegment
    uint32_t magic = 0;
    uint32_t version = 0;
    const void* first = nullptr;
    const void* prelinked = nullptr;  // version 2: null-terminated array of pointers to containers
  };

  std::vector<std::byte> bytes;
  std::vector<const void*> prelinked;
  std::unique_ptr<Wrapper> wrapper;
  bool may_print = false;  // the code may call the device's printf
  mutable std::optional<FileCache::Key>
      key;  // of the content, once somebody has asked; guarded by the session's sequencer

  // What the driver gets.
  const void* pointer() const { return wrapper ? static_cast<const void*>(wrapper.get()) : bytes.data(); }
};

struct LoadedImage {
  bool is_library = false;
  bool is_borrowed = false;  // the module of a library: unloading it is not the client's business
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  uint64_t handle = 0;
  std::shared_ptr<ImageBytes> bytes;
  std::shared_ptr<const GatedCode> gated;  // what was loaded instead; null: the bytes
  std::vector<CUjit_option> jit_options;   // numbers only, for loading it again
  std::vector<void*> jit_values;
  std::unordered_map<std::string, Kernel*> by_name;
  std::vector<std::unique_ptr<Kernel>> kernels;
  LoadedImage* library_image = nullptr;  // is_borrowed: whose module this is
};

// The parts of an image as they were given to the driver.
ImageParts PartsOf(const ImageBytes& image);
// The image with the bytes: of a library's module, the library.
const LoadedImage& OwnerOf(const Kernel& kernel);
// As its PTX calls it; empty if the driver does not say.
std::string NameOf(const DriverTable& driver, const Kernel& kernel);

struct VariablePlace {
  CUdeviceptr address = 0;
  size_t size_bytes = 0;
};
// In the current context. All 0: the image has none of that name.
VariablePlace VariableOf(const DriverTable& driver, const LoadedImage& image, const std::string& name);

}  // namespace tally::server
