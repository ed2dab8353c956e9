// Copies and memsets.
#include "sim-driver/api/copy.h"

#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

namespace {

void Linear(CUstream stream, uint64_t to, CopyEnd to_end, uint64_t from, CopyEnd from_end, size_t num_bytes,
            CopyCall call) {
  // First the stream: a missing context is reported before bad addresses.
  UseStream(stream);
  IssueCopy(stream, LinearCopy(to, to_end, from, from_end, num_bytes), call);
}

template <typename Description>
void InBox(CUstream stream, const Description* description, CopyCall call) {
  UseStream(stream);
  RequireOut(description);
  if constexpr (std::is_same_v<Description, CUDA_MEMCPY3D>) {
    IssueCopy(stream, BoxCopy(*description), call);
  } else {
    IssueCopy(stream, BoxCopy(Box(*description)), call);
  }
}

void Set(CUstream stream, CUdeviceptr to, size_t pitch, unsigned value, unsigned element_bytes, size_t width,
         size_t height, CopyCall call) {
  IssueMemset(
      stream,
      {.dst = to, .pitch = pitch, .value = value, .elementSize = element_bytes, .width = width, .height = height},
      call);
}

}  // namespace

// Every call has a twin whose default stream is the thread's own (_ptds, _ptsz).
#define PER_THREAD(stream) ((stream) == nullptr ? CU_STREAM_PER_THREAD : (stream))

#define DEFINE_LINEAR_COPY(name, suffix, ToType, FromType, to_end, from_end)                                           \
  TALLY_EXPORT CUresult CUDAAPI name##suffix(ToType to, FromType from, size_t ByteCount) {                             \
    TALLY_ENTRY({ Linear(nullptr, (uint64_t)to, to_end, (uint64_t)from, from_end, ByteCount, CopyCall::kBlocking); }); \
  }                                                                                                                    \
  TALLY_EXPORT CUresult CUDAAPI name##suffix##_ptds(ToType to, FromType from, size_t ByteCount) {                      \
    TALLY_ENTRY({                                                                                                      \
      Linear(CU_STREAM_PER_THREAD, (uint64_t)to, to_end, (uint64_t)from, from_end, ByteCount, CopyCall::kBlocking);    \
    });                                                                                                                \
  }                                                                                                                    \
  TALLY_EXPORT CUresult CUDAAPI name##Async##suffix(ToType to, FromType from, size_t ByteCount, CUstream hStream) {    \
    TALLY_ENTRY({ Linear(hStream, (uint64_t)to, to_end, (uint64_t)from, from_end, ByteCount, CopyCall::kAsync); });    \
  }                                                                                                                    \
  TALLY_EXPORT CUresult CUDAAPI name##Async##suffix##_ptsz(ToType to, FromType from, size_t ByteCount,                 \
                                                           CUstream hStream) {                                         \
    return name##Async##suffix(to, from, ByteCount, PER_THREAD(hStream));                                              \
  }

DEFINE_LINEAR_COPY(cuMemcpyHtoD, _v2, CUdeviceptr, const void*, CopyEnd::kDevice, CopyEnd::kHost)
DEFINE_LINEAR_COPY(cuMemcpyDtoH, _v2, void*, CUdeviceptr, CopyEnd::kHost, CopyEnd::kDevice)
DEFINE_LINEAR_COPY(cuMemcpyDtoD, _v2, CUdeviceptr, CUdeviceptr, CopyEnd::kDevice, CopyEnd::kDevice)
DEFINE_LINEAR_COPY(cuMemcpy, , CUdeviceptr, CUdeviceptr, CopyEnd::kEither, CopyEnd::kEither)

#define DEFINE_BOX_COPY(name, suffix, Description)                              \
  TALLY_EXPORT CUresult CUDAAPI name##suffix(const Description* pCopy) {        \
    TALLY_ENTRY({ InBox(nullptr, pCopy, CopyCall::kBlocking); });               \
  }                                                                             \
  TALLY_EXPORT CUresult CUDAAPI name##suffix##_ptds(const Description* pCopy) { \
    TALLY_ENTRY({ InBox(CU_STREAM_PER_THREAD, pCopy, CopyCall::kBlocking); });  \
  }

#define DEFINE_ASYNC_BOX_COPY(name, suffix, Description)                                          \
  TALLY_EXPORT CUresult CUDAAPI name##suffix(const Description* pCopy, CUstream hStream) {        \
    TALLY_ENTRY({ InBox(hStream, pCopy, CopyCall::kAsync); });                                    \
  }                                                                                               \
  TALLY_EXPORT CUresult CUDAAPI name##suffix##_ptsz(const Description* pCopy, CUstream hStream) { \
    return name##suffix(pCopy, PER_THREAD(hStream));                                              \
  }

DEFINE_BOX_COPY(cuMemcpy2D, _v2, CUDA_MEMCPY2D)
DEFINE_BOX_COPY(cuMemcpy2DUnaligned, _v2, CUDA_MEMCPY2D)
DEFINE_BOX_COPY(cuMemcpy3D, _v2, CUDA_MEMCPY3D)
DEFINE_BOX_COPY(cuMemcpy3DPeer, , CUDA_MEMCPY3D_PEER)
DEFINE_ASYNC_BOX_COPY(cuMemcpy2DAsync, _v2, CUDA_MEMCPY2D)
DEFINE_ASYNC_BOX_COPY(cuMemcpy3DAsync, _v2, CUDA_MEMCPY3D)
DEFINE_ASYNC_BOX_COPY(cuMemcpy3DPeerAsync, , CUDA_MEMCPY3D_PEER)

// With unified addressing a copy between contexts is an ordinary copy of the current one.
TALLY_EXPORT CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                           CUcontext srcContext, size_t ByteCount) {
  TALLY_ENTRY({
    RequireInitialized();
    FindContext(dstContext);
    FindContext(srcContext);
    Linear(nullptr, dstDevice, CopyEnd::kDevice, srcDevice, CopyEnd::kDevice, ByteCount, CopyCall::kBlocking);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                                CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  TALLY_ENTRY({
    RequireInitialized();
    FindContext(dstContext);
    FindContext(srcContext);
    Linear(hStream, dstDevice, CopyEnd::kDevice, srcDevice, CopyEnd::kDevice, ByteCount, CopyCall::kAsync);
  });
}

// A batch is its copies one after the other: the attributes only say how early sources may be read.
TALLY_EXPORT CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                                    CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                                    CUstream hStream) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    Require(dsts != nullptr && srcs != nullptr && sizes != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
    Require(attrs != nullptr && attrsIdxs != nullptr && numAttrs != 0 && numAttrs <= count && attrsIdxs[0] == 0,
            CUDA_ERROR_INVALID_VALUE);
    Require(use.stream->kind != Stream::Kind::kLegacy, CUDA_ERROR_INVALID_VALUE);
    RefuseWhileCapturing(use.stream);
    // All are checked before the first is given to the stream.
    std::vector<CopyOperation> copies;
    for (size_t i = 0; i < count; ++i) {
      Require(sizes[i] != 0, CUDA_ERROR_INVALID_VALUE);
      copies.push_back(LinearCopy(dsts[i], CopyEnd::kEither, srcs[i], CopyEnd::kEither, sizes[i]));
    }
    for (CopyOperation& copy : copies) IssueCopy(hStream, std::move(copy), CopyCall::kAsync);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                                 CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                                 size_t* failIdx, CUstream hStream) {
  const CUresult code = cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
  if (code != CUDA_SUCCESS && failIdx != nullptr) *failIdx = SIZE_MAX;  // the whole batch
  return code;
}

// Linear memsets come in three element sizes; those in two dimensions as well.
#define DEFINE_MEMSET(bits, Value)                                                                                 \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD##bits##_v2(CUdeviceptr dstDevice, Value value, size_t N) {               \
    TALLY_ENTRY({ Set(nullptr, dstDevice, 0, value, bits / 8, N, 1, CopyCall::kBlocking); });                      \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD##bits##_v2_ptds(CUdeviceptr dstDevice, Value value, size_t N) {          \
    TALLY_ENTRY({ Set(CU_STREAM_PER_THREAD, dstDevice, 0, value, bits / 8, N, 1, CopyCall::kBlocking); });         \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD##bits##Async(CUdeviceptr dstDevice, Value value, size_t N,               \
                                                       CUstream hStream) {                                         \
    TALLY_ENTRY({ Set(hStream, dstDevice, 0, value, bits / 8, N, 1, CopyCall::kAsync); });                         \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD##bits##Async_ptsz(CUdeviceptr dstDevice, Value value, size_t N,          \
                                                            CUstream hStream) {                                    \
    return cuMemsetD##bits##Async(dstDevice, value, N, PER_THREAD(hStream));                                       \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, Value value,        \
                                                       size_t Width, size_t Height) {                              \
    TALLY_ENTRY({ Set(nullptr, dstDevice, dstPitch, value, bits / 8, Width, Height, CopyCall::kBlocking); });      \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD2D##bits##_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, Value value,   \
                                                            size_t Width, size_t Height) {                         \
    TALLY_ENTRY(                                                                                                   \
        { Set(CU_STREAM_PER_THREAD, dstDevice, dstPitch, value, bits / 8, Width, Height, CopyCall::kBlocking); }); \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, Value value,      \
                                                         size_t Width, size_t Height, CUstream hStream) {          \
    TALLY_ENTRY({ Set(hStream, dstDevice, dstPitch, value, bits / 8, Width, Height, CopyCall::kAsync); });         \
  }                                                                                                                \
  TALLY_EXPORT CUresult CUDAAPI cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, Value value, \
                                                              size_t Width, size_t Height, CUstream hStream) {     \
    return cuMemsetD2D##bits##Async(dstDevice, dstPitch, value, Width, Height, PER_THREAD(hStream));               \
  }

DEFINE_MEMSET(8, unsigned char)
DEFINE_MEMSET(16, unsigned short)
DEFINE_MEMSET(32, unsigned int)
