#include "server/daemon/metrics/exporter.h"

#include <CivetServer.h>
#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "proto/control/version.h"
#include "server/daemon/metrics/families.h"

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
    DaemonFacts facts = desk_.facts();
    facts.process = FiguresOfThisProcess();
    return MakeFamilies(*overview, facts);
  }

 private:
  ControlDesk& desk_;
};

// What is served beside /metrics. The library hands every request to a callback before it looks for a page of its own,
// and would show its own for every path that begins alike.
struct Page {
  std::string_view path;
  const char* type;
  std::string text;
};

const Page* FindPage(std::string_view path) {
  static const Page pages[] = {
      {"/", "text/html",
       fmt::format("<!doctype html>\n<title>tallyd</title>\n<h1>tallyd {}</h1>\n<ul>\n"
                   "<li><a href=\"/metrics\">/metrics</a>: for Prometheus\n"
                   "<li><a href=\"/healthz\">/healthz</a>: ok while tallyd runs\n</ul>\n",
                   control::kVersion)},
      {"/healthz", "text/plain", "ok\n"},
  };
  for (const Page& page : pages) {
    if (page.path == path) return &page;
  }
  return nullptr;
}

// The status of a request that was answered here; 0: it is the library's.
int AnswerRequest(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const Page* page = request->local_uri == nullptr ? nullptr : FindPage(request->local_uri);
  const bool has_body = std::strcmp(request->request_method, "GET") == 0;
  if (page == nullptr) {
    if (request->local_uri != nullptr && std::strcmp(request->local_uri, "/metrics") == 0) return 0;
    mg_send_http_error(connection, 404, "%s", "there are /, /metrics and /healthz\n");
    return 404;
  }
  if (!has_body && std::strcmp(request->request_method, "HEAD") != 0) return 0;
  mg_send_http_ok(connection, page->type, static_cast<long long>(page->text.size()));
  if (has_body) mg_write(connection, page->text.data(), page->text.size());
  return 200;
}

// Nobody holds up a scrape for long: whoever sends no request within two seconds is hung up on, and there are threads
// enough for the others meanwhile. What finds all of them taken waits in a queue of so many.
std::vector<std::string> OptionsOf(const std::string& address) {
  return {"listening_ports",  address, "num_threads",    "8", "request_timeout_ms", "2000",
          "connection_queue", "32",    "listen_backlog", "32"};
}

CivetCallbacks Callbacks() {
  CivetCallbacks callbacks;
  callbacks.begin_request = AnswerRequest;
  return callbacks;
}

class RunningExporter final : public MetricsExporter {
 public:
  RunningExporter(const std::string& address, ControlDesk& desk)
      : collectable_(std::make_shared<DeskCollectable>(desk)),
        callbacks_(Callbacks()),
        exposer_(OptionsOf(address), &callbacks_) {
    exposer_.RegisterCollectable(collectable_);
  }

 private:
  std::shared_ptr<DeskCollectable> collectable_;
  CivetCallbacks callbacks_;
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
