// CUDA manual: Error Handling. Works before cuInit and after the executor's end.
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

struct ErrorRow {
  CUresult error;
  const char* name;
  const char* sentence;
};
constexpr ErrorRow kErrors[] = {
#define TALLY_ERROR(enumerator, sentence) {enumerator, #enumerator, sentence},
#include "client-shim/entry/error_names.inc"
#undef TALLY_ERROR
};

const ErrorRow* FindError(CUresult error) {
  for (const ErrorRow& row : kErrors) {
    if (row.error == error) return &row;
  }
  return nullptr;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorRow* row = FindError(error);
  *pStr = row != nullptr ? row->name : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorRow* row = FindError(error);
  *pStr = row != nullptr ? row->sentence : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tally::client_shim::entry
