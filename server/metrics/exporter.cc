#include "server/metrics/exporter.h"

#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "base/log.h"
#include "server/metrics/families.h"

namespace tally::server {
namespace {

class DeskCollectable final : public prometheus::Collectable {
 public:
  explicit DeskCollectable(ControlDesk& desk) : desk_(desk) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const auto overview = desk_.GetOverview();
    if (!overview) {
      LOG_WARNING("a scrape was not answered: {}", overview.error().message());
      return {};
    }
    return MakeFamilies(*overview, desk_.facts());
  }

 private:
  ControlDesk& desk_;
};

class RunningExporter final : public MetricsExporter {
 public:
  RunningExporter(const std::string& address, ControlDesk& desk)
      : collectable_(std::make_shared<DeskCollectable>(desk)), exposer_(address, /*num_threads=*/1) {
    exposer_.RegisterCollectable(collectable_);
  }

 private:
  std::shared_ptr<DeskCollectable> collectable_;
  prometheus::Exposer exposer_;
};

}  // namespace

Result<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string& address, ControlDesk& desk) {
  try {
    return std::make_unique<RunningExporter>(address, desk);
  } catch (const std::exception&) {  // the library's only way to say it, without saying why
    return Error(StatusCode::kUnavailable,
                 fmt::format("cannot listen at {} for metrics: the address is in use or not this machine's", address));
  }
}

}  // namespace tally::server
