// cuSOLVERMg's Cholesky: one matrix, its columns dealt out to several GPUs. What others are compared with.
#pragma once

#define DISABLE_CUSOLVERMG_DEPRECATED
#include <cuda_runtime.h>
#include <cusolverMg.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bench/taskgraph/check.h"
#include "bench/taskgraph/solver_libraries.h"

namespace taskgraph {

// One process, the first `num_gpus` GPUs, all of which reach one another's memory. Every failure ends the program.
class SolverOfSeveralGpus {
 public:
  SolverOfSeveralGpus(uint32_t n, uint32_t num_gpus) : n_(n), functions_(Functions::Load()) {
    for (uint32_t gpu = 0; gpu < num_gpus; ++gpu) gpus_.push_back(static_cast<int>(gpu));
    for (const int gpu : gpus_) MakePlace(gpu);
    Require(functions_.create(&handle_), "cusolverMgCreate");
    Require(functions_.select(handle_, static_cast<int>(num_gpus), gpus_.data()), "cusolverMgDeviceSelect");
    Require(functions_.create_grid(&grid_, 1, static_cast<int32_t>(num_gpus), gpus_.data(),
                                   CUDALIBMG_GRID_MAPPING_COL_MAJOR),
            "cusolverMgCreateDeviceGrid");
    Require(functions_.create_matrix(&matrix_, n, n, n, kBlockColumns, CUDA_R_64F, grid_),
            "cusolverMgCreateMatrixDesc");
    Require(functions_.potrf_size(handle_, CUBLAS_FILL_MODE_LOWER, static_cast<int>(n), columns_.data(), 1, 1, matrix_,
                                  CUDA_R_64F, &workspace_size_),
            "cusolverMgPotrf_bufferSize");
    for (size_t i = 0; i < gpus_.size(); ++i) {
      Check(cudaSetDevice(gpus_[i]), "a GPU");
      Check(cudaMalloc(&workspaces_[i], sizeof(double) * static_cast<size_t>(workspace_size_)), "a workspace");
    }
    Check(cudaSetDevice(0), "the first GPU");
  }

  // From, and to, a matrix on the first GPU, of n columns one behind the other.
  void DealOut(const double* matrix) {
    ForBlocks([&](size_t place, uint64_t begin_there, uint64_t begin, uint64_t count) {
      return cudaMemcpyPeer(Column(place, begin_there), gpus_[place], matrix + begin * n_, 0, count);
    });
  }
  void Gather(double* matrix) {
    ForBlocks([&](size_t place, uint64_t begin_there, uint64_t begin, uint64_t count) {
      return cudaMemcpyPeer(matrix + begin * n_, 0, Column(place, begin_there), gpus_[place], count);
    });
  }
  // Returns when it has ended on all GPUs.
  void Factor() {
    int failed = 0;
    Require(functions_.potrf(handle_, CUBLAS_FILL_MODE_LOWER, static_cast<int>(n_), columns_.data(), 1, 1, matrix_,
                             CUDA_R_64F, workspaces_.data(), workspace_size_, &failed),
            "cusolverMgPotrf");
    if (failed != 0) Fail("cusolverMgPotrf", "the matrix is not positive definite");
    for (const int gpu : gpus_) {
      Check(cudaSetDevice(gpu), "a GPU");
      Check(cudaDeviceSynchronize(), "wait for a GPU");
    }
    Check(cudaSetDevice(0), "the first GPU");
  }

 private:
  static constexpr uint32_t kBlockColumns = 256;  // as NVIDIA's samples have it

  struct Functions {
    decltype(&cusolverMgCreate) create = nullptr;
    decltype(&cusolverMgDeviceSelect) select = nullptr;
    decltype(&cusolverMgCreateDeviceGrid) create_grid = nullptr;
    decltype(&cusolverMgCreateMatrixDesc) create_matrix = nullptr;
    decltype(&cusolverMgPotrf_bufferSize) potrf_size = nullptr;
    decltype(&cusolverMgPotrf) potrf = nullptr;

    static Functions Load() {
      void* const library = SolverLibraries::Open("libcusolverMg.so");
      if (library == nullptr) Fail("--mode cusolvermg", "libcusolverMg is not there");
      Functions found;
      const bool is_whole = SolverLibraries::Find(library, "cusolverMgCreate", found.create) &&
                            SolverLibraries::Find(library, "cusolverMgDeviceSelect", found.select) &&
                            SolverLibraries::Find(library, "cusolverMgCreateDeviceGrid", found.create_grid) &&
                            SolverLibraries::Find(library, "cusolverMgCreateMatrixDesc", found.create_matrix) &&
                            SolverLibraries::Find(library, "cusolverMgPotrf_bufferSize", found.potrf_size) &&
                            SolverLibraries::Find(library, "cusolverMgPotrf", found.potrf);
      if (!is_whole) Fail("--mode cusolvermg", "libcusolverMg is of another version");
      return found;
    }
  };

  // Room for its share of the columns; the last block may be smaller than the others.
  void MakePlace(int gpu) {
    Check(cudaSetDevice(gpu), "a GPU");
    for (const int other : gpus_) {
      if (other == gpu) continue;
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) Check(enabled, "reach another GPU's memory");
    }
    const uint64_t num_blocks = (n_ + kBlockColumns - 1) / kBlockColumns;
    const uint64_t most = (num_blocks + gpus_.size() - 1) / gpus_.size() * kBlockColumns;
    void* columns = nullptr;
    Check(cudaMalloc(&columns, sizeof(double) * most * n_), "a GPU's columns");
    columns_.push_back(columns);
    workspaces_.push_back(nullptr);
  }
  double* Column(size_t place, uint64_t index) { return static_cast<double*>(columns_[place]) + index * n_; }
  // copy(place, first column there, first column of the matrix, bytes), for each block of columns.
  template <typename Copy>
  void ForBlocks(const Copy& copy) {
    for (uint64_t begin = 0, block = 0; begin < n_; begin += kBlockColumns, ++block) {
      const uint64_t count = std::min<uint64_t>(kBlockColumns, n_ - begin);
      Check(copy(block % gpus_.size(), block / gpus_.size() * kBlockColumns, begin, sizeof(double) * count * n_),
            "copy columns");
    }
    Check(cudaDeviceSynchronize(), "copy columns");
  }

  const uint32_t n_;
  const Functions functions_;
  std::vector<int> gpus_;
  std::vector<void*> columns_, workspaces_;  // by place in gpus_; never freed: the program ends
  cusolverMgHandle_t handle_ = nullptr;
  cudaLibMgGrid_t grid_ = nullptr;
  cudaLibMgMatrixDesc_t matrix_ = nullptr;
  int64_t workspace_size_ = 0;
};

}  // namespace taskgraph
