#include "server/executor/issue/compiled_variants.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tally::server {
namespace {

using Json = nlohmann::json;

Json ToJson(const CompiledForm& form) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(form.image.data());
  return {{"image", Json::binary({bytes, bytes + form.image.size()})},
          {"entry", form.entry},
          {"import_table", form.import_table},
          {"imports", form.imports},
          {"extra_shared_bytes", form.extra_shared_bytes},
          {"needs_warp_rows", form.needs_warp_rows},
          {"waits_for_blocks", form.waits_for_blocks},
          {"gates_clusters", form.gates_clusters},
          {"refusal", form.refusal}};
}

CompiledForm FromJson(const Json& json) {
  CompiledForm form;
  const auto& image = json.at("image").get_binary();
  const auto bytes = std::as_bytes(std::span(image));
  form.image.assign(bytes.begin(), bytes.end());
  json.at("entry").get_to(form.entry);
  json.at("import_table").get_to(form.import_table);
  json.at("imports").get_to(form.imports);
  json.at("extra_shared_bytes").get_to(form.extra_shared_bytes);
  json.at("needs_warp_rows").get_to(form.needs_warp_rows);
  json.at("waits_for_blocks").get_to(form.waits_for_blocks);
  json.at("gates_clusters").get_to(form.gates_clusters);
  json.at("refusal").get_to(form.refusal);
  return form;
}

}  // namespace

std::vector<std::byte> Serialize(const CompiledVariants& variants) {
  const std::vector<uint8_t> bytes = Json::to_cbor({{"slices", ToJson(variants.slices)},
                                                    {"workers", ToJson(variants.persistent_blocks)},
                                                    {"gated", ToJson(variants.gated)}});
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

Result<CompiledVariants> DeserializeVariants(std::span<const std::byte> bytes) {
  try {
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
    const Json json = Json::from_cbor(begin, begin + bytes.size());
    return CompiledVariants{FromJson(json.at("slices")), FromJson(json.at("workers")), FromJson(json.at("gated"))};
  } catch (const Json::exception& error) {
    return Error(StatusCode::kDataLoss, fmt::format("kept variants: {}", error.what()));
  }
}

}  // namespace tally::server
