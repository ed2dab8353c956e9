// 1-D, 2-D and 3-D grids and blocks: every thread records which one it was, through every index register; blocks that
// are not a multiple of a warp, tall grids, a grid of 70,000 blocks in x.
#include "tests/programs/check.h"

using check::Results;

namespace {

struct Shape {
  unsigned gx, gy, gz, bx, by, bz;
};
const Shape kShapes[] = {{1, 1, 1, 1, 1, 1},   {5, 1, 1, 33, 1, 1},  {1, 7, 1, 1, 64, 1}, {1, 1, 9, 1, 1, 64},
                         {3, 4, 5, 6, 7, 8},   {2, 3, 1, 17, 5, 1},  {1, 1, 2, 8, 8, 16}, {70000, 1, 1, 1, 1, 1},
                         {1, 300, 4, 2, 2, 2}, {4, 1, 1, 1024, 1, 1}};

uint32_t Mix(uint32_t hash, uint32_t value) { return (hash ^ value) * 16777619u; }

void Reference(Results& results) {
  for (const Shape& s : kShapes) {
    std::vector<uint32_t> out;
    for (unsigned z = 0; z < s.gz; ++z)
      for (unsigned y = 0; y < s.gy; ++y)
        for (unsigned x = 0; x < s.gx; ++x)
          for (unsigned tz = 0; tz < s.bz; ++tz)
            for (unsigned ty = 0; ty < s.by; ++ty)
              for (unsigned tx = 0; tx < s.bx; ++tx) {
                uint32_t hash = 2166136261u;
                for (uint32_t v : {x, y, z, tx, ty, tz, s.gx, s.gy, s.gz, s.bx, s.by, s.bz}) hash = Mix(hash, v);
                hash = Mix(hash, (tz * s.by * s.bx + ty * s.bx + tx) % 32);
                out.push_back(hash);
              }
    results.Add("shape", out);
  }
}

__device__ uint32_t MixDevice(uint32_t hash, uint32_t value) { return (hash ^ value) * 16777619u; }

__global__ void Record(uint32_t* out) {
  uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  const uint32_t values[] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                             gridDim.x,  gridDim.y,  gridDim.z,  blockDim.x,  blockDim.y,  blockDim.z};
  uint32_t hash = 2166136261u;
  for (uint32_t value : values) hash = MixDevice(hash, value);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = MixDevice(hash, lane);
}

void Device(Results& results) {
  for (const Shape& s : kShapes) {
    check::DeviceBuffer<uint32_t> out(static_cast<size_t>(s.gx) * s.gy * s.gz * s.bx * s.by * s.bz);
    out.Zero();
    Record<<<dim3(s.gx, s.gy, s.gz), dim3(s.bx, s.by, s.bz)>>>(out.get());
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    results.Add("shape", out.Download());
  }
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
