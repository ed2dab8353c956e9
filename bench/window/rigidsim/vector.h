// Vectors and quaternions. Only operations that IEEE 754 fixes (no sine, no fused multiply-add): host, GPU and software
// GPU give the same bits.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#define RIGIDSIM_BOTH __host__ __device__ __forceinline__

namespace rigidsim {

using Quaternion = float4;  // x, y, z, then the real part

RIGIDSIM_BOTH float3 Vector(float x, float y, float z) { return make_float3(x, y, z); }
RIGIDSIM_BOTH float3 Vector(float4 v) { return make_float3(v.x, v.y, v.z); }
RIGIDSIM_BOTH float4 WithTail(float3 v, float w) { return make_float4(v.x, v.y, v.z, w); }

RIGIDSIM_BOTH float3 operator+(float3 a, float3 b) { return Vector(a.x + b.x, a.y + b.y, a.z + b.z); }
RIGIDSIM_BOTH float3 operator-(float3 a, float3 b) { return Vector(a.x - b.x, a.y - b.y, a.z - b.z); }
RIGIDSIM_BOTH float3 operator-(float3 a) { return Vector(-a.x, -a.y, -a.z); }
RIGIDSIM_BOTH float3 operator*(float3 a, float s) { return Vector(a.x * s, a.y * s, a.z * s); }
RIGIDSIM_BOTH float3 operator*(float3 a, float3 b) { return Vector(a.x * b.x, a.y * b.y, a.z * b.z); }
RIGIDSIM_BOTH float Dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
RIGIDSIM_BOTH float3 Cross(float3 a, float3 b) {
  return Vector(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
RIGIDSIM_BOTH float Length(float3 a) { return sqrtf(Dot(a, a)); }
RIGIDSIM_BOTH float Smaller(float a, float b) { return a < b ? a : b; }
RIGIDSIM_BOTH float Larger(float a, float b) { return a > b ? a : b; }
RIGIDSIM_BOTH float Clamp(float a, float low, float high) { return Larger(low, Smaller(a, high)); }
// At most so long.
RIGIDSIM_BOTH float3 Shortened(float3 a, float longest) {
  const float length = Length(a);
  return length > longest ? a * (longest / length) : a;
}

RIGIDSIM_BOTH Quaternion Conjugate(Quaternion q) { return make_float4(-q.x, -q.y, -q.z, q.w); }
RIGIDSIM_BOTH Quaternion Product(Quaternion a, Quaternion b) {
  return make_float4(a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y, a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x,
                     a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w, a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z);
}
RIGIDSIM_BOTH Quaternion Normalised(Quaternion q) {
  const float s = 1.0f / sqrtf(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w);
  return make_float4(q.x * s, q.y * s, q.z * s, q.w * s);
}
RIGIDSIM_BOTH float3 Rotated(Quaternion q, float3 v) {
  const float3 t = Cross(Vector(q), v) * 2.0f;
  return v + t * q.w + Cross(Vector(q), t);
}
// A small rotation vector (radians, world) behind q.
RIGIDSIM_BOTH Quaternion Turned(Quaternion q, float3 by) {
  const Quaternion d = Product(WithTail(by * 0.5f, 0.0f), q);
  return Normalised(make_float4(q.x + d.x, q.y + d.y, q.z + d.z, q.w + d.w));
}

}  // namespace rigidsim
