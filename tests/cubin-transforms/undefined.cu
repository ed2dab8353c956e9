// Compiled as relocatable code: no linker can make something of it that a GPU runs.
extern __device__ int Elsewhere(int);

extern "C" __global__ void Needs(int* out) { *out = Elsewhere(*out); }
