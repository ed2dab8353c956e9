# needs: packages=cupy
"""CuPy: texture objects over CUDA arrays and linear memory, surfaces, affine transforms that use them."""
import cupy
from cupy.cuda import runtime, texture

from shared.digest import Digest

SOURCE = r"""
extern "C" __global__ void sample(cudaTextureObject_t source, float* target, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) target[y * width + x] = tex2D<float>(source, x + 0.75f, y + 0.25f);
}
extern "C" __global__ void mark(cudaSurfaceObject_t target, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) surf2Dwrite((float)(x * 100 + y), target, x * 4, y);
}
"""
digest = Digest()
width, height = 64, 48
image = cupy.random.default_rng(5).random((height, width), dtype=cupy.float32)
channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
module = cupy.RawModule(code=SOURCE)
for name, filtering in (("point", runtime.cudaFilterModePoint), ("linear", runtime.cudaFilterModeLinear)):
    array = texture.CUDAarray(channel, width, height)
    array.copy_from(image)
    source = texture.TextureObject(
        texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array),
        texture.TextureDescriptor((runtime.cudaAddressModeClamp, runtime.cudaAddressModeClamp), filtering, runtime.cudaReadModeElementType))
    target = cupy.zeros((height, width), dtype=cupy.float32)
    module.get_function("sample")((4, 3), (16, 16), (source, target, width, height))
    digest.add(f"texture, {name}", target)
array = texture.CUDAarray(channel, width, height, flags=runtime.cudaArraySurfaceLoadStore)
surface = texture.SurfaceObject(texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array))
module.get_function("mark")((4, 3), (16, 16), (surface, width, height))
back = cupy.zeros((height, width), dtype=cupy.float32)
array.copy_to(back)
digest.add("surface", back)
digest.print()
