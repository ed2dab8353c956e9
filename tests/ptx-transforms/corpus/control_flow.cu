// Calls, recursion, function pointers, virtual functions, switches, printf, assert, local arrays, launch bounds.
#include <cassert>
#include <cstdio>

__device__ __noinline__ int Fibonacci(int n) { return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2); }
__device__ __noinline__ float Add(float a, float b) { return a + b; }
__device__ __noinline__ float Multiply(float a, float b) { return a * b; }
__device__ __noinline__ float Subtract(float a, float b) { return a - b; }
using Operation = float (*)(float, float);
__device__ Operation operations[3] = {Add, Multiply, Subtract};

struct Large {
  double values[7];
  char tag[5];
};
__device__ __noinline__ Large Transform(Large large, int scale) {
  for (double& value : large.values) value *= scale;
  large.tag[scale & 3]++;
  return large;
}

struct Shape {
  __device__ virtual float Area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float Area() const override { return side * side; }
};
struct Circle : Shape {
  float radius;
  __device__ explicit Circle(float r) : radius(r) {}
  __device__ float Area() const override { return 3.14159f * radius * radius; }
};

__global__ void Calls(int* out, float* values, int which, Large* large) {
  out[0] = Fibonacci(which);
  values[0] = operations[which](values[1], values[2]);
  *large = Transform(*large, which);
  Square square(values[3]);
  Circle circle(values[4]);
  const Shape* shape = which ? static_cast<const Shape*>(&square) : &circle;
  values[5] = shape->Area();
}

__global__ void Switch(int* out, int x) {
  int result = 0;
  switch (x) {
    case 0:
      result = out[5];
      break;
    case 1:
      result = out[7] * 3;
      break;
    case 2:
      result = out[9] - out[1];
      break;
    case 3:
      printf("three %d %f\n", x, 1.5);
      break;
    case 4:
      result = clock();
      break;
    case 5:
      result = out[11] / out[2];
      break;
    case 6:
      result = threadIdx.x;
      break;
    case 7:
      __trap();
    case 9:
      result = static_cast<int>(clock64());
      break;
    default:
      result = -1;
  }
  out[threadIdx.x] = result;
}

__global__ void __launch_bounds__(256, 2) Local(int* out, int n) {
  int stack[64];
  int top = 0;
  for (int i = 0; i < n; ++i) {
    if (out[i] & 1) {
      stack[top++ & 63] = out[i];
    } else if (out[i] & 2) {
      continue;
    } else if (out[i] & 4) {
      return;
    }
  }
  assert(top < 64);
  for (int i = 0; i < top; ++i) out[i] = stack[(i * 7) & 63];
  if (n > 100) {
    int* heap = static_cast<int*>(malloc(n));
    if (heap != nullptr) {
      memset(heap, 1, n);
      memcpy(out, heap, n);
      free(heap);
    }
  }
}
