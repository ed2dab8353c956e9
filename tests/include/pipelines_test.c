/* The header by itself, in the oldest C and C++: types and constants, nothing to link with. */
#include <tally/pipelines.h>

int main(void) {
  tally_pipeline_plan plan;
  plan.warpgroups = TALLY_PIPELINE_RELU;
  return sizeof(plan) > 0 && plan.warpgroups == 1 && TALLY_PIPELINE_BF16 == 0 ? 0 : 1;
}
