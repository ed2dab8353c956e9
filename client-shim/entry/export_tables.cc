// cuGetExportTable: tables of functions without a name that NVIDIA's own libraries call. Each is identified by a UUID;
// all but one begin with their size in bytes, which callers check before they use a slot: a table may end early, but
// what is inside must behave. Slots nobody was ever seen to call answer CUDA_ERROR_NOT_SUPPORTED.
// docs/adding-a-driver-call.md says how slots were found.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "client-shim/entry/guard.h"
#include "client-shim/entry/lookup.h"
#include "client-shim/entry/runtime_handshake.h"
#include "client-shim/origins/compile_steps.h"
#include "client-shim/origins/pairing.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim {
namespace {

using Slot = void*;
template <typename Function>
constexpr Slot AsSlot(Function* function) {
  return reinterpret_cast<Slot>(function);
}

CUresult NotOffered() { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult Nothing() { return CUDA_SUCCESS; }
uint32_t Zero() { return 0; }

// ---- CUDART_INTERFACE: how the runtime gets contexts and (before CUDA 12) modules.
CUresult PrimaryContextOf(CUcontext* context, CUdevice device) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!process->IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = Contexts::Primary(process->server_ordinal(device));  // not activated: retaining it later gives the same
  return CUDA_SUCCESS;
}
CUresult LoadSegment(CUmodule* module, const void* segment) {
  return Guarded([&] { return entry::cuModuleLoadFatBinary(module, segment); });
}
CUresult LoadSegmentExtended(CUmodule* module, const void* segment, void*, void*, uint32_t) {
  return LoadSegment(module, segment);
}
CUresult LoadContainer(const void* container, CUmodule* module, void*, void*, uint32_t) {
  return LoadSegment(module, container);
}
void Unregister(size_t) {}

// ---- TOOLS_RUNTIME_CALLBACK_HOOKS: two arrays of switches, all off, so that no hook is ever called.
constexpr size_t kNumHooks = 2048;
constinit uint32_t g_api_hooks[kNumHooks] = {};
constinit uint32_t g_event_hooks[64] = {};
CUresult ApiHooks(uint32_t** switches, size_t* count) {
  if (switches == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *switches = g_api_hooks;
  *count = std::size(g_api_hooks);
  return CUDA_SUCCESS;
}
CUresult EventHooks(uint32_t** switches, size_t* count) {
  if (switches == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *switches = g_event_hooks;
  *count = std::size(g_event_hooks);
  return CUDA_SUCCESS;
}

// ---- TOOLS_TLS
CUresult CurrentContextOfThread(CUcontext* context) { return entry::cuCtxGetCurrent(context); }

// ---- CONTEXT_LOCAL_STORAGE: called on every call of the runtime.
uint32_t StorageContext(const Process* process, CUcontext context) {
  // Null and -1 both mean the current one.
  if (context == nullptr || reinterpret_cast<uint64_t>(context) == ~uint64_t{0}) return t_thread.context;
  // A primary context may be used here before it is active.
  const auto value = reinterpret_cast<uint64_t>(context);
  const uint64_t index = shm::HandleIndexOf(value);
  if (shm::HandleKindOf(value) == shm::HandleKind::kContext && index < shm::kMaxDevices)
    return static_cast<uint32_t>(index);
  return process->contexts.Find(context);
}
CUresult StoragePut(CUcontext context, void* key, void* value, ContextStorage::Destructor destructor) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const uint32_t index = StorageContext(process, context);
  if (index == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  return Guarded([&] {
    process->storage.Put(index, key, value, destructor);
    return CUDA_SUCCESS;
  });
}
CUresult StorageDelete(CUcontext context, void* key) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const uint32_t index = StorageContext(process, context);
  if (index == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  return process->storage.Remove(index, key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult StorageGet(void** value, CUcontext context, void* key) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t index = StorageContext(process, context);
  if (index == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  return process->storage.Get(index, key, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// ---- CONTEXT_CHECKS: is this a context of a special kind? Never.
CUresult KindOfContext(CUcontext, uint32_t* kind, CUcontext*) {
  if (kind != nullptr) *kind = 0;
  return CUDA_SUCCESS;
}

// ---- TOOLS_CONTEXT: ids of contexts and streams, for the libraries' caches.
CUresult DeviceOfContext(CUdevice* device, CUcontext context) { return entry::cuCtxGetDevice_v2(device, context); }
CUresult IdOfContext(CUcontext context, uint64_t* id) {
  unsigned long long value = 0;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = entry::cuCtxGetId(context, &value);
  if (result == CUDA_SUCCESS) *id = value;
  return result;
}
CUresult IdOfStream(CUcontext, CUstream stream, uint64_t* id) {
  unsigned long long value = 0;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = Guarded([&] { return entry::cuStreamGetId(stream, &value); });
  if (result == CUDA_SUCCESS) *id = value;
  return result;
}
CUresult ResolvedStream(CUcontext, CUstream stream, CUstream* resolved, bool is_per_thread) {
  if (resolved == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resolved = stream;
  if (stream == nullptr)
    *resolved = reinterpret_cast<CUstream>(is_per_thread ? shm::kPerThreadStream : shm::kLegacyStream);
  return CUDA_SUCCESS;
}

// ---- TOOLS_MODULE: functions of a module, one call-back each. Returns 1 on success, unlike everything else.
int EachFunction(CUcontext, CUmodule module, int (*callback)(void*, CUfunction), void* user) {
  int succeeded = 0;
  Guarded([&] {
    Call call;
    if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
    std::vector<ListedKernel> kernels;
    if (const CUresult result = ListKernels(call, reinterpret_cast<uint64_t>(module), &kernels); result != CUDA_SUCCESS)
      return result;
    for (const ListedKernel& kernel : kernels) callback(user, reinterpret_cast<CUfunction>(kernel.handle));
    succeeded = 1;
    return CUDA_SUCCESS;
  });
  return succeeded;
}

// ---- COMPILE_CACHE: NVRTC and nvJitLink ask here before they compile. A buffer that was found stays the caller's
// until it gives it back.
CUresult MakeCacheKey(CompileStep** key, int32_t kind, const void* source, uint32_t source_bytes, const char* options,
                      const char* platform, const char* compiler_build, int32_t architecture, int32_t flags) {
  if (key == nullptr || (source == nullptr && source_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  const auto text = [](const char* value) { return std::string_view(value == nullptr ? "" : value); };
  return Guarded([&] {
    const CompileInput input = {.kind = kind,
                                .source = {static_cast<const std::byte*>(source), source_bytes},
                                .options = text(options),
                                .platform = text(platform),
                                .compiler_build = text(compiler_build),
                                .architecture = architecture,
                                .flags = flags};
    *key = new CompileStep(StepOf(input, IsPtxKept()));
    return CUDA_SUCCESS;
  });
}
CUresult FreeCacheKey(CompileStep* key) {
  delete key;
  return CUDA_SUCCESS;
}
CUresult FindCompiled(const CompileStep* key, void*, void** result, uint32_t* result_bytes) {
  if (key == nullptr || result == nullptr || result_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = nullptr;
  *result_bytes = 0;
  return Guarded([&] {
    auto found = CompileCacheOfEnvironment().Find(key->key);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    LearnFrom(*key, found->span(), &Origins());
    *result_bytes = static_cast<uint32_t>(found->size_bytes);
    *result = found->bytes.release();
    return CUDA_SUCCESS;
  });
}
CUresult KeepCompiled(const CompileStep* key, void*, const void* result, uint32_t result_bytes) {
  if (key == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Guarded([&] {
    const std::span bytes(static_cast<const std::byte*>(result), result_bytes);
    LearnFrom(*key, bytes, &Origins());
    CompileCacheOfEnvironment().Keep(key->key, bytes);
    return CUDA_SUCCESS;
  });
}
CUresult FreeCompiled(void* result) {
  std::free(result);
  return CUDA_SUCCESS;
}

CUresult CheckIntegrity(uint32_t version, uint64_t unix_seconds, uint64_t out[2]);

// Tables. Slot 0 is the size in bytes, as a number in a pointer's place.
constexpr size_t kSlotBytes = sizeof(Slot);
#define TALLY_SIZE_SLOT(count) reinterpret_cast<Slot>((count)*kSlotBytes)

Slot g_runtime_table[13];
Slot g_hook_table[7];
Slot g_thread_table[4];
Slot g_storage_table[4];
Slot g_check_table[4];
Slot g_integrity_table[3];
Slot g_compile_cache_table[7];

// Filled when first asked for: a function's address as a void* is no constant, and nothing of ours may run at load
// time. Long tables of which a few slots are known:
constexpr size_t kToolsContextSlots = 93;
constexpr size_t kToolsModuleSlots = 99;
constexpr size_t kTopologySlots = 17;
Slot g_tools_context_table[kToolsContextSlots];
Slot g_tools_module_table[kToolsModuleSlots];
Slot g_topology_table[kTopologySlots];

void FillTables() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    const Slot runtime_slots[13] = {
        TALLY_SIZE_SLOT(13),    AsSlot(&LoadSegment), AsSlot(&PrimaryContextOf),    AsSlot(&Nothing),
        AsSlot(&NotOffered),    AsSlot(&NotOffered),  AsSlot(&LoadSegmentExtended), AsSlot(&Unregister),
        AsSlot(&LoadContainer), AsSlot(&NotOffered),  AsSlot(&NotOffered),          AsSlot(&NotOffered),
        AsSlot(&Nothing)};
    std::copy_n(runtime_slots, 13, g_runtime_table);
    const Slot hook_slots[7] = {TALLY_SIZE_SLOT(7), AsSlot(&Nothing), AsSlot(&ApiHooks),  AsSlot(&Nothing),
                                AsSlot(&Nothing),   AsSlot(&Nothing), AsSlot(&EventHooks)};
    std::copy_n(hook_slots, 7, g_hook_table);
    const Slot thread_slots[4] = {TALLY_SIZE_SLOT(4), AsSlot(&NotOffered), AsSlot(&CurrentContextOfThread),
                                  AsSlot(&NotOffered)};
    std::copy_n(thread_slots, 4, g_thread_table);
    const Slot storage_slots[4] = {AsSlot(&StoragePut), AsSlot(&StorageDelete), AsSlot(&StorageGet), nullptr};
    std::copy_n(storage_slots, 4, g_storage_table);
    const Slot check_slots[4] = {TALLY_SIZE_SLOT(4), AsSlot(&NotOffered), AsSlot(&KindOfContext), AsSlot(&Zero)};
    std::copy_n(check_slots, 4, g_check_table);
    const Slot integrity_slots[3] = {TALLY_SIZE_SLOT(3), AsSlot(&CheckIntegrity), AsSlot(&NotOffered)};
    std::copy_n(integrity_slots, 3, g_integrity_table);
    const Slot cache_slots[7] = {TALLY_SIZE_SLOT(7),    AsSlot(&MakeCacheKey), AsSlot(&FreeCacheKey),
                                 AsSlot(&FindCompiled), AsSlot(&KeepCompiled), AsSlot(&NotOffered),
                                 AsSlot(&FreeCompiled)};
    std::copy_n(cache_slots, 7, g_compile_cache_table);
    std::fill(std::begin(g_tools_context_table), std::end(g_tools_context_table), AsSlot(&NotOffered));
    g_tools_context_table[0] = TALLY_SIZE_SLOT(kToolsContextSlots);
    g_tools_context_table[3] = AsSlot(&DeviceOfContext);
    g_tools_context_table[4] = AsSlot(&IdOfContext);
    g_tools_context_table[39] = AsSlot(&IdOfStream);
    g_tools_context_table[51] = AsSlot(&ResolvedStream);
    std::fill(std::begin(g_tools_module_table), std::end(g_tools_module_table), AsSlot(&NotOffered));
    g_tools_module_table[0] = TALLY_SIZE_SLOT(kToolsModuleSlots);
    g_tools_module_table[7] = AsSlot(&EachFunction);
    // cublasLt crashes without the table, and copes with slots that refuse.
    std::fill(std::begin(g_topology_table), std::end(g_topology_table), AsSlot(&NotOffered));
    g_topology_table[0] = TALLY_SIZE_SLOT(kTopologySlots);
  });
}

CUresult CheckIntegrity(uint32_t version, uint64_t unix_seconds, uint64_t out[2]) {
  return Guarded([&]() -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Process* process = CurrentProcess();
    std::vector<HandshakeInput::Device> devices;
    for (CUdevice device = 0; process != nullptr && device < process->num_devices(); ++device) {
      const shm::DeviceDescription& description = process->device(device);
      HandshakeInput::Device& added = devices.emplace_back();
      std::memcpy(added.uuid, description.uuid, sizeof(added.uuid));
      // From the attributes, where the runtime reads them too.
      added.pci_domain = description.attribute[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
      added.pci_bus = description.attribute[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
      added.pci_device = description.attribute[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
    }
    int driver_version = 0;
    entry::cuDriverGetVersion(&driver_version);
    HandshakeInput input;
    input.driver_version = static_cast<uint32_t>(driver_version);
    input.process_id = static_cast<uint32_t>(::getpid());
    input.thread_id = static_cast<uint32_t>(::pthread_self());
    input.runtime_table_address = reinterpret_cast<uint64_t>(&g_runtime_table);
    input.check_table_address = reinterpret_cast<uint64_t>(&g_integrity_table);
    input.check_function_address = reinterpret_cast<uint64_t>(&CheckIntegrity);
    input.unix_seconds = unix_seconds;
    input.devices = devices;
    const HandshakeAnswer answer = AnswerHandshake(version, input);
    std::memcpy(out, answer.word, sizeof(answer.word));
    return CUDA_SUCCESS;
  });
}

struct TableRow {
  uint8_t uuid[16];
  const void* table;
};
const TableRow kTables[] = {
    {{0x6B, 0xD5, 0xFB, 0x6C, 0x5B, 0xF4, 0xE7, 0x4A, 0x89, 0x87, 0xD9, 0x39, 0x12, 0xFD, 0x9D, 0xF9}, g_runtime_table},
    {{0xA0, 0x94, 0x79, 0x8C, 0x2E, 0x74, 0x2E, 0x74, 0x93, 0xF2, 0x08, 0x00, 0x20, 0x0C, 0x0A, 0x66}, g_hook_table},
    {{0x42, 0xD8, 0x5A, 0x81, 0x23, 0xF6, 0xCB, 0x47, 0x82, 0x98, 0xF6, 0xE7, 0x8A, 0x3A, 0xEC, 0xDC}, g_thread_table},
    {{0xC6, 0x93, 0x33, 0x6E, 0x11, 0x21, 0xDF, 0x11, 0xA8, 0xC3, 0x68, 0xF3, 0x55, 0xD8, 0x95, 0x93}, g_storage_table},
    {{0x26, 0x3E, 0x88, 0x60, 0x7C, 0xD2, 0x61, 0x43, 0x92, 0xF6, 0xBB, 0xD5, 0x00, 0x6D, 0xFA, 0x7E}, g_check_table},
    {{0xD4, 0x08, 0x20, 0x55, 0xBD, 0xE6, 0x70, 0x4B, 0x8D, 0x34, 0xBA, 0x12, 0x3C, 0x66, 0xE1, 0xF2},
     g_integrity_table},
    {{0x21, 0x31, 0x8C, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8C, 0xA6, 0x41, 0xFF, 0x73, 0x24, 0xC8, 0xF2},
     g_tools_context_table},
    {{0x6E, 0x16, 0x3F, 0xBE, 0xB9, 0x58, 0x44, 0x4D, 0x83, 0x5C, 0xE1, 0x82, 0xAF, 0xF1, 0x99, 0x1E},
     g_tools_module_table},
    {{0x17, 0x34, 0xDC, 0x26, 0x80, 0x0D, 0x47, 0x45, 0x87, 0x26, 0xC0, 0xF1, 0xE7, 0xDD, 0x8B, 0xCA},
     g_topology_table},
    {{0xDA, 0x91, 0x51, 0xD3, 0x3A, 0xE6, 0xCC, 0x41, 0xA5, 0xC0, 0x4F, 0x26, 0xD5, 0x33, 0xE3, 0x28},
     g_compile_cache_table},
};

// What CUPTI asks for first. Without it every CUPTI call gives CUPTI_ERROR_UNKNOWN and the program runs on; given it,
// CUPTI would go on to patch a driver that this library is not.
constexpr uint8_t kProfilerTable[16] = {0x2C, 0x8E, 0x0A, 0xD8, 0x07, 0x10, 0xAB, 0x4E,
                                        0x90, 0xDD, 0x54, 0x71, 0x9F, 0xE5, 0xF7, 0x4B};

}  // namespace

namespace entry {

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FillTables();
  for (const TableRow& row : kTables) {
    if (std::memcmp(row.uuid, pExportTableId->bytes, sizeof(row.uuid)) != 0) continue;
    *ppExportTable = row.table;
    return CUDA_SUCCESS;
  }
  *ppExportTable = nullptr;
  if (std::memcmp(kProfilerTable, pExportTableId->bytes, sizeof(kProfilerTable)) == 0)
    LOG_INFO("a profiler (CUPTI) is told that there is none: the program runs on, its profile has no GPU activity");
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace entry
}  // namespace tally::client_shim
