// Driver API: arrays and mipmapped arrays, every copy that has an array at one end, texture and surface objects as
// handles. (What kernels read through them: texture_objects.cu, surface_objects.cu.)
#include "tests/programs/driver_symbols.h"

namespace {

constexpr size_t kWidth = 64, kHeight = 16, kDepth = 4;
CUstream g_stream;

std::vector<float> Values(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

CUarray MakeArray(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = width;
  description.Height = height;
  description.Depth = depth;
  description.Format = CU_AD_FORMAT_FLOAT;
  description.NumChannels = 1;
  description.Flags = flags;
  CUarray array = nullptr;
  OK(DRIVER(cuArray3DCreate_v2)(&array, &description));
  return array;
}

void Creation() {
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = kWidth;
  flat.Height = kHeight;
  flat.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  flat.NumChannels = 4;
  CUarray array = nullptr;
  OK(DRIVER(cuArrayCreate_v2)(&array, &flat));
  CUDA_ARRAY_DESCRIPTOR read{};
  CUDA_ARRAY3D_DESCRIPTOR deep{};
  OK(DRIVER(cuArrayGetDescriptor_v2)(&read, array));
  EXPECT(read.Width == kWidth && read.Height == kHeight && read.NumChannels == 4 &&
         read.Format == CU_AD_FORMAT_UNSIGNED_INT8);
  OK(DRIVER(cuArray3DGetDescriptor_v2)(&deep, array));
  EXPECT(deep.Width == kWidth && deep.Height == kHeight && deep.Depth == 0 && deep.Flags == 0);
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  const CUresult result = DRIVER(cuArrayGetMemoryRequirements)(&requirements, array, 0);
  // The native driver answers this for arrays that can be mapped only.
  EXPECT(result != CUDA_SUCCESS || requirements.size >= kWidth * kHeight * 4);
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  FAILS(DRIVER(cuArrayGetSparseProperties)(&sparse, array));  // it is not
  CUarray plane = nullptr;
  FAILS(DRIVER(cuArrayGetPlane)(&plane, array, 0));  // it has none
  OK(DRIVER(cuArrayDestroy)(array));
  flat.NumChannels = 3;
  FAILS(DRIVER(cuArrayCreate_v2)(&array, &flat));
  flat.NumChannels = 4;
  flat.Width = 0;
  FAILS(DRIVER(cuArrayCreate_v2)(&array, &flat));

  CUmipmappedArray mipmap = nullptr;
  deep = {};
  deep.Width = 64;
  deep.Height = 16;
  deep.Format = CU_AD_FORMAT_FLOAT;
  deep.NumChannels = 2;
  OK(DRIVER(cuMipmappedArrayCreate)(&mipmap, &deep, 3));
  CUarray level = nullptr, again = nullptr;
  OK(DRIVER(cuMipmappedArrayGetLevel)(&level, mipmap, 2));
  OK(DRIVER(cuArrayGetDescriptor_v2)(&read, level));
  EXPECT(read.Width == 16 && read.Height == 4 && read.NumChannels == 2);
  OK(DRIVER(cuMipmappedArrayGetLevel)(&again, mipmap, 2));
  INVALID(DRIVER(cuMipmappedArrayGetLevel)(&level, mipmap, 3));
  DRIVER(cuMipmappedArrayGetMemoryRequirements)(&requirements, mipmap, 0);
  FAILS(DRIVER(cuMipmappedArrayGetSparseProperties)(&sparse, mipmap));
  if (check::IsTally()) {
    FAILS(DRIVER(cuArrayGetDescriptor_v2)(&read, reinterpret_cast<CUarray>(0x7770)));
    FAILS(DRIVER(cuMipmappedArrayGetLevel)(&level, reinterpret_cast<CUmipmappedArray>(0x7770), 0));
    FAILS(DRIVER(cuArrayGetDescriptor_v2)(&read, array));  // destroyed
    flat.Width = kWidth;
    INVALID(DRIVER(cuArrayCreate_v2)(nullptr, &flat));
    INVALID(DRIVER(cuArrayCreate_v2)(&array, nullptr));
    INVALID(DRIVER(cuArrayGetDescriptor_v2)(nullptr, level));
    INVALID(DRIVER(cuMipmappedArrayCreate)(nullptr, &deep, 3));
  }
  OK(DRIVER(cuMipmappedArrayDestroy)(mipmap));
}

// Part of one row: byte offsets into an array of one dimension.
void RowCopies() {
  const auto values = Values(kWidth, 1);
  const size_t bytes = kWidth * sizeof(float), half = bytes / 2;
  CUarray a = MakeArray(kWidth, 0, 0), b = MakeArray(kWidth, 0, 0);
  CUdeviceptr device = 0;
  void* pinned = nullptr;
  std::vector<float> out(kWidth);
  OK(DRIVER(cuMemAlloc_v2)(&device, bytes));
  OK(DRIVER(cuMemHostAlloc)(&pinned, bytes, 0));
  OK(DRIVER(cuMemcpyHtoA_v2)(a, 0, values.data(), bytes));
  OK(DRIVER(cuMemcpyAtoH_v2)(out.data(), a, 0, bytes));
  EXPECT(out == values);
  OK(DRIVER(cuMemcpyAtoD_v2)(device, a, half, half));
  OK(DRIVER(cuMemcpyDtoH_v2)(out.data(), device, half));
  EXPECT(memcmp(out.data(), values.data() + kWidth / 2, half) == 0);
  OK(DRIVER(cuMemcpyDtoA_v2)(b, 0, device, half));
  OK(DRIVER(cuMemcpyAtoA_v2)(b, half, a, 0, half));
  OK(DRIVER(cuMemcpyAtoH_v2)(out.data(), b, 0, bytes));
  EXPECT(memcmp(out.data(), values.data() + kWidth / 2, half) == 0);
  EXPECT(memcmp(out.data() + kWidth / 2, values.data(), half) == 0);
  const auto others = Values(kWidth, 500);
  memcpy(pinned, others.data(), bytes);
  OK(DRIVER(cuMemcpyHtoAAsync_v2)(a, 0, pinned, bytes, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  memset(pinned, 0, bytes);
  OK(DRIVER(cuMemcpyAtoHAsync_v2)(pinned, a, 0, bytes, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(memcmp(pinned, others.data(), bytes) == 0);
  if (check::IsTally()) FAILS(DRIVER(cuMemcpyHtoA_v2)(nullptr, 0, values.data(), bytes));
  OK(DRIVER(cuMemFreeHost)(pinned));
  OK(DRIVER(cuMemFree_v2)(device));
  OK(DRIVER(cuArrayDestroy)(a));
  OK(DRIVER(cuArrayDestroy)(b));
}

void BoxCopies() {
  const auto values = Values(kWidth * kHeight * kDepth, 1);
  CUarray volume = MakeArray(kWidth, kHeight, kDepth), image = MakeArray(kWidth, kHeight, 0);
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = values.data();
  up.srcPitch = kWidth * sizeof(float);
  up.srcHeight = kHeight;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = volume;
  up.WidthInBytes = kWidth * sizeof(float);
  up.Height = kHeight;
  up.Depth = kDepth;
  OK(DRIVER(cuMemcpy3D_v2)(&up));
  // 8 x 4 x 2 texels from (16, 3, 1) go to (4, 2) of the image, slice by slice.
  for (size_t z = 0; z < 2; ++z) {
    CUDA_MEMCPY3D cut{};
    cut.srcMemoryType = cut.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    cut.srcArray = volume;
    cut.dstArray = image;
    cut.srcXInBytes = 16 * sizeof(float);
    cut.srcY = 3;
    cut.srcZ = 1 + z;
    cut.dstXInBytes = 4 * sizeof(float);
    cut.dstY = 2 + 4 * z;
    cut.WidthInBytes = 8 * sizeof(float);
    cut.Height = 4;
    cut.Depth = 1;
    OK(DRIVER(cuMemcpy3DAsync_v2)(&cut, g_stream));
  }
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  CUdeviceptr device = 0;
  OK(DRIVER(cuMemAlloc_v2)(&device, 8 * 8 * sizeof(float)));
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = image;
  down.srcXInBytes = 4 * sizeof(float);
  down.srcY = 2;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  down.dstDevice = device;
  down.dstPitch = 8 * sizeof(float);
  down.WidthInBytes = 8 * sizeof(float);
  down.Height = 8;
  OK(DRIVER(cuMemcpy2D_v2)(&down));
  std::vector<float> got(64);
  OK(DRIVER(cuMemcpyDtoH_v2)(got.data(), device, 64 * sizeof(float)));
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 4; ++y) {
      for (size_t x = 0; x < 8; ++x) {
        EXPECT(got[(z * 4 + y) * 8 + x] == values[((1 + z) * kHeight + 3 + y) * kWidth + 16 + x]);
      }
    }
  }
  // Beyond the end.
  down.srcY = kHeight - 4;
  FAILS(DRIVER(cuMemcpy2D_v2)(&down));
  OK(DRIVER(cuMemFree_v2)(device));
  OK(DRIVER(cuArrayDestroy)(volume));
  OK(DRIVER(cuArrayDestroy)(image));
}

void Objects() {
  CUarray array = MakeArray(kWidth, kHeight, 0, CUDA_ARRAY3D_SURFACE_LDST);
  CUDA_RESOURCE_DESC resource{}, read{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC texture{}, read_texture{};
  texture.addressMode[0] = texture.addressMode[1] = texture.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
  texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
  texture.flags = CU_TRSF_NORMALIZED_COORDINATES;
  CUDA_RESOURCE_VIEW_DESC view{};
  CUtexObject object = 0, second = 0;
  CUsurfObject surface = 0;
  OK(DRIVER(cuTexObjectCreate)(&object, &resource, &texture, nullptr));
  OK(DRIVER(cuTexObjectGetResourceDesc)(&read, object));
  EXPECT(read.resType == CU_RESOURCE_TYPE_ARRAY && read.res.array.hArray == array);
  OK(DRIVER(cuTexObjectGetTextureDesc)(&read_texture, object));
  EXPECT(read_texture.filterMode == CU_TR_FILTER_MODE_LINEAR &&
         (read_texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0 &&
         read_texture.addressMode[1] == CU_TR_ADDRESS_MODE_CLAMP);
  // Whether there is something to read where no view was given is the driver's business.
  DRIVER(cuTexObjectGetResourceViewDesc)(&view, object);
  OK(DRIVER(cuSurfObjectCreate)(&surface, &resource));
  read = {};
  OK(DRIVER(cuSurfObjectGetResourceDesc)(&read, surface));
  EXPECT(read.resType == CU_RESOURCE_TYPE_ARRAY && read.res.array.hArray == array);

  CUdeviceptr memory = 0;
  OK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
  resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = 4096;
  texture = {};
  OK(DRIVER(cuTexObjectCreate)(&second, &resource, &texture, nullptr));
  OK(DRIVER(cuTexObjectGetResourceDesc)(&read, second));
  EXPECT(read.resType == CU_RESOURCE_TYPE_LINEAR && read.res.linear.devPtr == memory);
  FAILS(DRIVER(cuSurfObjectCreate)(&surface, &resource));  // surfaces are of arrays
  OK(DRIVER(cuTexObjectDestroy)(second));
  OK(DRIVER(cuTexObjectDestroy)(object));
  OK(DRIVER(cuSurfObjectDestroy)(surface));
  if (check::IsTally()) {
    texture.addressMode[0] = texture.addressMode[1] = texture.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
    INVALID(DRIVER(cuTexObjectCreate)(nullptr, &resource, &texture, nullptr));
    INVALID(DRIVER(cuTexObjectCreate)(&object, nullptr, &texture, nullptr));
    INVALID(DRIVER(cuTexObjectCreate)(&object, &resource, nullptr, nullptr));
    INVALID(DRIVER(cuSurfObjectCreate)(nullptr, &resource));
    FAILS(DRIVER(cuTexObjectDestroy)(object));
    FAILS(DRIVER(cuTexObjectGetTextureDesc)(&read_texture, 0x123456));
    FAILS(DRIVER(cuSurfObjectDestroy)(0x123456));
    resource.res.linear.devPtr = 0x10000;  // nobody's
    INVALID(DRIVER(cuTexObjectCreate)(&second, &resource, &texture, nullptr));
    resource.res.linear.devPtr = memory;
    resource.res.linear.sizeInBytes = 1 << 26;  // more than there is
    INVALID(DRIVER(cuTexObjectCreate)(&second, &resource, &texture, nullptr));
  }
  OK(DRIVER(cuMemFree_v2)(memory));
  OK(DRIVER(cuArrayDestroy)(array));
}

// Tensor maps are 128 bytes that the driver computes; their format is its own. Here: which calls are refused.
void TensorMaps() {
  CUdeviceptr memory = 0;
  OK(DRIVER(cuMemAlloc_v2)(&memory, 1 << 20));
  alignas(64) CUtensorMap map{}, moved{};
  const cuuint64_t dims[] = {64, 64, 8, 8}, strides[] = {256, 64 * 256, 8 * 64 * 256};
  const cuuint32_t box[] = {32, 8, 1, 1}, steps[] = {1, 1, 1, 1};
  const int lower[] = {0, 0}, upper[] = {0, 0};
  void* const address = reinterpret_cast<void*>(memory);
  const auto tiled = [&](CUtensorMap* out, void* at) {
    return DRIVER(cuTensorMapEncodeTiled)(out, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, at, dims, strides, box, steps,
                                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  const auto columns = [&](CUtensorMap* out) {
    return DRIVER(cuTensorMapEncodeIm2col)(out, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, address, dims, strides, lower,
                                           upper, 16, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                           CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  int supported = 0;
  OK(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0));
  if (supported != 0) {
    OK(tiled(&map, address));
    OK(tiled(&moved, reinterpret_cast<void*>(memory + 4096)));
    EXPECT(memcmp(&map, &moved, sizeof(map)) != 0);
    OK(DRIVER(cuTensorMapReplaceAddress)(&moved, address));
    EXPECT(memcmp(&map, &moved, sizeof(map)) == 0);
    char name[64] = {};
    OK(DRIVER(cuDeviceGetName)(name, sizeof(name), 0));
    if (strstr(name, "software") != nullptr) {
      FAILS(columns(&map));
    } else {
      OK(columns(&map));
    }
  } else {
    FAILS(tiled(&map, address));
    FAILS(columns(&map));
    FAILS(DRIVER(cuTensorMapReplaceAddress)(&map, address));
  }
  // Made for Blackwell; what an older driver or device says to it is left open.
  DRIVER(cuTensorMapEncodeIm2colWide)
  (&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, address, dims, strides, 0, 0, 16, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
   CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (check::IsTally()) {
    INVALID(tiled(nullptr, address));
    INVALID(columns(nullptr));
    FAILS(tiled(&map, reinterpret_cast<void*>(0x10000)));
  }
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Checks() {
  const check::PrimaryContext context;
  // Not a non-blocking one: what the plain forms put on the legacy stream comes before.
  OK(DRIVER(cuStreamCreate)(&g_stream, CU_STREAM_DEFAULT));
  Creation();
  RowCopies();
  BoxCopies();
  Objects();
  TensorMaps();
  OK(DRIVER(cuStreamDestroy_v2)(g_stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
