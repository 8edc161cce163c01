#include "tools/exporter/families.h"

#include <map>
#include <string>

namespace plexrl::exporter {
namespace {

using Json = nlohmann::ordered_json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

/// Families in the order in which they are first named.
class Page {
 public:
  explicit Page(Labels of_all) : of_all_(std::move(of_all)) {}

  /// The next samples are of this family.
  Page& family(const char* name, MetricType type, const char* help) {
    current_ = index_.try_emplace(name, families_.size()).first->second;
    if (current_ == families_.size()) {
      families_.emplace_back();
      families_.back().name = name;
      families_.back().help = help;
      families_.back().type = type;
    }
    return *this;
  }
  Page& gauge(const char* name, const char* help) { return family(name, MetricType::Gauge, help); }
  Page& counter(const char* name, const char* help) {
    return family(name, MetricType::Counter, help);
  }

  void sample(double value, const Labels& labels) {
    ClientMetric metric;
    for (const Labels* some : {static_cast<const Labels*>(&of_all_), &labels}) {
      for (const auto& [name, text] : *some) {
        ClientMetric::Label& label = metric.label.emplace_back();
        label.name = name;
        label.value = text;
      }
    }
    MetricFamily& family = families_[current_];
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  /// None where `object` has no number of that name.
  void sample(const Json& object, const char* key, const Labels& labels) {
    const auto it = object.find(key);
    if (it == object.end()) return;
    if (it->is_number()) sample(it->get<double>(), labels);
    if (it->is_boolean()) sample(it->get<bool>() ? 1 : 0, labels);
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  Labels of_all_;
  std::vector<MetricFamily> families_;
  std::map<std::string, std::size_t> index_;
  std::size_t current_ = 0;
};

void add_manager(Page& page, const Json& manager) {
  page.gauge("plexrl_manager_generation", "Managers of this node so far, this one included");
  page.sample(manager, "generation", {});
  page.gauge("plexrl_manager_uptime_seconds", "Since the manager began")
      .sample(manager, "uptime_s", {});
  page.gauge("plexrl_manager_draining", "1 while no new job is admitted");
  page.sample(manager, "draining", {});
  page.gauge("plexrl_manager_journal_ok", "0: what survives the manager can't be written");
  page.sample(manager, "journal_ok", {});
  page.counter("plexrl_trace_lost_records_total", "Records of the trace that could not be written");
  page.sample(manager, "trace_lost_records", {});
  page.counter("plexrl_grants_total", "Leases granted since the manager began");
  page.sample(manager, "grants", {});
  page.gauge("plexrl_host_bytes", "Host memory for evicted bytes");
  page.sample(manager, "host_budget_bytes", {{"kind", "budget"}});
  page.sample(manager, "host_promised_bytes", {{"kind", "promised"}});
  page.sample(manager, "host_used_bytes", {{"kind", "used"}});
  page.gauge("plexrl_disk_bytes", "Disk for evicted bytes");
  page.sample(manager, "disk_budget_bytes", {{"kind", "budget"}});
  page.sample(manager, "disk_used_bytes", {{"kind", "used"}});
  const auto observer = manager.find("observer");
  page.gauge("plexrl_observer_connected", "1 while a plexrl-observer tells what jobs wait for");
  if (observer != manager.end()) page.sample(observer->is_null() ? 0 : 1, {});
}

void add_gpu(Page& page, const Json& gpu) {
  const Labels labels = {{"gpu", gpu.value("index", Json()).dump()},
                         {"uuid", text_of(gpu, "uuid")}};
  const auto with = [&](const char* name, const char* value) {
    Labels more = labels;
    more.emplace_back(name, value);
    return more;
  };
  page.gauge("plexrl_gpu_memory_bytes", "Memory of the GPU");
  page.sample(gpu, "total_bytes", with("kind", "total"));
  page.sample(gpu, "budget_bytes", with("kind", "budget"));
  page.sample(gpu, "used_by_plexrl_bytes", with("kind", "jobs"));
  page.sample(gpu, "used_by_others_bytes", with("kind", "others"));
  page.gauge("plexrl_gpu_duty_ratio",
             "Share of the last seconds in which a holder's work was outstanding");
  page.sample(gpu, "duty_ratio", labels);
  page.counter("plexrl_gpu_moved_bytes_total",
               "Evicted (out) and loaded (in) since the manager began");
  page.sample(gpu, "out_bytes", with("direction", "out"));
  page.sample(gpu, "in_bytes", with("direction", "in"));
  const auto holder = gpu.find("holder");
  page.gauge("plexrl_gpu_held", "1 while a job has the lease");
  page.sample(holder != gpu.end() && !holder->is_null() ? 1 : 0, labels);
  for (const auto& [key, name, help] :
       {std::tuple{"queue", "plexrl_gpu_waiting_gangs", "Gangs that wait for the GPU"},
        std::tuple{"bypass_pids", "plexrl_gpu_bypass_processes",
                   "Processes on the GPU that are in no job of PlexRL's"}}) {
    const auto list = gpu.find(key);
    page.gauge(name, help);
    if (list != gpu.end() && list->is_array())
      page.sample(static_cast<double>(list->size()), labels);
  }
}

void add_job(Page& page, const Json& job) {
  const Labels labels = {{"job", text_of(job, "id")},
                         {"name", text_of(job, "name")},
                         {"user", text_of(job, "user")},
                         {"team", text_of(job, "team")}};
  const auto with = [&](const char* name, const std::string& value) {
    Labels more = labels;
    more.emplace_back(name, value);
    return more;
  };
  page.gauge("plexrl_job_state", "1, with the job's state as a label");
  page.sample(1, with("state", text_of(job, "state")));
  page.gauge("plexrl_job_memory_bytes",
             "Device memory of the job by where it is; unpageable is part of hbm");
  page.sample(job, "hbm_bytes", with("tier", "hbm"));
  page.sample(job, "host_bytes", with("tier", "host"));
  page.sample(job, "disk_bytes", with("tier", "disk"));
  page.sample(job, "unpageable_bytes", with("tier", "unpageable"));
  page.gauge("plexrl_job_promised_bytes", "Promised to the job on each GPU");
  page.sample(job, "promised_bytes", labels);
  page.gauge("plexrl_job_share_ratio", "Of all GPU time granted in the last minutes");
  page.sample(job, "share_ratio", labels);
  page.gauge("plexrl_job_slowdown_ratio",
             "All of the job's time over what it would have taken alone");
  page.sample(job, "slowdown_ratio", labels);
  page.gauge("plexrl_job_wait_seconds", "Time in which the job has waited for a GPU");
  page.sample(job, "wait_s", labels);
}

const Json& list_in(const Json& status, const char* key) {
  static const Json kNone = Json::array();
  const auto it = status.find(key);
  return it != status.end() && it->is_array() ? *it : kNone;
}

}  // namespace

std::vector<MetricFamily> families_of(const Json& status) {
  const auto simulated = status.find("simulated");
  Page page({{"node", text_of(status, "node")},
             {"simulated", simulated != status.end() && *simulated == true ? "true" : "false"}});
  const auto manager = status.find("manager");
  if (manager != status.end() && manager->is_object()) add_manager(page, *manager);
  for (const Json& gpu : list_in(status, "gpus")) add_gpu(page, gpu);
  // Each word is there from the beginning, so that no series begins with a job.
  std::map<std::string, int> states, causes;
  for (const char* state :
       {"queued", "idle", "waiting", "loading", "running", "draining", "paused"}) {
    states[state] = 0;
  }
  for (const char* cause : {"network", "disk", "pipe", "subprocess", "cpu", "cpu_queue", "sleep",
                            "lock", "gpu", "page_fault", "stopped", "other"}) {
    causes[cause] = 0;
  }
  for (const Json& job : list_in(status, "jobs")) {
    add_job(page, job);
    ++states[text_of(job, "state")];
    if (const std::string cause = text_of(job, "gap_cause"); !cause.empty()) ++causes[cause];
  }
  page.gauge("plexrl_jobs", "Jobs by state");
  for (const auto& [state, count] : states) page.sample(count, {{"state", state}});
  page.gauge("plexrl_jobs_in_gap",
             "Jobs that leave their GPUs idle, by cause, as plexrl-observer tells");
  for (const auto& [cause, count] : causes) page.sample(count, {{"cause", cause}});
  return page.take();
}

MetricFamily up_family(bool answered) {
  Page page({});
  page.gauge("plexrl_manager_up", "1 when the node manager answered").sample(answered ? 1 : 0, {});
  return page.take().front();
}

}  // namespace plexrl::exporter
