#include "sim-driver/api/error.h"

namespace tally::sim_driver {

const char* ErrorName(CUresult code) {
  switch (code) {
#define X(name, sentence) \
  case name:              \
    return #name;
#include "sim-driver/api/error_names.inc"
#undef X
    default:
      return nullptr;
  }
}

const char* ErrorSentence(CUresult code) {
  switch (code) {
#define X(name, sentence) \
  case name:              \
    return sentence;
#include "sim-driver/api/error_names.inc"
#undef X
    default:
      return nullptr;
  }
}

}  // namespace tally::sim_driver
