// Names and sentences of CUresult codes, and the guard that every exported function runs in.
#pragma once

#include <cuda.h>

#include <exception>
#include <new>

namespace tally::sim_driver {

// Null for a value that no CUresult has. The strings live for ever.
const char* ErrorName(CUresult code);
const char* ErrorSentence(CUresult code);

// Thrown inside the library only, caught by Guarded(): unwinds out of nested lookups with the code to return.
struct DriverError {
  CUresult code;
};

[[noreturn]] inline void Fail(CUresult code) { throw DriverError{code}; }
inline void Require(bool condition, CUresult code) {
  if (!condition) [[unlikely]]
    Fail(code);
}
// Passes a failure on.
inline void RequireSuccess(CUresult code) {
  if (code != CUDA_SUCCESS) [[unlikely]]
    Fail(code);
}
// Native drivers answer a missing out pointer with INVALID_VALUE.
inline void RequireOut(const void* pointer) { Require(pointer != nullptr, CUDA_ERROR_INVALID_VALUE); }

// No exception crosses the C ABI: `body` returns void or a CUresult, and throws DriverError.
template <typename Body>
CUresult Guarded(Body&& body) noexcept {
  try {
    if constexpr (requires { static_cast<CUresult>(body()); }) {
      return body();
    } else {
      body();
      return CUDA_SUCCESS;
    }
  } catch (const DriverError& error) {
    return error.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception&) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace tally::sim_driver
