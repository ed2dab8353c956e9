/* Pipelines: a chain of narrow linear layers (multi-layer perceptrons of up to 256 columns) as one kernel.
 *
 * A tile of rows goes through all layers before the next one begins, so what is between two layers never reaches the
 * GPU's memory. libtally-pipelines.so works with and without Tally; docs/pipelines.md says when it pays.
 *
 *   tally_pipeline* p = tallyPipelineCreate(TALLY_PIPELINE_BF16);
 *   tallyPipelineAddLinear(p, w1, 128, b1, 128, 128);
 *   tallyPipelineAddActivation(p, TALLY_PIPELINE_RELU);
 *   tallyPipelineAddLinear(p, w2, 128, b2, 128, 64);
 *   if (tallyPipelineInstantiate(p, rows) != 0) puts(tallyPipelineError(p));   // say why, take the library
 *   tallyPipelineLaunch(p, stream, x, 128, y, 64, rows);
 *
 * All pointers but structs are addresses in the GPU's memory, owned by the caller, who keeps them until the pipeline is
 * destroyed: each launch reads weights and vectors where they are, so new values count from the next launch on.
 * Matrices are row-major; a pitch is in elements. 0 is success; otherwise a CUresult, and tallyPipelineError() has a
 * sentence. Building is one thread's; Launch and Query of an instantiated pipeline may come from several. Launch may be
 * captured into a graph, waits for nothing and allocates nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tally_pipeline tally_pipeline;
typedef struct CUstream_st* tally_pipeline_stream; /* CUstream, cudaStream_t */

typedef enum { TALLY_PIPELINE_BF16 = 0, TALLY_PIPELINE_FP16 = 1 } tally_pipeline_dtype;
typedef enum {
  TALLY_PIPELINE_RELU = 1,
  TALLY_PIPELINE_GELU = 2, /* by the error function */
  TALLY_PIPELINE_GELU_TANH = 3,
  TALLY_PIPELINE_SILU = 4
} tally_pipeline_activation;
typedef enum { TALLY_PIPELINE_LAYER_NORM = 1, TALLY_PIPELINE_RMS_NORM = 2 } tally_pipeline_norm;
/* Where the chain's input stands in what a layer takes. */
typedef enum { TALLY_PIPELINE_INPUT_FIRST = 0, TALLY_PIPELINE_INPUT_LAST = 1 } tally_pipeline_concat;

/* Null: out of memory, or no such type. The current context's GPU is the one it will run on. */
tally_pipeline* tallyPipelineCreate(tally_pipeline_dtype dtype);
/* hidden = weights * hidden + bias. `weights`: [out][in], 16-byte aligned. `bias`: [out] or null. */
int tallyPipelineAddLinear(tally_pipeline* pipeline, const void* weights, size_t weights_pitch, const void* bias,
                           int in, int out);
/* Of the last linear layer, once, before its norm. */
int tallyPipelineAddActivation(tally_pipeline* pipeline, tally_pipeline_activation activation);
/* Of the last linear layer, once. `scale`, `shift`: [out], or null: 1 and 0. */
int tallyPipelineAddNorm(tally_pipeline* pipeline, tally_pipeline_norm norm, const void* scale, const void* shift,
                         float epsilon);
/* The next linear layer takes the hidden values and, once more, the chain's input: `in` is the sum of both. */
int tallyPipelineAddConcat(tally_pipeline* pipeline, tally_pipeline_concat order);
/* Adds the chain's input to what the last linear layer gives, after its activation and norm. */
int tallyPipelineAddResidual(tally_pipeline* pipeline);

/* Plans and compiles, seconds; compiled kernels are kept in TALLY_PIPELINES_CACHE (~/.cache/tally/pipelines).
 * CUDA_ERROR_NOT_SUPPORTED: refused, because the library would be quicker or the chain is none of the kinds that exist;
 * the sentence says which. */
int tallyPipelineInstantiate(tally_pipeline* pipeline, int64_t max_rows);
/* `x`: [rows][in of the first layer], `y`: [rows][out of the last], which do not overlap; 16-byte aligned, pitches
 * multiples of 8. rows: 0 to max_rows. */
int tallyPipelineLaunch(const tally_pipeline* pipeline, tally_pipeline_stream stream, const void* x, size_t x_pitch,
                        void* y, size_t y_pitch, int64_t rows);

typedef struct tally_pipeline_plan {
  int warpgroups;       /* of a block; each has a tile of 64 rows */
  int weights_resident; /* 1: all weights stay in shared memory */
  int stages;           /* places of the ring that weights pass through, if not resident */
  int shared_bytes;     /* of a block */
  double predicted_us;  /* for `rows` */
} tally_pipeline_plan;
/* What Launch would do for so many rows. */
int tallyPipelineQuery(const tally_pipeline* pipeline, int64_t rows, tally_pipeline_plan* plan);

/* --- training ---
 * Linear layers with or without bias, between them ReLU or nothing, and nothing behind the last: at least two. What
 * else a chain may have has no backward pass, and the sentence says so.
 *
 *   tallyPipelineInstantiateTraining(p, rows, 1);
 *   tallyPipelineLaunchForward(p, stream, x, 128, y, 64, saved, rows);
 *   tallyPipelineLaunchBackward(p, stream, dy, 64, saved, dz, dx, 128, rows);
 *
 * `saved` holds what each layer but the last gave: [rows][out] elements without gaps, one layer after another, in
 * order. Behind them, at dz_bytes, is what the backward pass reads of them, in a layout of the library's own. `dz` has
 * the same order, and dz_bytes: the gradients of what these layers' products and biases gave. They are rounded as a
 * framework's that computes in elements. From both follow, with a_l what layer l takes, and dy as the last layer's dz:
 *
 *   gradient of weights l = dz_l^T * a_l      of bias l = the sums of dz_l's columns
 *
 * which are the caller's to compute, after the launch. */

/* As tallyPipelineInstantiate, for training instead. `with_dx`: 1 if the gradient of x is wanted: then x has 256
 * columns at most, a multiple of 16. With 0, or of wider ones, it is dz of the first layer times its weights. */
int tallyPipelineInstantiateTraining(tally_pipeline* pipeline, int64_t max_rows, int with_dx);
/* As tallyPipelineLaunch, and writes `saved`, saved_bytes long for so many rows; 16-byte aligned. */
int tallyPipelineLaunchForward(const tally_pipeline* pipeline, tally_pipeline_stream stream, const void* x,
                               size_t x_pitch, void* y, size_t y_pitch, void* saved, int64_t rows);
/* `dy`: [rows][out of the last layer]. `saved`: as LaunchForward left it, for as many rows. `dz`: dz_bytes long. `dx`:
 * [rows][in of the first layer]; null if instantiated without. All 16-byte aligned, pitches multiples of 8; none
 * overlaps another that is written. Weights are read anew: they must be those of LaunchForward. */
int tallyPipelineLaunchBackward(const tally_pipeline* pipeline, tally_pipeline_stream stream, const void* dy,
                                size_t dy_pitch, const void* saved, void* dz, void* dx, size_t dx_pitch, int64_t rows);

typedef struct tally_pipeline_training {
  tally_pipeline_plan forward, backward;
  int64_t saved_bytes; /* dz_bytes + ceil(rows / 64) * 512 * the sum of ceil(out / 64) over all layers but the last */
  int64_t dz_bytes;    /* rows * 2 * the sum of out over all layers but the last */
} tally_pipeline_training;
/* What both would do for so many rows. */
int tallyPipelineQueryTraining(const tally_pipeline* pipeline, int64_t rows, tally_pipeline_training* training);

/* Of the last call that failed, of this pipeline. Never null; valid until the next call. */
const char* tallyPipelineError(const tally_pipeline* pipeline);
/* Null is fine. Launches that were made go on; the caller waits for them first. */
void tallyPipelineDestroy(tally_pipeline* pipeline);

#ifdef __cplusplus
}
#endif
