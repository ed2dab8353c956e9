// CUDA manual: Unified Addressing, the hints for managed memory. Managed memory is host memory that the device reads in
// place: where it should live is no question. Hints are checked and remembered as a native driver does, and have no
// effect; prefetches and discards join their stream's order by having nothing to do.
#include <algorithm>
#include <cstring>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

CUresult CheckManaged(CUdeviceptr pointer, size_t count) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto allocation = process->addresses.Find(pointer);
  return count != 0 && allocation && allocation->is_managed() && allocation->Contains(pointer, count)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUmemLocation LocationOf(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}
// As the attributes of before CUDA 12.2 name it.
int DeviceOf(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CU_DEVICE_CPU;
    default:
      return CU_DEVICE_INVALID;
  }
}

CUresult CheckLocation(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return CurrentProcess()->IsDevice(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Advise(CUdeviceptr pointer, size_t count, CUmem_advise advice, const CUmemLocation& location) {
  if (const CUresult result = CheckManaged(pointer, count); result != CUDA_SUCCESS) return result;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  const bool names_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                              advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (names_location) {
    if (const CUresult result = CheckLocation(location); result != CUDA_SUCCESS) return result;
  }
  CurrentProcess()->advice.Change(pointer, count, [&](Advice* all) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        all->is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        all->preferred = location;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        all->preferred = Advice::kNowhere;
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        all->accessed_by.insert(DeviceOf(location));
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        all->accessed_by.erase(DeviceOf(location));
        break;
    }
  });
  return CUDA_SUCCESS;
}

CUresult CheckStream(CUstream stream) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  return ResolveStreamForWork(*call.process, stream, &word);
}

CUresult Prefetch(CUdeviceptr pointer, size_t count, const CUmemLocation& location, CUstream stream) {
  if (const CUresult result = CheckStream(stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckManaged(pointer, count); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckLocation(location); result != CUDA_SUCCESS) return result;
  CurrentProcess()->advice.Change(pointer, count, [&](Advice* all) { all->prefetched = location; });
  return CUDA_SUCCESS;
}

// The arguments that the three batches share. The legacy stream may not be named by 0.
CUresult CheckBatch(const CUdeviceptr* pointers, const size_t* sizes, size_t count, unsigned long long flags,
                    CUstream stream) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pointers == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream == CU_STREAM_LEGACY || (stream == nullptr && !t_thread.is_per_thread)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckStream(stream); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult result = CheckManaged(pointers[i], sizes[i]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult PrefetchBatch(const CUdeviceptr* pointers, const size_t* sizes, size_t count, const CUmemLocation* locations,
                       const size_t* first_of, size_t num_locations, unsigned long long flags, CUstream stream) {
  if (const CUresult result = CheckBatch(pointers, sizes, count, flags, stream); result != CUDA_SUCCESS) return result;
  if (locations == nullptr || first_of == nullptr || num_locations == 0 || num_locations > count || first_of[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < num_locations; ++i) {
    if (first_of[i] >= count || (i != 0 && first_of[i] <= first_of[i - 1])) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = CheckLocation(locations[i]); result != CUDA_SUCCESS) return result;
  }
  for (size_t i = 0, which = 0; i < count; ++i) {
    if (which + 1 < num_locations && first_of[which + 1] == i) ++which;
    CurrentProcess()->advice.Change(pointers[i], sizes[i], [&](Advice* all) { all->prefetched = locations[which]; });
  }
  return CUDA_SUCCESS;
}

// The value that holds for all of the range; `none` if it does not hold for all.
template <typename Value>
int Common(CUdeviceptr pointer, size_t count, int none, Value value) {
  std::optional<int> common;
  CurrentProcess()->advice.Visit(pointer, count, [&](const Advice& advice) {
    const int here = value(advice);
    common = !common || *common == here ? here : none;
  });
  return common.value_or(none);
}

CUresult RangeAttribute(void* out, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t count) {
  if (out == nullptr || size < 4 || size % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  int* values = static_cast<int*>(out);
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    std::optional<std::set<int>> common;
    CurrentProcess()->advice.Visit(pointer, count, [&](const Advice& advice) {
      if (!common) common = advice.accessed_by;
      std::erase_if(*common, [&](int device) { return !advice.accessed_by.contains(device); });
    });
    std::fill_n(values, size / 4, CU_DEVICE_INVALID);
    std::copy_n(common->begin(), std::min(size / 4, common->size()), values);
    return CUDA_SUCCESS;
  }
  if (size != 4) return CUDA_ERROR_INVALID_VALUE;
  const auto common = [&](int none, auto value) {
    *values = Common(pointer, count, none, value);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return common(0, [](const Advice& advice) { return advice.is_read_mostly ? 1 : 0; });
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return common(CU_DEVICE_INVALID, [](const Advice& advice) { return DeviceOf(advice.preferred); });
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return common(CU_DEVICE_INVALID, [](const Advice& advice) { return DeviceOf(advice.prefetched); });
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return common(CU_MEM_LOCATION_TYPE_INVALID, [](const Advice& advice) { return advice.preferred.type; });
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return common(0, [](const Advice& advice) { return advice.preferred.id; });
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return common(CU_MEM_LOCATION_TYPE_INVALID, [](const Advice& advice) { return advice.prefetched.type; });
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return common(0, [](const Advice& advice) { return advice.prefetched.id; });
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return Advise(devPtr, count, advice, LocationOf(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  return Advise(devPtr, count, advice, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return Prefetch(devPtr, count, LocationOf(dstDevice), hStream);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
  return flags == 0 ? Prefetch(devPtr, count, location, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
                                 size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  return PrefetchBatch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
// What is discarded may have any contents, also those it has.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream hStream) {
  return CheckBatch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
                                           size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return PrefetchBatch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

// Host and device reach managed memory at any time: who it is attached to changes nothing.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  if (const CUresult result = CheckStream(hStream); result != CUDA_SUCCESS) return result;
  const auto allocation = CurrentProcess()->addresses.Find(dptr);
  if (!allocation || !allocation->is_managed() || allocation->address != dptr ||
      (length != 0 && length != allocation->size_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count) {
  if (const CUresult result = CheckManaged(devPtr, count); result != CUDA_SUCCESS) return result;
  return RangeAttribute(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckManaged(devPtr, count); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < numAttributes; ++i) {
    if (const CUresult result = RangeAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
        result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
