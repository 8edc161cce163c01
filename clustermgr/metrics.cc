#include "clustermgr/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <exception>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

Family<Counter>& counter(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

Gauge& gauge(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

Family<Gauge>& gauges(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}

/// All words are there from the beginning, so that no series begins with the first of its kind.
using ByWord = std::map<std::string, Gauge*>;

ByWord by_state(Family<Gauge>& family, std::initializer_list<const char*> states) {
  ByWord all;
  for (const char* state : states) all[state] = &family.Add({{"state", state}});
  return all;
}

void set(const ByWord& gauges, const std::map<std::string, int>& values) {
  for (const auto& [word, gauge] : gauges) {
    const auto value = values.find(word);
    gauge->Set(value == values.end() ? 0 : value->second);
  }
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
  Family<Gauge>& nodes =
      gauges(*registry, "plexrl_cluster_nodes", "Nodes that ever joined, by state");
  Gauge& joined = nodes.Add({{"state", "joined"}});
  Gauge& lost = nodes.Add({{"state", "lost"}});
  Gauge& gpus = gauge(*registry, "plexrl_cluster_gpus", "GPUs of the nodes that are joined");
  ByWord jobs =
      by_state(gauges(*registry, "plexrl_cluster_jobs",
                      "Jobs that the nodes tell of, by state; lost: with their node"),
               {"queued", "idle", "waiting", "loading", "running", "draining", "paused", "lost"});
  ByWord placements = by_state(gauges(*registry, "plexrl_cluster_placements",
                                      "Requests for a place that are not over, by state"),
                               {"queued", "placed", "running"});
  Family<Counter>& decisions = counter(*registry, "plexrl_cluster_decisions_total",
                                       "Decisions about a job's place, by result");
  std::map<std::string, Counter*> decisions_by = {
      {"placed", &decisions.Add({{"result", "placed"}})},
      {"queued", &decisions.Add({{"result", "queued"}})},
      {"refused", &decisions.Add({{"result", "refused"}})}};
  Histogram& decision_time =
      BuildHistogram()
          .Name("plexrl_cluster_decision_seconds")
          .Help("Time that a decision about a job's place took")
          .Register(*registry)
          .Add({}, Histogram::BucketBoundaries{0.0001, 0.001, 0.01, 0.1, 1, 10});
  Gauge& generation = gauge(*registry, "plexrl_cluster_generation",
                            "Starts of this cluster's manager so far, this one included");
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
void Metrics::set_generation(std::uint64_t generation) {
  parts_->generation.Set(static_cast<double>(generation));
}
void Metrics::set_nodes(int joined, int lost, int gpus) {
  parts_->joined.Set(joined);
  parts_->lost.Set(lost);
  parts_->gpus.Set(gpus);
}
void Metrics::set_jobs(const std::map<std::string, int>& by_state) { set(parts_->jobs, by_state); }
void Metrics::set_placements(const std::map<std::string, int>& by_state) {
  set(parts_->placements, by_state);
}
void Metrics::count_decision(const std::string& result, std::chrono::nanoseconds took) {
  parts_->decisions_by.at(result)->Increment();
  parts_->decision_time.Observe(std::chrono::duration<double>(took).count());
}
void Metrics::set_certificate_expiry(std::time_t expiry) {
  parts_->expiry.Set(static_cast<double>(expiry));
}

}  // namespace plexrl::clustermgr
