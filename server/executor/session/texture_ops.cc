#include "server/executor/session/texture_ops.h"

#include <algorithm>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {
namespace {

// ---------------------------------------------------------------- arrays

uint64_t ElementBytes(CUarray_format format, uint64_t num_channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return num_channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2 * num_channels;
    default:
      return 4 * num_channels;  // of block-compressed and planar formats it is less
  }
}

// At least what the texels take, for the session's quota; the driver's own layout may take more.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& description, bool is_mipmap) {
  uint64_t bytes = ElementBytes(description.Format, description.NumChannels);
  for (const size_t extent : {description.Width, description.Height, description.Depth}) {
    if (extent != 0 && __builtin_mul_overflow(bytes, uint64_t{extent}, &bytes)) return UINT64_MAX / 2;
  }
  bytes = std::min(bytes, UINT64_MAX / 2);
  return is_mipmap ? bytes + bytes / 3 : bytes;
}

// `create` makes the array.
template <typename Handle>
CUresult MakeArray(ServedRequest& served, ClientNames& names, shm::HandleKind kind, uint64_t size_bytes,
                   const auto& create, WireWriter& out) {
  SessionState& session = served.session();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto charge = session.TakeCharge(served.context()->device(), size_bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  Handle array = nullptr;
  if (const CUresult r = create(&array); r != CUDA_SUCCESS) return r;
  session.memory.CountPhysical(size_bytes, true);
  session.arrays.sizes[array] = {size_bytes, std::move(*charge)};
  out.PutHandle(names, kind, array);
  return CUDA_SUCCESS;
}

CUresult CreateFlatArray(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUDA_ARRAY_DESCRIPTOR flat{};
  in.TakeStruct(&flat);
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuArrayCreate_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = flat.Width;
  description.Height = flat.Height;
  description.Format = flat.Format;
  description.NumChannels = flat.NumChannels;
  const auto create = [&](CUarray* array) { return served.driver().cuArrayCreate_v2(array, &flat); };
  return MakeArray<CUarray>(served, names, shm::HandleKind::kArray, ArrayBytes(description, false), create, out);
}

CUresult CreateDeepArray(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  in.TakeStruct(&description);
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuArray3DCreate_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto create = [&](CUarray* array) { return served.driver().cuArray3DCreate_v2(array, &description); };
  return MakeArray<CUarray>(served, names, shm::HandleKind::kArray, ArrayBytes(description, false), create, out);
}

CUresult CreateMipmap(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  in.TakeStruct(&description);
  const auto num_levels = in.TakeScalar<unsigned int>();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuMipmappedArrayCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto create = [&](CUmipmappedArray* mipmap) {
    return served.driver().cuMipmappedArrayCreate(mipmap, &description, num_levels);
  };
  return MakeArray<CUmipmappedArray>(served, names, shm::HandleKind::kMipmappedArray,
                                     ArrayBytes(description, num_levels > 1), create, out);
}

CUresult LendArray(ServedRequest& served, ClientNames& names, CUarray array, const void* owner, WireWriter& out) {
  served.session().arrays.borrowed[array] = owner;
  out.PutHandle(names, shm::HandleKind::kArray, array);
  return CUDA_SUCCESS;
}

CUresult GetLevel(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  const auto level = in.TakeScalar<unsigned int>();
  if (!in.AtEnd()) return served.Malformed();
  CUmipmappedArray mipmap = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kMipmappedArray, handle, &mipmap); r != CUDA_SUCCESS) return r;
  CUarray array = nullptr;
  if (const CUresult r = served.driver().cuMipmappedArrayGetLevel(&array, mipmap, level); r != CUDA_SUCCESS) return r;
  return LendArray(served, names, array, mipmap, out);
}

CUresult GetPlane(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  const auto plane = in.TakeScalar<unsigned int>();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuArrayGetPlane == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUarray array = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kArray, handle, &array); r != CUDA_SUCCESS) return r;
  CUarray part = nullptr;
  if (const CUresult r = served.driver().cuArrayGetPlane(&part, array, plane); r != CUDA_SUCCESS) return r;
  return LendArray(served, names, part, array, out);
}

// ---------------------------------------------------------------- descriptions

// Puts the driver's handles where the client's names are, and checks that everything is the session's.
CUresult TranslateResource(ServedRequest& served, ClientNames& names, CUDA_RESOURCE_DESC* resource) {
  constexpr uint64_t kMaxExtent = uint64_t{1} << 40;
  switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return names.Find(shm::HandleKind::kArray, reinterpret_cast<uint64_t>(resource->res.array.hArray),
                        &resource->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return names.Find(shm::HandleKind::kMipmappedArray,
                        reinterpret_cast<uint64_t>(resource->res.mipmap.hMipmappedArray),
                        &resource->res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource->res.linear;
      return served.OwnsAddresses(linear.devPtr, linear.sizeInBytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource->res.pitch2D;
      if (pitched.width > kMaxExtent || pitched.height == 0 || pitched.height > (uint64_t{1} << 20) ||
          pitched.pitchInBytes > kMaxExtent || pitched.numChannels > 4) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      const uint64_t size = (pitched.height - 1) * pitched.pitchInBytes +
                            pitched.width * ElementBytes(pitched.format, pitched.numChannels);
      return served.OwnsAddresses(pitched.devPtr, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// ---------------------------------------------------------------- objects

CUresult MakeObject(ServedRequest& served, ClientNames& names, SamplingObjects& objects,
                    const CUDA_RESOURCE_DESC& resource, const auto& create, const auto& destroy, WireWriter& out) {
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (objects.size() >= served.session().core.limits.handles_per_kind) {
    return served.Malformed("more objects of one kind than a session may have");
  }
  CUDA_RESOURCE_DESC translated = resource;
  if (const CUresult r = TranslateResource(served, names, &translated); r != CUDA_SUCCESS) return r;
  unsigned long long object = 0;
  if (const CUresult r = create(&object, &translated); r != CUDA_SUCCESS) return r;
  if (!objects.try_emplace(object, SamplingObject{served.context_index(), resource}).second) {
    destroy(object);  // a driver that gives one value to two objects: nothing to tell them apart by
    return CUDA_ERROR_UNKNOWN;
  }
  out.PutStruct(object);
  return CUDA_SUCCESS;
}

CUresult CreateTexture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  in.TakeStruct(&resource);
  in.TakeStruct(&texture);
  const bool has_view = in.TakeWord() != 0;
  if (has_view) in.TakeStruct(&view);
  if (!in.AtEnd()) return served.Malformed();
  const DriverTable& driver = served.driver();
  if (driver.cuTexObjectCreate == nullptr || driver.cuTexObjectDestroy == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto create = [&](unsigned long long* object, const CUDA_RESOURCE_DESC* translated) {
    return driver.cuTexObjectCreate(object, translated, &texture, has_view ? &view : nullptr);
  };
  return MakeObject(served, names, served.session().arrays.textures, resource, create, driver.cuTexObjectDestroy, out);
}

CUresult CreateSurface(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUDA_RESOURCE_DESC resource{};
  in.TakeStruct(&resource);
  if (!in.AtEnd()) return served.Malformed();
  const DriverTable& driver = served.driver();
  if (driver.cuSurfObjectCreate == nullptr || driver.cuSurfObjectDestroy == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  // Surfaces are of arrays only.
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  return MakeObject(served, names, served.session().arrays.surfaces, resource, driver.cuSurfObjectCreate,
                    driver.cuSurfObjectDestroy, out);
}

// The resource with the client's names in it, which the driver does not know.
CUresult GetResource(ServedRequest& served, const SamplingObjects& objects, WireReader& in, WireWriter& out) {
  const uint64_t object = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  const auto found = objects.find(object);
  if (found == objects.end()) return CUDA_ERROR_INVALID_VALUE;
  out.PutStruct(found->second.resource);
  return CUDA_SUCCESS;
}

// Says no to an object that is not the session's; otherwise (and for records too short) the generated function goes on.
bool IsForeign(const SamplingObjects& objects, WireReader in, CUresult* result) {
  const uint64_t object = in.TakeWord();
  if (!in.ok() || objects.contains(object)) return false;
  *result = CUDA_ERROR_INVALID_VALUE;
  return true;
}

// The same for the address that comes next.
bool IsForeignAddress(ServedRequest& served, WireReader& in, CUresult* result) {
  const uint64_t address = in.TakeWord();
  if (!in.ok() || served.OwnsAddresses(address, 1)) return false;
  *result = CUDA_ERROR_INVALID_VALUE;
  return true;
}

}  // namespace

bool ServeTexturesBeforeWire(ServedRequest& served, ClientNames& names, uint16_t op, WireReader in, WireWriter& out,
                             CUresult* result) {
  SessionState& session = served.session();
  switch (op) {
    case kOp_cuArrayCreate_v2:
      *result = CreateFlatArray(served, names, in, out);
      return true;
    case kOp_cuArray3DCreate_v2:
      *result = CreateDeepArray(served, names, in, out);
      return true;
    case kOp_cuMipmappedArrayCreate:
      *result = CreateMipmap(served, names, in, out);
      return true;
    case kOp_cuMipmappedArrayGetLevel:
      *result = GetLevel(served, names, in, out);
      return true;
    case kOp_cuArrayGetPlane:
      *result = GetPlane(served, names, in, out);
      return true;
    case kOp_cuArrayDestroy: {
      CUarray array = nullptr;
      if (names.Find(shm::HandleKind::kArray, in.TakeWord(), &array) != CUDA_SUCCESS) return false;
      if (session.arrays.borrowed.contains(array)) {
        *result = CUDA_ERROR_INVALID_HANDLE;
        return true;
      }
      session.arrays.Forget(array);
      return false;
    }
    case kOp_cuMipmappedArrayDestroy: {
      CUmipmappedArray mipmap = nullptr;
      if (names.Find(shm::HandleKind::kMipmappedArray, in.TakeWord(), &mipmap) == CUDA_SUCCESS) {
        session.arrays.Forget(mipmap);
      }
      return false;
    }
    case kOp_cuTexObjectCreate:
      *result = CreateTexture(served, names, in, out);
      return true;
    case kOp_cuSurfObjectCreate:
      *result = CreateSurface(served, names, in, out);
      return true;
    case kOp_cuTexObjectDestroy:
      if (IsForeign(session.arrays.textures, in, result)) return true;
      session.arrays.textures.erase(in.TakeWord());
      return false;
    case kOp_cuSurfObjectDestroy:
      if (IsForeign(session.arrays.surfaces, in, result)) return true;
      session.arrays.surfaces.erase(in.TakeWord());
      return false;
    case kOp_cuTexObjectGetResourceDesc:
      *result = GetResource(served, session.arrays.textures, in, out);
      return true;
    case kOp_cuSurfObjectGetResourceDesc:
      *result = GetResource(served, session.arrays.surfaces, in, out);
      return true;
    case kOp_cuTexObjectGetTextureDesc:
    case kOp_cuTexObjectGetResourceViewDesc:
      return IsForeign(session.arrays.textures, in, result);
    case kOp_cuTensorMapEncodeTiled:
    case kOp_cuTensorMapEncodeIm2col:
    case kOp_cuTensorMapEncodeIm2colWide:
      in.TakeWord();  // type
      in.TakeWord();  // rank
      return IsForeignAddress(served, in, result);
    case kOp_cuTensorMapReplaceAddress: {
      CUtensorMap map{};
      in.TakeStruct(&map);
      return IsForeignAddress(served, in, result);
    }
    default:
      return false;
  }
}

}  // namespace tally::server
