// Texture objects: what fetches return, by the programming guide's appendix: point and linear filtering, the four
// addressing modes, normalised coordinates, integers as they are and as fractions of one, one to three dimensions,
// layers, mipmap levels, gathers, linear and pitched memory.
//
// Coordinates are chosen so that filter weights, and the products of an axis's with the others', have at most 8
// fractional bits and sums are exact: every device agrees.
#include <cmath>
#include <tuple>
#include <type_traits>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kWidth = 16, kHeight = 8, kDepth = 4;
constexpr int kNumPoints = 64;

// Texels: small integers, so that weighted sums are exact.
float Texel(int x, int y, int z) { return static_cast<float>((x * 7 + y * 13 + z * 29) % 64); }

// The coordinates that are tried along an axis of `size` texels: inside, on edges, outside; `offset` from multiples of
// size/32.
float Coordinate(int i, int size, float offset) {
  return static_cast<float>(i - 16) * static_cast<float>(size) / 32.0f + offset;
}

// ---------------------------------------------------------------- the appendix, on the host

int Wrapped(int i, int n) { return ((i % n) + n) % n; }

// Returns false for the border.
bool Address(cudaTextureAddressMode mode, int n, int* i) {
  switch (mode) {
    case cudaAddressModeWrap:
      *i = Wrapped(*i, n);
      return true;
    case cudaAddressModeMirror: {
      const int twice = Wrapped(*i, 2 * n);
      *i = twice < n ? twice : 2 * n - 1 - twice;
      return true;
    }
    case cudaAddressModeClamp:
      *i = *i < 0 ? 0 : *i >= n ? n - 1 : *i;
      return true;
    default:
      return *i >= 0 && *i < n;
  }
}

float Read(cudaTextureAddressMode mode, const int* extents, int dimensions, int x, int y, int z) {
  int index[3] = {x, y, z};
  for (int d = 0; d < dimensions; ++d) {
    if (!Address(mode, extents[d], &index[d])) return 0;
  }
  return Texel(index[0], index[1], index[2]);
}

float Fetch(cudaTextureAddressMode mode, bool linear, const int* extents, int dimensions, const float* at) {
  if (!linear) {
    int index[3] = {0, 0, 0};
    for (int d = 0; d < dimensions; ++d) index[d] = static_cast<int>(std::floor(at[d]));
    return Read(mode, extents, dimensions, index[0], index[1], index[2]);
  }
  int first[3] = {0, 0, 0};
  float alpha[3] = {0, 0, 0};
  for (int d = 0; d < dimensions; ++d) {
    const float shifted = at[d] - 0.5f;
    first[d] = static_cast<int>(std::floor(shifted));
    alpha[d] = shifted - std::floor(shifted);
  }
  double sum = 0;
  for (int corner = 0; corner < 1 << dimensions; ++corner) {
    double weight = 1;
    int index[3] = {0, 0, 0};
    for (int d = 0; d < dimensions; ++d) {
      const int side = corner >> d & 1;
      index[d] = first[d] + side;
      weight *= side != 0 ? alpha[d] : 1 - alpha[d];
    }
    if (weight != 0) sum += weight * Read(mode, extents, dimensions, index[0], index[1], index[2]);
  }
  return static_cast<float>(sum);
}

// ---------------------------------------------------------------- kernels

__global__ void Fetch1D(cudaTextureObject_t texture, const float* at, float* out) {
  out[threadIdx.x] = tex1D<float>(texture, at[threadIdx.x]);
}
__global__ void Fetch2D(cudaTextureObject_t texture, const float* at, float* out) {
  out[threadIdx.x] = tex2D<float>(texture, at[2 * threadIdx.x], at[2 * threadIdx.x + 1]);
}
__global__ void Fetch3D(cudaTextureObject_t texture, const float* at, float* out) {
  out[threadIdx.x] = tex3D<float>(texture, at[3 * threadIdx.x], at[3 * threadIdx.x + 1], at[3 * threadIdx.x + 2]);
}
__global__ void FetchElements(cudaTextureObject_t texture, int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex1Dfetch<int>(texture, i - 4);  // four before the beginning, four after the end
}
__global__ void FetchBytes(cudaTextureObject_t texture, uchar4* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2D<uchar4>(texture, static_cast<float>(i % 16) + 0.5f, static_cast<float>(i / 16) + 0.5f);
}
__global__ void FetchUnits(cudaTextureObject_t texture, float4* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2D<float4>(texture, static_cast<float>(i % 16) + 0.5f, static_cast<float>(i / 16) + 0.5f);
}
__global__ void FetchSigned(cudaTextureObject_t texture, short2* out) {
  out[threadIdx.x] = tex1D<short2>(texture, static_cast<float>(threadIdx.x) + 0.25f);
}
__global__ void FetchLayers(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  // Layers beyond the last are the last.
  out[i] = tex2DLayered<float>(texture, static_cast<float>(i % 8) + 0.5f, 2.5f, i / 8);
}
__global__ void FetchRows(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex1DLayered<float>(texture, static_cast<float>(i % 8) + 0.5f, i / 8);
}
__global__ void FetchLevels(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2DLod<float>(texture, 0.5f, 0.5f, static_cast<float>(i) * 0.25f - 0.5f);
}
__global__ void Gather(cudaTextureObject_t texture, float4* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2Dgather<float4>(texture, static_cast<float>(i % 8) + 1.0f, static_cast<float>(i / 8) + 1.0f, 0);
}
// Some lanes only, and different textures in one warp.
__global__ void FetchSome(cudaTextureObject_t one, cudaTextureObject_t other, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = -1;
  if (i % 3 != 0) out[i] = tex2D<float>(i % 2 == 0 ? one : other, static_cast<float>(i % kWidth) + 0.5f, 1.5f);
}

// ---------------------------------------------------------------- the host's half

const cudaTextureAddressMode kModes[] = {cudaAddressModeClamp, cudaAddressModeBorder, cudaAddressModeWrap,
                                         cudaAddressModeMirror};
const char* const kNames[] = {"clamp", "border", "wrap", "mirror"};

// Wrapping needs normalised coordinates; the others are tried with and without.
bool IsTried(int mode, bool normalized) { return normalized || mode < 2; }

std::vector<float> Points(int dimensions, bool normalized, bool linear) {
  const int extents[] = {kWidth, kHeight, kDepth};
  // A point fetch must not be made on the border between two texels; three weights of 1/16 make more than 8 bits.
  const float offset = dimensions == 3 && linear ? 0.25f : 0.0625f;
  std::vector<float> points;
  for (int i = 0; i < kNumPoints; ++i) {
    for (int d = 0; d < dimensions; ++d) {
      const float at = Coordinate((i * (2 * d + 1) + d) % kNumPoints, extents[d], offset);
      points.push_back(normalized ? at / static_cast<float>(extents[d]) : at);
    }
  }
  return points;
}

template <class Body>
void ForEachCase(Body body) {
  for (int dimensions = 1; dimensions <= 3; ++dimensions) {
    for (int mode = 0; mode < 4; ++mode) {
      for (int normalized = 0; normalized < 2; ++normalized) {
        for (int linear = 0; linear < 2; ++linear) {
          if (!IsTried(mode, normalized != 0)) continue;
          char name[64];
          snprintf(name, sizeof(name), "%dD %s%s%s", dimensions, kNames[mode], normalized ? " normalised" : "",
                   linear ? " linear" : "");
          body(name, dimensions, kModes[mode], normalized != 0, linear != 0);
        }
      }
    }
  }
}

unsigned char ByteTexel(int i) { return static_cast<unsigned char>(i * 37 + 11); }

void Reference(Results& results) {
  const int extents[] = {kWidth, kHeight, kDepth};
  ForEachCase([&](const char* name, int dimensions, cudaTextureAddressMode mode, bool, bool linear) {
    const std::vector<float> points = Points(dimensions, false, linear);
    std::vector<float> values;
    for (int i = 0; i < kNumPoints; ++i) {
      values.push_back(Fetch(mode, linear, extents, dimensions, &points[static_cast<size_t>(i * dimensions)]));
    }
    results.Add(name, values);
  });
  std::vector<int> elements;
  for (int i = 0; i < 40; ++i) elements.push_back(i < 4 || i >= 36 ? 0 : (i - 4) * 3 - 5);
  results.Add("elements of linear memory", elements);
  std::vector<unsigned char> bytes;
  for (int i = 0; i < 4 * 128; ++i) bytes.push_back(ByteTexel(i));
  results.Add("bytes", bytes);
  std::vector<float> units;
  for (int i = 0; i < 4 * 128; ++i) units.push_back(static_cast<float>(ByteTexel(i) % 2 == 0 ? 0 : 1));
  results.Add("bytes as fractions", units);
  std::vector<short> shorts;
  for (int i = 0; i < 64; ++i) shorts.push_back(static_cast<short>(i * -301 + 4000));
  results.Add("shorts", shorts);
  std::vector<float> layers, rows, levels, gathered, pitched, some;
  for (int i = 0; i < 40; ++i) layers.push_back(Texel(i % 8, 2, i / 8 > 3 ? 3 : i / 8));
  results.Add("layers", layers);
  for (int i = 0; i < 32; ++i) rows.push_back(Texel(i % 8, 0, i / 8));
  results.Add("layers of rows", rows);
  // Level l is full of 8 l: between two levels the value is in between.
  for (int i = 0; i < 16; ++i) {
    const float lod = static_cast<float>(i) * 0.25f - 0.5f;
    levels.push_back(8.0f * (lod < 0 ? 0 : lod > 2 ? 2 : lod));
  }
  results.Add("levels", levels);
  for (int i = 0; i < 32; ++i) {
    const int x = i % 8, y = i / 8;  // the corner between texels (x, y) and (x + 1, y + 1)
    for (const float value : {Texel(x, y + 1, 0), Texel(x + 1, y + 1, 0), Texel(x + 1, y, 0), Texel(x, y, 0)}) {
      gathered.push_back(value);
    }
  }
  results.Add("gathered", gathered);
  const std::vector<float> points = Points(2, false, true);
  for (int i = 0; i < kNumPoints; ++i) {
    pitched.push_back(Fetch(cudaAddressModeClamp, true, extents, 2, &points[static_cast<size_t>(2 * i)]));
  }
  results.Add("pitched memory", pitched);
  for (int i = 0; i < 32; ++i) some.push_back(i % 3 == 0 ? -1 : Texel(i % kWidth, 1, i % 2));
  results.Add("some lanes", some);
}

// ---------------------------------------------------------------- CUDA's half

// `dimensions`: those that the texture has. What a mode of another does is left open (PrintUnusedMode).
cudaTextureDesc Description(cudaTextureAddressMode mode, bool normalized, bool linear, int dimensions = 3) {
  cudaTextureDesc description = {};
  for (int d = 0; d < 3; ++d) description.addressMode[d] = d < dimensions ? mode : cudaAddressModeClamp;
  description.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
  description.readMode = cudaReadModeElementType;
  description.normalizedCoords = normalized ? 1 : 0;
  return description;
}

// An array of floats: Texel(x, y, z + first_z).
cudaArray_t MakeArray(int width, int height, int depth, unsigned flags = 0, int first_z = 0) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK_CUDA(cudaMalloc3DArray(
      &array, &format,
      make_cudaExtent(static_cast<size_t>(width), static_cast<size_t>(height), static_cast<size_t>(depth)), flags));
  const int rows = height > 0 ? height : 1, slices = depth > 0 ? depth : 1;
  std::vector<float> texels;
  for (int z = 0; z < slices; ++z) {
    for (int y = 0; y < rows; ++y) {
      for (int x = 0; x < width; ++x) texels.push_back(Texel(x, y, z + first_z));
    }
  }
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), static_cast<size_t>(width) * sizeof(float),
                                    static_cast<size_t>(width), static_cast<size_t>(rows));
  copy.dstArray = array;
  copy.extent = make_cudaExtent(static_cast<size_t>(width), static_cast<size_t>(rows), static_cast<size_t>(slices));
  copy.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaMemcpy3D(&copy));
  return array;
}

cudaTextureObject_t Texture(cudaArray_t array, const cudaTextureDesc& description) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureObject_t texture = 0;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  return texture;
}

template <class T, class... Arguments>
std::vector<T> Run(void (*kernel)(Arguments...), size_t threads, size_t count, cudaTextureObject_t texture) {
  check::DeviceBuffer<T> out(count);
  kernel<<<1, static_cast<unsigned>(threads)>>>(
      texture, reinterpret_cast<std::remove_pointer_t<std::tuple_element_t<1, std::tuple<Arguments...>>>*>(out.get()));
  CHECK_LAUNCH();
  return out.Download();
}

// A row as an H200 fetches it is an image of one row, at y = 0: half of a filtered value comes from the row below,
// which is border if the second mode says so. Said, not demanded.
void PrintUnusedMode(cudaArray_t row) {
  const std::vector<float> at = {0.5625f, 1.5f, 7.75f, 15.5f};
  const check::DeviceBuffer<float> points(at);
  check::DeviceBuffer<float> out(at.size());
  for (int last = 0; last < 3; ++last) {
    cudaTextureDesc description = Description(cudaAddressModeClamp, false, true);
    if (last > 0) description.addressMode[last] = cudaAddressModeBorder;
    const cudaTextureObject_t texture = Texture(row, description);
    Fetch1D<<<1, static_cast<unsigned>(at.size())>>>(texture, points.get(), out.get());
    CHECK_LAUNCH();
    const std::vector<float> got = out.Download();
    printf("1D linear, %s border:", last == 0 ? "no" : last == 1 ? "second" : "third");
    for (const float value : got) printf(" %g", static_cast<double>(value));
    printf("\n");
    CHECK_CUDA(cudaDestroyTextureObject(texture));
  }
}

void Device(Results& results) {
  cudaArray_t arrays[] = {MakeArray(kWidth, 0, 0), MakeArray(kWidth, kHeight, 0), MakeArray(kWidth, kHeight, kDepth)};
  ForEachCase([&](const char* name, int dimensions, cudaTextureAddressMode mode, bool normalized, bool linear) {
    const cudaTextureObject_t texture =
        Texture(arrays[dimensions - 1], Description(mode, normalized, linear, dimensions));
    const check::DeviceBuffer<float> points(Points(dimensions, normalized, linear));
    check::DeviceBuffer<float> out(kNumPoints);
    auto* const kernel = dimensions == 1 ? Fetch1D : dimensions == 2 ? Fetch2D : Fetch3D;
    kernel<<<1, kNumPoints>>>(texture, points.get(), out.get());
    CHECK_LAUNCH();
    results.Add(name, out.Download());
    CHECK_CUDA(cudaDestroyTextureObject(texture));
  });

  std::vector<int> elements;
  for (int i = 0; i < 32; ++i) elements.push_back(i * 3 - 5);
  const check::DeviceBuffer<int> memory(elements);
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = memory.get();
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = memory.size_bytes();
  const cudaTextureDesc plain = Description(cudaAddressModeClamp, false, false);
  cudaTextureObject_t texture = 0;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &plain, nullptr));
  results.Add("elements of linear memory", Run<int>(FetchElements, 40, 40, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));

  // Bytes, as they are and as fractions; of those only 0 and 255 are exact in every way of dividing.
  for (int as_fractions = 0; as_fractions < 2; ++as_fractions) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array = nullptr;
    CHECK_CUDA(cudaMallocArray(&array, &format, 16, 8));
    std::vector<unsigned char> texels;
    for (int i = 0; i < 4 * 128; ++i) {
      texels.push_back(as_fractions ? static_cast<unsigned char>(ByteTexel(i) % 2 == 0 ? 0 : 255) : ByteTexel(i));
    }
    CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, texels.data(), 64, 64, 8, cudaMemcpyHostToDevice));
    cudaTextureDesc description = plain;
    if (as_fractions) description.readMode = cudaReadModeNormalizedFloat;
    texture = Texture(array, description);
    if (as_fractions) {
      results.Add("bytes as fractions", Run<float>(FetchUnits, 128, 512, texture));
    } else {
      results.Add("bytes", Run<unsigned char>(FetchBytes, 128, 512, texture));
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeArray(array));
  }

  const cudaChannelFormatDesc shorts = cudaCreateChannelDesc<short2>();
  cudaArray_t row = nullptr;
  CHECK_CUDA(cudaMallocArray(&row, &shorts, 32));
  std::vector<short> short_texels;
  for (int i = 0; i < 64; ++i) short_texels.push_back(static_cast<short>(i * -301 + 4000));
  CHECK_CUDA(cudaMemcpy2DToArray(row, 0, 0, short_texels.data(), 128, 128, 1, cudaMemcpyHostToDevice));
  texture = Texture(row, plain);
  results.Add("shorts", Run<short>(FetchSigned, 32, 64, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeArray(row));

  cudaArray_t layered = MakeArray(kWidth, kHeight, kDepth, cudaArrayLayered);
  texture = Texture(layered, plain);
  results.Add("layers", Run<float>(FetchLayers, 40, 40, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeArray(layered));
  layered = MakeArray(kWidth, 0, kDepth, cudaArrayLayered);
  texture = Texture(layered, plain);
  results.Add("layers of rows", Run<float>(FetchRows, 32, 32, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeArray(layered));

  const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap = nullptr;
  CHECK_CUDA(cudaMallocMipmappedArray(&mipmap, &floats, make_cudaExtent(16, 16, 0), 3));
  for (unsigned level = 0; level < 3; ++level) {
    cudaArray_t of_level = nullptr;
    CHECK_CUDA(cudaGetMipmappedArrayLevel(&of_level, mipmap, level));
    const size_t size = 16u >> level;
    const std::vector<float> texels(size * size, 8.0f * static_cast<float>(level));
    CHECK_CUDA(cudaMemcpy2DToArray(of_level, 0, 0, texels.data(), size * 4, size * 4, size, cudaMemcpyHostToDevice));
  }
  resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mipmap;
  cudaTextureDesc levels = Description(cudaAddressModeClamp, true, true);
  levels.disableTrilinearOptimization = 1;  // which rounds the weights of levels as it likes
  levels.mipmapFilterMode = cudaFilterModeLinear;
  levels.maxMipmapLevelClamp = 2;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &levels, nullptr));
  results.Add("levels", Run<float>(FetchLevels, 16, 16, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeMipmappedArray(mipmap));

  cudaArray_t gathered = MakeArray(kWidth, kHeight, 0, cudaArrayTextureGather);
  texture = Texture(gathered, plain);
  results.Add("gathered", Run<float>(Gather, 32, 128, texture));
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeArray(gathered));

  float* pitched = nullptr;
  size_t pitch = 0;
  CHECK_CUDA(cudaMallocPitch(&pitched, &pitch, kWidth * sizeof(float), kHeight));
  std::vector<float> image;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) image.push_back(Texel(x, y, 0));
  }
  CHECK_CUDA(cudaMemcpy2D(pitched, pitch, image.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));
  resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = pitched;
  resource.res.pitch2D.desc = floats;
  resource.res.pitch2D.width = kWidth;
  resource.res.pitch2D.height = kHeight;
  resource.res.pitch2D.pitchInBytes = pitch;
  const cudaTextureDesc filtered = Description(cudaAddressModeClamp, false, true);
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &filtered, nullptr));
  const check::DeviceBuffer<float> points(Points(2, false, true));
  check::DeviceBuffer<float> out(kNumPoints);
  Fetch2D<<<1, kNumPoints>>>(texture, points.get(), out.get());
  CHECK_LAUNCH();
  results.Add("pitched memory", out.Download());
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFree(pitched));

  cudaArray_t other = MakeArray(kWidth, kHeight, 0, 0, 1);
  const cudaTextureObject_t first = Texture(arrays[1], plain), second = Texture(other, plain);
  check::DeviceBuffer<float> lanes(32);
  FetchSome<<<1, 32>>>(first, second, lanes.get());
  CHECK_LAUNCH();
  results.Add("some lanes", lanes.Download());
  CHECK_CUDA(cudaDestroyTextureObject(first));
  CHECK_CUDA(cudaDestroyTextureObject(second));
  CHECK_CUDA(cudaFreeArray(other));
  PrintUnusedMode(arrays[0]);
  for (const cudaArray_t array : arrays) CHECK_CUDA(cudaFreeArray(array));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
