// Records about device code: images, modules, libraries, kernels, variables, linking. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

// Piece of an image. Pieces of one image come in order and without gaps; the first has offset 0.
struct WriteImage {
  uint32_t image;  // chosen by the client, unique among images not yet loaded; never 0
  uint32_t size_bytes;
  uint64_t total_bytes;
  uint64_t offset_bytes;
};
static_assert(sizeof(WriteImage) == 24);
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

enum class ImageFormat : uint32_t {
  kPtx = 1,        // NUL-terminated text
  kElf = 2,        // a cubin
  kContainer = 3,  // a bare fat-binary container
  kWrapper =
      4,  // a wrapper: the image is its containers one after another; wrapper_version and num_prelinked say which
};

struct JitOption {
  uint32_t option;  // CUjit_option; those that take buffers are not sent (see LoadImage's log sizes)
  uint32_t reserved;
  uint64_t value;
};
static_assert(sizeof(JitOption) == 16);

struct LoadImage {
  uint32_t image;
  uint32_t format;           // ImageFormat
  uint32_t wrapper_version;  // 1 or 2 when format is kWrapper
  uint32_t num_prelinked;    // version 2: containers after the first, padded to 8 bytes each as the first is
  uint32_t num_options;      // JitOption records that follow
  uint32_t info_log_bytes;   // capacity the caller offered, 0 if none
  uint32_t error_log_bytes;
  uint32_t reserved;
};
static_assert(sizeof(LoadImage) == 32);

struct LoadedImage {
  uint64_t handle;
  uint32_t info_log_bytes;  // text that follows, without NUL, then padding to 8
  uint32_t error_log_bytes;
};
static_assert(sizeof(LoadedImage) == 16);

struct GetByName {
  uint64_t owner;
  uint32_t name_bytes;  // without NUL
  uint32_t detail;      // kGetGlobal: kOnlyManaged or 0; kListKernels: the first one wanted
};
static_assert(sizeof(GetByName) == 16);
inline constexpr uint32_t kOnlyManaged = 1;  // cuLibraryGetManaged: other variables are not found

struct ParameterLayout {
  uint32_t offset_bytes;
  uint32_t size_bytes;
};
static_assert(sizeof(ParameterLayout) == 8);

inline constexpr uint32_t kNumKernelAttributes = 16;  // CUfunction_attribute 0..15
struct KernelDescription {
  uint64_t handle;
  uint32_t num_parameters;   // ParameterLayout records that follow
  uint32_t parameter_bytes;  // end of the last parameter
  int32_t attribute[kNumKernelAttributes];
  uint32_t attribute_valid;  // bit n: attribute n
  uint32_t device;           // of which the attributes are: the executor's ordinal
};
static_assert(sizeof(KernelDescription) == 88);
inline constexpr uint32_t kMaxParameterBytes = 32764;

struct GlobalDescription {
  uint64_t address;
  uint64_t size_bytes;
  uint32_t is_managed;
  uint32_t reserved;
};
static_assert(sizeof(GlobalDescription) == 24);

struct LinkAdd {
  uint64_t handle;
  uint32_t image;
  uint32_t input_type;  // CUjitInputType
  uint32_t num_options;
  uint32_t name_bytes;  // after the options, without NUL
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
};
static_assert(sizeof(LinkAdd) == 32);

struct ReadLinked {
  uint64_t handle;
  uint64_t offset_bytes;
  uint64_t size_bytes;  // at most kMaxReplyBytes / 2
};
static_assert(sizeof(ReadLinked) == 24);

}  // namespace tally::shm
