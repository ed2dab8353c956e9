// How much of real PTX the front end, the passes and the segments understand.
//
//   ptx-corpus FILE...                    .ptx files, and programs or libraries whose fat binaries carry PTX
//   ptx-corpus --assemble PTXAS FILE...   every transformed text must be taken by that ptxas
//   ptx-corpus --segments FILE...         only the segments, which is quicker
//
// Prints tables: texts (each counted once, by digest), kernels, what each pass did with them and why not, and the
// classes of the memory that they touch (docs/segments.md). Nothing of the texts themselves is printed, so that it may
// be run on libraries that are not ours.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "images/codecs.h"
#include "images/fat_container.h"
#include "ptx-transforms/ptx_module.h"
#include "ptx-transforms/segments.h"
#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {
namespace {

struct PassTotals {
  size_t done = 0;
  std::map<std::string, size_t> refused;  // by code
  size_t assembled = 0;
  size_t not_assembled = 0;
};

struct CorpusTotals {
  std::set<uint64_t> digests;
  size_t bytes = 0;
  size_t parsed = 0;
  size_t with_opaque = 0;  // parsed, but something was kept without being understood
  size_t kernels = 0;
  size_t containers_without_ptx_text = 0;
  std::map<std::string, PassTotals> passes;
  std::map<std::string, size_t> kernels_by_class;  // "C0", "barrier", "none"
  std::map<std::string, size_t> accesses_by_class;
  std::map<std::string, size_t> barriers;  // by the code of the first
};

uint64_t Digest(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

class CorpusTable {
 public:
  CorpusTable(std::string assembler, bool has_passes) : assembler_(std::move(assembler)), has_passes_(has_passes) {}

  void AddFile(const std::string& path) {
    if (path.ends_with(".ptx")) {
      std::ifstream file(path, std::ios::binary);
      return AddText({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!fd.valid() || fstat(fd.get(), &status) != 0 || status.st_size == 0) {
      fmt::print(stderr, "ptx-corpus: cannot read {}\n", path);
      return;
    }
    const auto size = static_cast<size_t>(status.st_size);
    void* const file = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (file == MAP_FAILED) return;
    AddContainers({static_cast<const std::byte*>(file), size});
    munmap(file, size);
  }

  void Print() const {
    const auto percent = [](size_t part, size_t whole) {
      return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
    };
    const CorpusTotals& t = totals_;
    fmt::print("{} different texts, {:.1f} MB, {} kernels\n", t.digests.size(), static_cast<double>(t.bytes) / 1e6,
               t.kernels);
    fmt::print("parsed: {} ({:.1f} %), {} of them with statements that were kept without being understood\n", t.parsed,
               percent(t.parsed, t.digests.size()), t.with_opaque);
    if (t.containers_without_ptx_text > 0)
      fmt::print("entries whose text could not be unpacked: {}\n", t.containers_without_ptx_text);
    if (has_passes_) fmt::print("\n| pass | transformed | refused | why |\n|---|---|---|---|\n");
    for (const auto& [name, pass] : t.passes) {
      size_t refused = 0;
      for (const auto& [code, count] : pass.refused) refused += count;
      fmt::print("| {} | {} ({:.1f} %) | {} | {} |\n", name, pass.done, percent(pass.done, t.kernels), refused,
                 Counted(pass.refused));
    }
    PrintSegments();
    if (assembler_.empty()) return;
    fmt::print("\n");
    for (const auto& [name, pass] : t.passes)
      fmt::print("{}: the assembler took {} texts, refused {}\n", name, pass.assembled, pass.not_assembled);
  }
  bool is_all_assembled() const {
    return std::all_of(totals_.passes.begin(), totals_.passes.end(),
                       [](const auto& entry) { return entry.second.not_assembled == 0; });
  }

 private:
  // Most frequent first: "spin-loop 12, trap 3".
  static std::string Counted(const std::map<std::string, size_t>& counts) {
    std::vector<std::pair<std::string, size_t>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    for (const auto& [name, count] : sorted) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
    return text;
  }

  void PrintSegments() const {
    static constexpr const char* kColumns[] = {"C0", "C1", "C2", "C3", "C4", "none", "barrier"};
    fmt::print("\n| segments |");
    for (const char* column : kColumns) fmt::print(" {} |", column);
    fmt::print("\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (const bool is_of_kernels : {true, false}) {
      const auto& counts = is_of_kernels ? totals_.kernels_by_class : totals_.accesses_by_class;
      size_t all = 0;
      for (const auto& [name, count] : counts) all += count;
      fmt::print("| {} {} |", all, is_of_kernels ? "kernels" : "accesses of kernels without a barrier");
      for (const char* column : kColumns) {
        const auto found = counts.find(column);
        const size_t count = found == counts.end() ? 0 : found->second;
        fmt::print(" {:.1f} % |", all == 0 ? 0.0 : 100.0 * static_cast<double>(count) / static_cast<double>(all));
      }
      fmt::print("\n");
    }
    fmt::print("\nbarriers: {}\n", Counted(totals_.barriers));
  }

  void AddSegments(const Module& module) {
    for (const KernelSegments& segments : FindSegments(module)) {
      ++totals_.kernels_by_class[VerdictOf(segments)];
      const std::vector<SegmentBarrier> barriers = BarriersOf(segments);
      if (!barriers.empty()) {
        ++totals_.barriers[barriers[0].code];
        continue;
      }
      for (const GlobalAccess& access : segments.accesses) ++totals_.accesses_by_class[ClassName(access.at_best)];
    }
  }

  void AddContainers(std::span<const std::byte> rest) {
    while (rest.size() > 16) {  // containers are aligned to 8 bytes
      const Result<size_t> bytes = images::FatContainerBytes(rest);
      const Result<std::vector<images::FatEntry>> entries = images::ReadFatContainer(rest);
      if (!bytes || !entries) {
        rest = rest.subspan(8);
        continue;
      }
      for (const images::FatEntry& entry : *entries) {
        if (entry.kind != images::FatEntryKind::kPtx) continue;
        if (Result<std::string> text = images::DecompressPtx(entry); text) {
          AddText(std::move(*text));
        } else {
          ++totals_.containers_without_ptx_text;
        }
      }
      rest = rest.subspan(std::min(rest.size(), (*bytes + 7) / 8 * 8));
    }
  }

  void AddText(std::string text) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
    if (!totals_.digests.insert(Digest(text)).second) return;
    totals_.bytes += text.size();
    const Result<Module> module = ParseModule(text);
    if (!module) return;
    ++totals_.parsed;
    totals_.with_opaque += module->warnings.empty() ? 0 : 1;
    for (const Item& item : module->items()) {
      const auto* function = std::get_if<Function>(&item.node);
      totals_.kernels += function != nullptr && function->is_entry && function->has_body ? 1 : 0;
    }
    AddSegments(*module);
    if (!has_passes_) return;
    for (const char* pass : {"slice_grid", "unify_barriers", "persistent_blocks", "yield_check"})
      AddPass(pass, text, *module);
  }

  void AddPass(const std::string& pass, const std::string& text, const Module& module) {
    TransformOptions options;
    options.pipelines = {{pass}};
    options.placement = Placement::kReplace;
    const Result<Transformed> transformed = TransformText(text, options);
    PassTotals& totals = totals_.passes[pass];
    if (!transformed) {
      ++totals.refused["error"];
      return;
    }
    for (const KernelVariant& variant : transformed->variants) {
      if (variant.is_done()) {
        ++totals.done;
      } else {
        ++totals.refused[variant.refusal.code];
      }
    }
    if (assembler_.empty()) return;
    const std::string base =
        (std::filesystem::temp_directory_path() / fmt::format("tally_ptx_corpus_{}.ptx", getpid())).string();
    std::ofstream(base) << transformed->text;
    const std::string target = module.targets.empty() ? "sm_75" : std::string(module.targets[0]);
    const std::string command = fmt::format("{} -c -O0 -arch={} {} -o /dev/null", assembler_, target, base);
    ++(std::system(command.c_str()) == 0 ? totals.assembled : totals.not_assembled);
    std::filesystem::remove(base);
  }

  const std::string assembler_;
  const bool has_passes_;
  CorpusTotals totals_;
};

}  // namespace
}  // namespace tally::ptx_transforms

int main(int argc, char** argv) {
  CLI::App app("Says how much of real PTX is parsed and transformed, and why the rest is not.");
  std::vector<std::string> files;
  std::string assembler;
  app.add_option("files", files, ".ptx files, programs, libraries")->required();
  app.add_option("--assemble", assembler, "path of a ptxas that must take every transformed text");
  bool has_passes = true;
  app.add_flag("!--segments", has_passes, "only the segments, no passes");
  CLI11_PARSE(app, argc, argv);
  tally::ptx_transforms::CorpusTable table(assembler, has_passes);
  for (const std::string& file : files) table.AddFile(file);
  table.Print();
  return table.is_all_assembled() ? 0 : 1;
}
