#include "clustermgr/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <exception>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Registry;

Family<Counter>& counter(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

Gauge& gauge(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

struct Metrics::Parts {
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Family<Counter>& requests =
      counter(*registry, "plexrl_cluster_requests_total", "Requests answered, by method and code");
  Counter& refused = counter(*registry, "plexrl_cluster_refused_callers_total",
                             "Requests refused because of the caller's certificate")
                         .Add({});
  Family<Counter>& writes =
      counter(*registry, "plexrl_cluster_store_writes_total", "Writes to the store, by result");
  Counter& good_writes = writes.Add({{"result", "done"}});
  Counter& failed_writes = writes.Add({{"result", "failed"}});
  Gauge& ready = gauge(*registry, "plexrl_cluster_ready", "1 while requests can be served");
  Family<Gauge>& nodes = BuildGauge()
                             .Name("plexrl_cluster_nodes")
                             .Help("Nodes that ever joined, by state")
                             .Register(*registry);
  Gauge& joined = nodes.Add({{"state", "joined"}});
  Gauge& lost = nodes.Add({{"state", "lost"}});
  Gauge& expiry = gauge(*registry, "plexrl_cluster_certificate_expiry_seconds",
                        "Unix time at which the manager's own certificate expires; 0: has none");
  std::unique_ptr<prometheus::Exposer> exposer;  // last: it reads the registry from its threads
};

Metrics::Metrics(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Metrics::~Metrics() = default;

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::serve(const std::string& listen) {
  auto parts = std::make_unique<Parts>();
  if (listen != "off") {
    try {
      constexpr std::size_t kThreads = 2;
      parts->exposer = std::make_unique<prometheus::Exposer>(listen, kThreads);
      parts->exposer->RegisterCollectable(parts->registry);
    } catch (const std::exception& failure) {
      return nodemgr::failed("metrics can't be served at ", listen, ": ", failure.what(),
                             ": is the port taken? (--metrics-listen)");
    }
  }
  return std::unique_ptr<Metrics>(new Metrics(std::move(parts)));
}

int Metrics::port() const {
  return parts_->exposer == nullptr ? 0 : parts_->exposer->GetListeningPorts().front();
}

void Metrics::count_request(const std::string& method, const std::string& code) {
  parts_->requests.Add({{"method", method}, {"code", code}}).Increment();
}
void Metrics::count_refused_caller() { parts_->refused.Increment(); }
void Metrics::count_store_write(bool good) {
  (good ? parts_->good_writes : parts_->failed_writes).Increment();
}
void Metrics::set_ready(bool ready) { parts_->ready.Set(ready ? 1 : 0); }
void Metrics::set_nodes(int joined, int lost) {
  parts_->joined.Set(joined);
  parts_->lost.Set(lost);
}
void Metrics::set_certificate_expiry(std::time_t expiry) {
  parts_->expiry.Set(static_cast<double>(expiry));
}

}  // namespace plexrl::clustermgr
