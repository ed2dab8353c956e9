/* Built as C89 and as C++98. Where there is no Tally, declarations are taken and nothing comes of them. */
#include <tally/segments.h>

int main(void) {
  static float x[4], y[4];
  tally_segment read, written;
  read.address = x;
  read.row_bytes = sizeof(x);
  read.rows = 1;
  read.pitch = 0;
  written = read;
  written.address = y;
  if (tally_segments(&read, 1, &written, 1) != 0) return 1;
  if (tally_segments(NULL, 0, NULL, 0) != 0) return 2;
  return tally_opaque() != 0 ? 3 : 0;
}
