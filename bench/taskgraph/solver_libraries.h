// cuBLAS and cuSOLVER, loaded when the program runs: without them it has kernels of its own.
#pragma once

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <dlfcn.h>

#include <memory>
#include <string>

namespace taskgraph {

struct SolverLibraries {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasDgemm_v2) gemm = nullptr;
  decltype(&cublasDtrsm_v2) trsm = nullptr;
  decltype(&cublasDsyrk_v2) syrk = nullptr;
  decltype(&cusolverDnCreate) create_solver = nullptr;
  decltype(&cusolverDnSetStream) set_solver_stream = nullptr;
  decltype(&cusolverDnDpotrf_bufferSize) potrf_size = nullptr;
  decltype(&cusolverDnDpotrf) potrf = nullptr;
  decltype(&cusolverDnDgetrf_bufferSize) getrf_size = nullptr;
  decltype(&cusolverDnDgetrf) getrf = nullptr;

  // Null: they are not there. They stay loaded.
  static std::unique_ptr<SolverLibraries> Load() {
    void* const blas = Open("libcublas.so");
    void* const solver = Open("libcusolver.so");
    if (blas == nullptr || solver == nullptr) return nullptr;
    auto loaded = std::make_unique<SolverLibraries>();
    const bool is_whole =
        Find(blas, "cublasCreate_v2", loaded->create) && Find(blas, "cublasSetStream_v2", loaded->set_stream) &&
        Find(blas, "cublasSetWorkspace_v2", loaded->set_workspace) && Find(blas, "cublasDgemm_v2", loaded->gemm) &&
        Find(blas, "cublasDtrsm_v2", loaded->trsm) && Find(blas, "cublasDsyrk_v2", loaded->syrk) &&
        Find(solver, "cusolverDnCreate", loaded->create_solver) &&
        Find(solver, "cusolverDnSetStream", loaded->set_solver_stream) &&
        Find(solver, "cusolverDnDpotrf_bufferSize", loaded->potrf_size) &&
        Find(solver, "cusolverDnDpotrf", loaded->potrf) &&
        Find(solver, "cusolverDnDgetrf_bufferSize", loaded->getrf_size) &&
        Find(solver, "cusolverDnDgetrf", loaded->getrf);
    return is_whole ? std::move(loaded) : nullptr;
  }

  static void* Open(const std::string& name) {
    for (const char* version : {".13", ".12", ".11", ""}) {
      if (void* const library = ::dlopen((name + version).c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    }
    return nullptr;
  }
  template <typename Function>
  static bool Find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace taskgraph
