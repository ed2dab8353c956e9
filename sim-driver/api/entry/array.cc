// CUDA manual: the arrays of Memory Management, Texture Object Management, Surface Object Management.
#include "sim-driver/api/array.h"

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/texture_object.h"

using namespace tally::sim_driver;

namespace {

CUDA_ARRAY3D_DESCRIPTOR InThreeDimensions(const CUDA_ARRAY_DESCRIPTOR& description) {
  CUDA_ARRAY3D_DESCRIPTOR result{};
  result.Width = description.Width;
  result.Height = description.Height;
  result.Format = description.Format;
  result.NumChannels = description.NumChannels;
  return result;
}

CUDA_ARRAY_MEMORY_REQUIREMENTS RequirementsOf(uint64_t num_bytes) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  requirements.size = num_bytes;
  requirements.alignment = MemoryMap::kGranularity;
  return requirements;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pHandle);
    Require(pAllocateArray != nullptr, CUDA_ERROR_INVALID_VALUE);
    RefuseUnsafeCall(context);
    *pHandle = CreateArray(*context, InThreeDimensions(*pAllocateArray));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pHandle);
    Require(pAllocateArray != nullptr, CUDA_ERROR_INVALID_VALUE);
    RefuseUnsafeCall(context);
    *pHandle = CreateArray(*context, *pAllocateArray);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pArrayDescriptor);
    const ArrayPtr array = FindArray(hArray);
    *pArrayDescriptor = {array->description.Width, array->description.Height, array->description.Format,
                         array->description.NumChannels};
  });
}

TALLY_EXPORT CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pArrayDescriptor);
    *pArrayDescriptor = FindArray(hArray)->description;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray hArray) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RefuseUnsafeCall(context);
    DestroyArray(*context, hArray);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                                           CUarray array, CUdevice device) {
  TALLY_ENTRY({
    RequireOut(memoryRequirements);
    Require(device >= 0 && device < NumDevices(), CUDA_ERROR_INVALID_DEVICE);
    *memoryRequirements = RequirementsOf(FindArray(array)->num_bytes);
  });
}

// Sparse and planar arrays cannot be made here, so none of the existing ones is.
TALLY_EXPORT CUresult CUDAAPI cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                                         CUarray array) {
  TALLY_ENTRY({
    RequireOut(sparseProperties);
    FindArray(array);
    Fail(CUDA_ERROR_INVALID_VALUE);
  });
}
TALLY_EXPORT CUresult CUDAAPI cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int) {
  TALLY_ENTRY({
    RequireOut(pPlaneArray);
    FindArray(hArray);
    Fail(CUDA_ERROR_INVALID_VALUE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                                     const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                                     unsigned int numMipmapLevels) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pHandle);
    Require(pMipmappedArrayDesc != nullptr, CUDA_ERROR_INVALID_VALUE);
    RefuseUnsafeCall(context);
    *pHandle = CreateMipmappedArray(*context, *pMipmappedArrayDesc, numMipmapLevels);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                                       unsigned int level) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pLevelArray);
    const auto mipmap = FindMipmappedArray(hMipmappedArray);
    Require(level < mipmap->levels.size(), CUDA_ERROR_INVALID_VALUE);
    *pLevelArray = mipmap->levels[level];
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RefuseUnsafeCall(context);
    DestroyMipmappedArray(*context, hMipmappedArray);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                                                    CUmipmappedArray mipmap, CUdevice device) {
  TALLY_ENTRY({
    RequireOut(memoryRequirements);
    Require(device >= 0 && device < NumDevices(), CUDA_ERROR_INVALID_DEVICE);
    *memoryRequirements = RequirementsOf(FindMipmappedArray(mipmap)->num_bytes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                                                  CUmipmappedArray mipmap) {
  TALLY_ENTRY({
    RequireOut(sparseProperties);
    FindMipmappedArray(mipmap);
    Fail(CUDA_ERROR_INVALID_VALUE);
  });
}

// ---------------------------------------------------------------- texture and surface objects

TALLY_EXPORT CUresult CUDAAPI cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                                const CUDA_TEXTURE_DESC* pTexDesc,
                                                const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pTexObject);
    Require(pResDesc != nullptr && pTexDesc != nullptr, CUDA_ERROR_INVALID_VALUE);
    *pTexObject = CreateTexture(*context, *pResDesc, *pTexDesc, pResViewDesc);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuTexObjectDestroy(CUtexObject texObject) {
  TALLY_ENTRY({
    EnterContext();
    DestroyTexture(texObject);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pResDesc);
    *pResDesc = FindTexture(texObject)->resource;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pTexDesc);
    *pTexDesc = *FindTexture(texObject)->texture;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                                             CUtexObject texObject) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pResViewDesc);
    *pResViewDesc = FindTexture(texObject)->view;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pSurfObject);
    Require(pResDesc != nullptr, CUDA_ERROR_INVALID_VALUE);
    *pSurfObject = CreateSurface(*context, *pResDesc);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject surfObject) {
  TALLY_ENTRY({
    EnterContext();
    DestroySurface(surfObject);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pResDesc);
    *pResDesc = FindSurface(surfObject)->resource;
  });
}
