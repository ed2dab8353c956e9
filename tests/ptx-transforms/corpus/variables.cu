// Module-scope variables: initialisers of all kinds, constant memory, managed memory, addresses, textures, surfaces.
#include <cstdint>

struct Node {
  const char* name;
  const Node* next;
  int value;
  float weights[3];
};
__device__ int counter = 42;
__device__ int* pointer = &counter;
__device__ int many[5] = {1, -2, 3};
__device__ int* inside = &many[3];
__device__ const double kTable[4] = {1.5, -2.25e-10, 1e300, 0.0};
__constant__ float kWeights[3][3] = {{1, 2, 1}, {2, 4, 2}, {1, 2, 1}};
__constant__ uint8_t kBytes[] = {0, 1, 2, 254, 255};
__constant__ int64_t kWide[2] = {INT64_MIN, INT64_MAX};
__device__ Node first = {"first", nullptr, 1, {0.5f, 0.25f, 0.125f}};
__device__ Node second = {"second\n", &first, 2, {}};
__managed__ int managed_value = 7;
__device__ volatile float4 vector = {1, 2, 3, 4};
extern __constant__ int declared_elsewhere[];
extern __device__ float elsewhere;
__shared__ double shared_table[16];
static __device__ unsigned hidden;

__global__ void Variables(int* out, char* text) {
  shared_table[threadIdx.x] = kTable[threadIdx.x & 3];
  __syncthreads();
  out[0] = counter + *pointer + many[threadIdx.x] + *inside + kWide[0] + managed_value + elsewhere;
  out[1] = static_cast<int>(kWeights[threadIdx.x][1] + shared_table[threadIdx.x ^ 1] + kBytes[threadIdx.x]);
  text[0] = second.name[threadIdx.x] + second.next->name[1];
  vector.x = atomicAdd(&hidden, 1u) + declared_elsewhere[3];
  static __shared__ int once;
  once = threadIdx.x;
  out[2] = once + *"literal";
}

__global__ void Textures(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float4* out) {
  const float4 texel = tex2D<float4>(texture, threadIdx.x * 0.5f, threadIdx.y * 0.25f);
  out[0] = texel;
  out[1] = tex1Dfetch<float4>(texture, threadIdx.x);
  out[2] = tex3D<float4>(texture, 0.1f, 0.2f, 0.3f);
  out[3] = tex2DLod<float4>(texture, 0.1f, 0.2f, 3.0f);
  out[4] = tex2Dgather<float4>(texture, 0.5f, 0.5f, 1);
  float value;
  surf2Dread(&value, surface, threadIdx.x * 4, threadIdx.y);
  surf2Dwrite(value * 2, surface, threadIdx.x * 4, threadIdx.y);
}

struct alignas(64) Descriptor {
  uint8_t bytes[128];
};
__global__ void Parameters(const __grid_constant__ Descriptor descriptor, char c, short s, Node node, int* out) {
  out[0] = descriptor.bytes[threadIdx.x] + c + s + node.value;
}
