// Interprocess communication: handles of device memory.
#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/ipc_memory.h"

using namespace tally::sim_driver;

TALLY_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pHandle);
    *pHandle = ExportMemory(dptr);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pdptr);
    Require((Flags & ~static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) == 0, CUDA_ERROR_INVALID_VALUE);
    RefuseUnsafeCall(context);
    *pdptr = OpenMemory(*context, handle, Flags != 0);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RefuseUnsafeCall(context);
    CloseMemory(*context, dptr);
  });
}
