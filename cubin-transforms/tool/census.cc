#include "cubin-transforms/tool/census.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/tool/library_cubins.h"

namespace tally::cubin_transforms {
namespace {

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void CountCubin(const FoundCubin& cubin, const NvLinker* linker, const GateOptions& options, CensusRow& row) {
  ++row.cubins;
  const auto bytes = LinkIfNeeded(cubin, linker);
  const double began = CpuSeconds();
  const Result<GatedImage> image = bytes ? AddGates(*bytes, options) : std::unexpected(bytes.error());
  row.seconds += CpuSeconds() - began;
  if (!image) {
    ++row.unreadable[image.error().message()];
    return;
  }
  row.bytes += bytes->size();
  row.gated_bytes += image->cubin.size();
  row.kernels += image->kernels.size();
  row.gated += image->num_gated();
  for (const GatedKernel& kernel : image->kernels)
    if (!kernel.is_gated()) ++row.refusals[kernel.refusal];
}

std::string Reasons(const CensusRow& row, std::string_view separator) {
  std::string text;
  for (const auto& [reason, count] : row.refusals)
    text += fmt::format("{}{}: {}", text.empty() ? "" : separator, count, reason);
  for (const auto& [reason, count] : row.unreadable)
    text += fmt::format("{}{} unreadable: {}", text.empty() ? "" : separator, count, reason);
  return text;
}

// Rounded down: 100.00 % is all of them.
std::string Percent(const CensusRow& row) {
  return fmt::format("{:.2f} %", static_cast<double>(static_cast<int64_t>(row.share() * 10000)) / 100);
}

double MicrosecondsPerKernel(const CensusRow& row) {
  return row.kernels == 0 ? 0 : row.seconds * 1e6 / static_cast<double>(row.kernels);
}

}  // namespace

std::vector<CensusRow> Census::Totals() const {
  std::map<uint32_t, CensusRow> by_arch;
  for (const CensusRow& row : rows) {
    CensusRow& total = by_arch[row.arch];
    total.arch = row.arch;
    total.cubins += row.cubins;
    total.kernels += row.kernels;
    total.gated += row.gated;
    total.bytes += row.bytes;
    total.gated_bytes += row.gated_bytes;
    total.seconds += row.seconds;
    for (const auto& [reason, count] : row.refusals) total.refusals[reason] += count;
    for (const auto& [reason, count] : row.unreadable) total.unreadable[reason] += count;
  }
  std::vector<CensusRow> totals;
  for (auto& [arch, total] : by_arch) totals.push_back(std::move(total));
  return totals;
}

Status CountFile(const std::string& path, const NvLinker* linker, const GateOptions& options, Census& census) {
  const Result<MappedFile> file = MappedFile::Open(path);
  if (!file) return file.error();
  std::map<uint32_t, CensusRow> by_arch;
  ForEachCubin(file->bytes(),
               [&](const FoundCubin& cubin) { CountCubin(cubin, linker, options, by_arch[cubin.arch]); });
  for (auto& [arch, row] : by_arch) {
    row.library = path.substr(path.rfind('/') + 1);
    row.arch = arch;
    census.rows.push_back(std::move(row));
  }
  return OkStatus();
}

std::string CensusAsText(const Census& census) {
  std::string text;
  const auto add = [&](const CensusRow& row) {
    text += fmt::format("{:<40} sm_{:<4} {:>6} cubins {:>7} kernels {:>7} gated {:>9}\n",
                        row.library.empty() ? "all" : row.library, row.arch, row.cubins, row.kernels, row.gated,
                        Percent(row));
    if (const std::string reasons = Reasons(row, "\n    "); !reasons.empty()) text += "    " + reasons + "\n";
  };
  for (const CensusRow& row : census.rows) add(row);
  for (const CensusRow& row : census.Totals()) add(row);
  return text;
}

std::string CensusAsMarkdown(const Census& census) {
  std::string text =
      "| library | architecture | cubins | kernels | gated | share | size | refused |\n"
      "|---|---|---:|---:|---:|---:|---:|---|\n";
  const auto add = [&](const CensusRow& row) {
    const double growth =
        row.bytes == 0 ? 0 : (static_cast<double>(row.gated_bytes) / static_cast<double>(row.bytes) - 1) * 100;
    text += fmt::format("| {} | sm_{} | {} | {} | {} | {} | {:+.1f} % | {} |\n",
                        row.library.empty() ? "**all**" : row.library, row.arch, row.cubins, row.kernels, row.gated,
                        Percent(row), growth, Reasons(row, "; "));
  };
  for (const CensusRow& row : census.rows) add(row);
  for (const CensusRow& row : census.Totals()) add(row);
  return text;
}

std::string CensusAsJson(const Census& census) {
  const auto rows_of = [](const std::vector<CensusRow>& rows) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const CensusRow& row : rows)
      list.push_back({{"library", row.library},
                      {"arch", row.arch},
                      {"cubins", row.cubins},
                      {"kernels", row.kernels},
                      {"gated", row.gated},
                      {"share", row.share()},
                      {"bytes", row.bytes},
                      {"gated_bytes", row.gated_bytes},
                      {"us_per_kernel", MicrosecondsPerKernel(row)},
                      {"refusals", row.refusals},
                      {"unreadable", row.unreadable}});
    return list;
  };
  const nlohmann::ordered_json all = {{"rows", rows_of(census.rows)}, {"totals", rows_of(census.Totals())}};
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tally::cubin_transforms
