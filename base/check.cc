#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tally {

void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "tally: broken invariant at %s:%d: %s\n", file, line, expression);
  std::abort();
}

}  // namespace tally
