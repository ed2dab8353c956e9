// Attributes of launches for tests: one that is a hint, and one that is not.
#pragma once

#include <cuda.h>

namespace tally::server {

inline CUlaunchAttribute Programmatic() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

inline CUlaunchAttribute Clusters() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  return attribute;
}

}  // namespace tally::server
