// tally/pipelines.h: nothing is thrown across it, and each failure leaves a sentence.
#include <new>
#include <string>
#include <utility>

#include "include/tally/pipelines.h"
#include "pipelines/runtime/pipeline.h"

#define TALLY_EXPORT __attribute__((visibility("default")))

using tally::pipelines::Activation;
using tally::pipelines::Element;
using tally::pipelines::Failure;
using tally::pipelines::Norm;
using tally::pipelines::Outcome;
using tally::pipelines::Pipeline;
using tally::pipelines::PlanOf;
using tally::pipelines::TakesInput;
using tally::pipelines::Use;

struct tally_pipeline {
  explicit tally_pipeline(Element element) : pipeline(element) {}
  Pipeline pipeline;
};

namespace {

// Of the calling thread: launches come from several.
thread_local std::string last_error;
thread_local const tally_pipeline* of_pipeline = nullptr;

template <typename Call>
int Answer(const tally_pipeline* pipeline, Call call) {
  if (pipeline == nullptr) return CUDA_ERROR_INVALID_VALUE;
  try {
    const Outcome outcome = call();
    if (outcome) return CUDA_SUCCESS;
    last_error = outcome.error().sentence;
    of_pipeline = pipeline;
    return outcome.error().result;
  } catch (const std::bad_alloc&) {
    of_pipeline = nullptr;
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    of_pipeline = nullptr;
    return CUDA_ERROR_UNKNOWN;
  }
}

tally_pipeline_plan Said(const PlanOf& of) {
  const auto& [variant, grid, us] = of.plan;
  return {variant.warpgroups, variant.resident ? 1 : 0, variant.resident ? 0 : variant.stages, of.shared_bytes, us};
}

}  // namespace

extern "C" {

TALLY_EXPORT tally_pipeline* tallyPipelineCreate(tally_pipeline_dtype dtype) {
  if (dtype != TALLY_PIPELINE_BF16 && dtype != TALLY_PIPELINE_FP16) return nullptr;
  return new (std::nothrow) tally_pipeline(dtype == TALLY_PIPELINE_BF16 ? Element::kBf16 : Element::kFp16);
}

TALLY_EXPORT int tallyPipelineAddLinear(tally_pipeline* pipeline, const void* weights, size_t weights_pitch,
                                        const void* bias, int in, int out) {
  return Answer(pipeline, [&] {
    return pipeline->pipeline.AddLinear({.weights = weights, .weights_pitch = weights_pitch, .bias = bias}, in, out);
  });
}

TALLY_EXPORT int tallyPipelineAddActivation(tally_pipeline* pipeline, tally_pipeline_activation activation) {
  return Answer(pipeline, [&] { return pipeline->pipeline.AddActivation(static_cast<Activation>(activation)); });
}

TALLY_EXPORT int tallyPipelineAddNorm(tally_pipeline* pipeline, tally_pipeline_norm norm, const void* scale,
                                      const void* shift, float epsilon) {
  return Answer(pipeline, [&] { return pipeline->pipeline.AddNorm(static_cast<Norm>(norm), scale, shift, epsilon); });
}

TALLY_EXPORT int tallyPipelineAddConcat(tally_pipeline* pipeline, tally_pipeline_concat order) {
  return Answer(pipeline, [&] {
    const int kind = order;
    return pipeline->pipeline.AddConcat(kind == TALLY_PIPELINE_INPUT_FIRST  ? TakesInput::kFirst
                                        : kind == TALLY_PIPELINE_INPUT_LAST ? TakesInput::kLast
                                                                            : TakesInput::kNo);
  });
}

TALLY_EXPORT int tallyPipelineAddResidual(tally_pipeline* pipeline) {
  return Answer(pipeline, [&] { return pipeline->pipeline.AddResidual(); });
}

TALLY_EXPORT int tallyPipelineInstantiate(tally_pipeline* pipeline, int64_t max_rows) {
  return Answer(pipeline, [&] { return pipeline->pipeline.Instantiate(Use::kInference, max_rows); });
}

TALLY_EXPORT int tallyPipelineLaunch(const tally_pipeline* pipeline, tally_pipeline_stream stream, const void* x,
                                     size_t x_pitch, void* y, size_t y_pitch, int64_t rows) {
  return Answer(pipeline, [&] { return pipeline->pipeline.Launch(stream, x, x_pitch, y, y_pitch, rows); });
}

TALLY_EXPORT int tallyPipelineQuery(const tally_pipeline* pipeline, int64_t rows, tally_pipeline_plan* plan) {
  return Answer(pipeline, [&]() -> Outcome {
    if (plan == nullptr) return std::unexpected(Failure{CUDA_ERROR_INVALID_VALUE, "plan is null"});
    const auto found = pipeline->pipeline.Query(rows);
    if (!found) return std::unexpected(found.error());
    *plan = Said(*found);
    return {};
  });
}

TALLY_EXPORT int tallyPipelineInstantiateTraining(tally_pipeline* pipeline, int64_t max_rows, int with_dx) {
  const Use use = with_dx != 0 ? Use::kTrainingWithDx : Use::kTraining;
  return Answer(pipeline, [&] { return pipeline->pipeline.Instantiate(use, max_rows); });
}

TALLY_EXPORT int tallyPipelineLaunchForward(const tally_pipeline* pipeline, tally_pipeline_stream stream, const void* x,
                                            size_t x_pitch, void* y, size_t y_pitch, void* saved, int64_t rows) {
  return Answer(pipeline,
                [&] { return pipeline->pipeline.LaunchForward(stream, x, x_pitch, y, y_pitch, saved, rows); });
}

TALLY_EXPORT int tallyPipelineLaunchBackward(const tally_pipeline* pipeline, tally_pipeline_stream stream,
                                             const void* dy, size_t dy_pitch, const void* saved, void* dz, void* dx,
                                             size_t dx_pitch, int64_t rows) {
  return Answer(pipeline,
                [&] { return pipeline->pipeline.LaunchBackward(stream, dy, dy_pitch, saved, dz, dx, dx_pitch, rows); });
}

TALLY_EXPORT int tallyPipelineQueryTraining(const tally_pipeline* pipeline, int64_t rows,
                                            tally_pipeline_training* training) {
  return Answer(pipeline, [&]() -> Outcome {
    if (training == nullptr) return std::unexpected(Failure{CUDA_ERROR_INVALID_VALUE, "training is null"});
    const auto found = pipeline->pipeline.QueryTraining(rows);
    if (!found) return std::unexpected(found.error());
    *training = {Said(found->forward), Said(found->backward), found->saved_bytes, found->dz_bytes};
    return {};
  });
}

TALLY_EXPORT const char* tallyPipelineError(const tally_pipeline* pipeline) {
  return pipeline != nullptr && pipeline == of_pipeline ? last_error.c_str()
                                                        : "no failure of this pipeline in this thread";
}

TALLY_EXPORT void tallyPipelineDestroy(tally_pipeline* pipeline) { delete pipeline; }

}  // extern "C"
