// Kernels of the bench: tasks of generated graphs, tiles without a library, and what residuals need.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace taskgraph {

// --- generated graphs -----------------------------------------------------------------------------------------------

// values[task] = task + 1, folded with those that it comes behind; `rounds` of multiply-adds first, by each thread.
__global__ void GeneratedTask(uint32_t* values, uint32_t task, const uint32_t* before, uint32_t num_before,
                              uint32_t rounds, float* sink) {
  float value = static_cast<float>(threadIdx.x);
  for (uint32_t i = 0; i < rounds; ++i) value = value * 0.5f + 1.0f;
  if (rounds != 0 && value < 0) *sink = value;  // never: so that the rounds are not left out
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  uint32_t folded = task + 1;
  for (uint32_t i = 0; i < num_before; ++i) folded = folded * 31 + values[before[i]];
  values[task] = folded;
}

// --- matrices, by columns, with a leading dimension -----------------------------------------------------------------

// Symmetric, and dominated by its diagonal: LU needs no pivots, Cholesky exists.
__global__ void Fill(double* a, uint32_t n) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < uint64_t{n} * n;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const uint32_t row = static_cast<uint32_t>(i % n), column = static_cast<uint32_t>(i / n);
    const uint32_t low = min(row, column), high = max(row, column);
    uint32_t hash = low * 2654435761u ^ high * 40503u;
    hash ^= hash >> 15;
    a[i] = static_cast<double>(hash % 1000) / 1000.0 + (row == column ? n : 0);
  }
}

enum class Part { kAll, kLower, kLowerUnit, kUpper, kLowerTransposed };

// y = part(A) x, one thread a row.
__global__ void Multiply(const double* a, uint32_t n, Part part, const double* x, double* y) {
  const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  double sum = 0;
  for (uint32_t column = 0; column < n; ++column) {
    double value = part == Part::kLowerTransposed ? a[column + uint64_t{row} * n] : a[row + uint64_t{column} * n];
    if ((part == Part::kLower || part == Part::kLowerUnit) && column > row) continue;
    if ((part == Part::kUpper || part == Part::kLowerTransposed) && column < row) continue;
    if (part == Part::kLowerUnit && column == row) value = 1;
    sum += value * x[column];
  }
  y[row] = sum;
}

// --- tiles of `size` without a library: one block, right by its plainness -------------------------------------------

__global__ void PlainPotrf(double* a, uint32_t size, uint32_t ld) {
  for (uint32_t k = 0; k < size; ++k) {
    if (threadIdx.x == 0) a[k + uint64_t{k} * ld] = sqrt(a[k + uint64_t{k} * ld]);
    __syncthreads();
    const double diagonal = a[k + uint64_t{k} * ld];
    for (uint32_t i = k + 1 + threadIdx.x; i < size; i += blockDim.x) a[i + uint64_t{k} * ld] /= diagonal;
    __syncthreads();
    for (uint32_t i = k + 1 + threadIdx.x; i < size; i += blockDim.x) {
      for (uint32_t j = k + 1; j <= i; ++j)
        a[i + uint64_t{j} * ld] -= a[i + uint64_t{k} * ld] * a[j + uint64_t{k} * ld];
    }
    __syncthreads();
  }
}

__global__ void PlainGetrf(double* a, uint32_t size, uint32_t ld) {
  for (uint32_t k = 0; k < size; ++k) {
    const double diagonal = a[k + uint64_t{k} * ld];
    for (uint32_t i = k + 1 + threadIdx.x; i < size; i += blockDim.x) {
      const double factor = a[i + uint64_t{k} * ld] /= diagonal;
      for (uint32_t j = k + 1; j < size; ++j) a[i + uint64_t{j} * ld] -= factor * a[k + uint64_t{j} * ld];
    }
    __syncthreads();
  }
}

// B = B op(T)^-1 with the triangle T: its lower half transposed (Cholesky), or its upper half (LU).
__global__ void PlainSolveRight(const double* t, double* b, uint32_t size, uint32_t ld, bool is_lower_transposed) {
  for (uint32_t row = threadIdx.x; row < size; row += blockDim.x) {
    for (uint32_t column = 0; column < size; ++column) {
      double value = b[row + uint64_t{column} * ld];
      for (uint32_t k = 0; k < column; ++k) {
        const double factor = is_lower_transposed ? t[column + uint64_t{k} * ld] : t[k + uint64_t{column} * ld];
        value -= b[row + uint64_t{k} * ld] * factor;
      }
      b[row + uint64_t{column} * ld] = value / t[column + uint64_t{column} * ld];
    }
  }
}

// B = L^-1 B with the lower half of T, whose diagonal is 1.
__global__ void PlainSolveLeft(const double* t, double* b, uint32_t size, uint32_t ld) {
  for (uint32_t column = threadIdx.x; column < size; column += blockDim.x) {
    for (uint32_t row = 0; row < size; ++row) {
      double value = b[row + uint64_t{column} * ld];
      for (uint32_t k = 0; k < row; ++k) value -= t[row + uint64_t{k} * ld] * b[k + uint64_t{column} * ld];
      b[row + uint64_t{column} * ld] = value;
    }
  }
}

// C -= A B, or A B^T.
__global__ void PlainUpdate(const double* a, const double* b, double* c, uint32_t size, uint32_t ld,
                            bool is_transposed) {
  for (uint32_t i = threadIdx.x; i < size * size; i += blockDim.x) {
    const uint32_t row = i % size, column = i / size;
    double value = c[row + uint64_t{column} * ld];
    for (uint32_t k = 0; k < size; ++k) {
      value -=
          a[row + uint64_t{k} * ld] * (is_transposed ? b[column + uint64_t{k} * ld] : b[k + uint64_t{column} * ld]);
    }
    c[row + uint64_t{column} * ld] = value;
  }
}

}  // namespace taskgraph
