// Device code of one session: pieces on their way in, loaded modules and libraries, the kernels found in them.
//
// The client's bytes are copied, bounded by a quota, validated (images/), and kept for as long as the module lives: the
// driver may go on reading them. Guarded by the session's turn.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file_cache.h"
#include "proto/shm/records_code_abi.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/gated_code.h"
#include "server/executor/session/held_account.h"

namespace tally::server {

struct LoadedImage;
class KernelProfile;
class VariantModule;

// The other forms of a kernel, and what is known about them (server/executor/issue).
struct KernelOnDevice {
  bool is_loaded = false;                   // its code is on the device
  std::shared_ptr<KernelProfile> profile;   // null before the first launch
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
  std::string gate_refusal;                 // why not, where gates were put into its image
  std::map<int, KernelOnDevice> on_device;  // by ordinal; of best-effort tenants

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
  bool may_print = false;                     // the code may call the device's printf
  mutable std::optional<FileCache::Key> key;  // of the content, once somebody has asked; guarded by the session's turn

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
// `image` is what the driver takes. We keep it for as long as the library lives, so the driver need not copy it.
CUresult LoadLibraryData(const DriverTable& driver, const void* image, CUjit_option* options, void** values,
                         unsigned int num_options, CUlibrary* library);

class ImageStore {
 public:
  explicit ImageStore(HeldAccount& account) : account_(account) {}

  // False: the piece makes no sense (the reason is in *reason). Of an image that the session or its user may not hold
  // nothing is kept; Take says so.
  bool Write(const shm::WriteImage& piece, std::span<const std::byte> bytes, const char** reason);
  // Takes a complete image out, validated and with its wrapper rebuilt. Fails with the CUresult a driver would give.
  CUresult Take(const shm::LoadImage& request, std::shared_ptr<ImageBytes>* image);
  // To be called when an image taken is no longer kept.
  void Return(const ImageBytes& image);

 private:
  struct Assembly {
    std::vector<std::byte> bytes;
    uint64_t total_bytes = 0;
    uint64_t received_bytes = 0;
    bool is_refused = false;
  };

  HeldAccount& account_;
  std::map<uint32_t, Assembly> assemblies_;
};

}  // namespace tally::server
