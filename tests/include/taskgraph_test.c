/* Built as C89 and as C++98. Where there is no Tally, declarations are taken and nothing comes of them. */
#include <tally/taskgraph.h>

int main(void) {
  static float x[4];
  tallyTaskRegion region;
  region.address = x;
  region.row_bytes = sizeof(x);
  region.rows = 1;
  region.pitch = 0;
  region.access = TALLY_READS | TALLY_WRITES;
  if (tallyTaskBegin(NULL, &region, 1) != 0) return 1;
  if (tallyTaskBegin(NULL, NULL, 0) != 0) return 2;
  return tallyTaskEnd(NULL) != 0 ? 3 : 0;
}
