// What a tile task launches: calls of cuBLAS and cuSOLVER, or plain kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/taskgraph/check.h"
#include "bench/taskgraph/kernels.cuh"
#include "bench/taskgraph/on_streams.h"
#include "bench/taskgraph/solver_libraries.h"
#include "bench/taskgraph/tiles.h"
#include "include/tally/taskgraph.h"

namespace taskgraph {

class TileKernels {
 public:
  // `libraries` may be null. A handle and a workspace for each stream: calls of one stream follow one another.
  // `is_annotated`: says what each task touches.
  TileKernels(const SolverLibraries* libraries, const OnStreams& streams, bool is_cholesky, double* matrix, uint32_t n,
              uint32_t tiles, bool is_annotated)
      : libraries_(libraries), is_annotated_(is_annotated), is_cholesky_(is_cholesky), matrix_(matrix), n_(n), size_(n / tiles) {
    if (libraries == nullptr) return;
    for (size_t i = 0; i < OnStreams::kStreams; ++i) places_.push_back(MakePlace(streams.stream(i)));
  }

  void Launch(const TileTask& task, cudaStream_t stream, size_t index) const {
    double* const target = Tile(task.row, task.column);
    const double* const diagonal = Tile(task.step, task.step);
    const double* const left = Tile(task.row, task.step);
    const double* const other = is_cholesky_ ? Tile(task.column, task.step) : Tile(task.step, task.column);
    if (is_annotated_) Declare(task, target, diagonal, left, other, stream, index);
    if (libraries_ == nullptr) {
      LaunchPlain(task, target, diagonal, left, other, stream);
    } else {
      LaunchLibrary(task, target, diagonal, left, other, places_[index]);
    }
    Check(cudaGetLastError(), "launch a tile");
    if (is_annotated_) Require(tallyTaskEnd(stream), "tallyTaskEnd");
  }

  // The whole matrix by one call; false: there is no library.
  bool FactorWhole(cudaStream_t stream) {
    if (libraries_ == nullptr) return false;
    if (whole_ == nullptr) whole_ = std::make_unique<Place>(MakePlace(stream, n_));
    Factor(*whole_, matrix_, n_);
    return true;
  }

 private:
  static constexpr size_t kBlasWorkspaceBytes = size_t{32} << 20, kLeastWorkspaceBytes = size_t{1} << 20;
  struct Place {
    cublasHandle_t blas = nullptr;
    cusolverDnHandle_t solver = nullptr;
    double* workspace = nullptr;
    int workspace_size = 0;
    int* failed = nullptr;
    void* blas_workspace = nullptr;
  };

  double* Tile(uint32_t row, uint32_t column) const {
    return matrix_ + uint64_t{row} * size_ + uint64_t{column} * size_ * n_;
  }
  Place MakePlace(cudaStream_t stream, uint32_t size = 0) const {
    if (size == 0) size = size_;
    Place place;
    Require(libraries_->create(&place.blas), "cublasCreate");
    Require(libraries_->set_stream(place.blas, stream), "cublasSetStream");
    Check(cudaMalloc(&place.blas_workspace, kBlasWorkspaceBytes), "a workspace");
    Require(libraries_->set_workspace(place.blas, place.blas_workspace, kBlasWorkspaceBytes), "cublasSetWorkspace");
    Require(libraries_->create_solver(&place.solver), "cusolverDnCreate");
    Require(libraries_->set_solver_stream(place.solver, stream), "cusolverDnSetStream");
    const int n = static_cast<int>(size), ld = static_cast<int>(n_);
    Require(is_cholesky_
                ? libraries_->potrf_size(place.solver, CUBLAS_FILL_MODE_LOWER, n, matrix_, ld, &place.workspace_size)
                : libraries_->getrf_size(place.solver, n, n, matrix_, ld, &place.workspace_size),
            "a workspace's size");
    // The word lies behind the workspace: small allocations stay on their GPU.
    const size_t bytes = sizeof(double) * static_cast<size_t>(place.workspace_size);
    Check(cudaMalloc(&place.workspace, bytes + kLeastWorkspaceBytes), "a workspace");
    place.failed = reinterpret_cast<int*>(reinterpret_cast<char*>(place.workspace) + bytes);
    return place;
  }
  void Factor(const Place& place, double* target, uint32_t size) const {
    const int n = static_cast<int>(size), ld = static_cast<int>(n_);
    Require(is_cholesky_ ? libraries_->potrf(place.solver, CUBLAS_FILL_MODE_LOWER, n, target, ld, place.workspace,
                                             place.workspace_size, place.failed)
                         : libraries_->getrf(place.solver, n, n, target, ld, place.workspace, nullptr, place.failed),
            "factor");
  }
  void LaunchLibrary(const TileTask& task, double* target, const double* diagonal, const double* left,
                     const double* other, const Place& place) const {
    const int n = static_cast<int>(size_), ld = static_cast<int>(n_);
    const double one = 1, minus_one = -1;
    switch (task.op) {
      case TileOp::kFactor:
        return Factor(place, target, size_);
      case TileOp::kSolveRight:
        return Require(is_cholesky_
                           ? libraries_->trsm(place.blas, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T,
                                              CUBLAS_DIAG_NON_UNIT, n, n, &one, diagonal, ld, target, ld)
                           : libraries_->trsm(place.blas, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                                              CUBLAS_DIAG_NON_UNIT, n, n, &one, diagonal, ld, target, ld),
                       "trsm");
      case TileOp::kSolveLeft:
        return Require(libraries_->trsm(place.blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                                        CUBLAS_DIAG_UNIT, n, n, &one, diagonal, ld, target, ld),
                       "trsm");
      case TileOp::kUpdate:
        if (is_cholesky_ && task.row == task.column) {
          return Require(libraries_->syrk(place.blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, n, n, &minus_one, left, ld,
                                          &one, target, ld),
                         "syrk");
        }
        return Require(libraries_->gemm(place.blas, CUBLAS_OP_N, is_cholesky_ ? CUBLAS_OP_T : CUBLAS_OP_N, n, n, n,
                                        &minus_one, left, ld, other, ld, &one, target, ld),
                       "gemm");
    }
  }
  // Columns of a tile.
  tallyTaskRegion Region(const double* tile, int access) const {
    return {tile, size_ * sizeof(double), size_, n_ * sizeof(double), access};
  }
  void Declare(const TileTask& task, const double* target, const double* diagonal, const double* left,
               const double* other, cudaStream_t stream, size_t index) const {
    std::vector<tallyTaskRegion> regions = {Region(target, TALLY_READS | TALLY_WRITES)};
    if (task.op == TileOp::kSolveRight || task.op == TileOp::kSolveLeft) {
      regions.push_back(Region(diagonal, TALLY_READS));
    } else if (task.op == TileOp::kUpdate) {
      regions.push_back(Region(left, TALLY_READS));
      regions.push_back(Region(other, TALLY_READS));
    }
    if (libraries_ != nullptr) {
      const Place& place = places_[index];
      const size_t bytes = sizeof(double) * static_cast<size_t>(place.workspace_size) + sizeof(int);
      regions.push_back({place.blas_workspace, kBlasWorkspaceBytes, 1, 0, TALLY_SCRATCH});
      regions.push_back({place.workspace, bytes, 1, 0, TALLY_SCRATCH});
    }
    Require(tallyTaskBegin(stream, regions.data(), regions.size()), "tallyTaskBegin");
  }
  void LaunchPlain(const TileTask& task, double* target, const double* diagonal, const double* left,
                   const double* other, cudaStream_t stream) const {
    constexpr int kThreads = 64;
    switch (task.op) {
      case TileOp::kFactor:
        if (is_cholesky_) {
          PlainPotrf<<<1, kThreads, 0, stream>>>(target, size_, n_);
        } else {
          PlainGetrf<<<1, kThreads, 0, stream>>>(target, size_, n_);
        }
        break;
      case TileOp::kSolveRight:
        PlainSolveRight<<<1, kThreads, 0, stream>>>(diagonal, target, size_, n_, is_cholesky_);
        break;
      case TileOp::kSolveLeft:
        PlainSolveLeft<<<1, kThreads, 0, stream>>>(diagonal, target, size_, n_);
        break;
      case TileOp::kUpdate:
        PlainUpdate<<<1, kThreads, 0, stream>>>(left, other, target, size_, n_, is_cholesky_);
        break;
    }
  }

  const SolverLibraries* const libraries_;
  const bool is_annotated_;
  const bool is_cholesky_;
  double* const matrix_;
  const uint32_t n_, size_;
  std::vector<Place> places_;
  std::unique_ptr<Place> whole_;
};

}  // namespace taskgraph
