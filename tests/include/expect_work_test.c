/* Built as C89 and as C++98, beside the other header. Where there is no Tally nothing comes of what is said. */
#include <tally/expect_work.h>
#include <tally/segments.h>

int main(void) {
  if (tally_expect_work(400) != 0) return 1;
  return tally_expect_work(~0ul) != 0 ? 2 : 0;
}
