#include "tools/sim/workload.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "nodemgr/settings/cat.h"
#include "tools/cli/nearest.h"

namespace plexrl::sim {
namespace {

using Json = nlohmann::json;
using nodemgr::cat;

constexpr std::size_t kMostFileBytes = 64 << 20;
constexpr std::size_t kMostJobs = 1'000'000;

/// One object of the file: hands out its values once, remembers the first thing that is wrong, and
/// knows which keys nobody asked for.
class Object {
 public:
  Object(const Json& json, std::string place, std::string& error)
      : json_(json), place_(std::move(place)), error_(error) {
    if (!json_.is_object()) fail("must be an object");
  }
  ~Object() {
    if (!json_.is_object() || !error_.empty()) return;
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      fail(cat("unknown key '", key, "'", cli::did_you_mean(key, known_)));
    }
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const Json* find(const char* key) {
    known_.emplace_back(key);
    if (!json_.is_object()) return nullptr;
    auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }
  double number(const char* key, double otherwise, double least, double most) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) return fail(cat("'", key, "' must be a number")), otherwise;
    double number = value->get<double>();
    if (!(number >= least && number <= most)) {
      fail(cat("'", key, "' is ", number, ": must be from ", least, " to ", most));
      return otherwise;
    }
    return number;
  }
  int integer(const char* key, int otherwise, int least, int most) {
    double value = number(key, otherwise, least, most);
    if (value != std::floor(value)) fail(cat("'", key, "' must be a whole number"));
    return static_cast<int>(value);
  }
  std::int64_t bytes(const char* key, std::int64_t otherwise) {
    return static_cast<std::int64_t>(number(key, static_cast<double>(otherwise), 0, 1e15));
  }
  std::string text(const char* key, const std::string& otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) return fail(cat("'", key, "' must be text")), otherwise;
    return value->get<std::string>();
  }
  bool flag(const char* key, bool otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return fail(cat("'", key, "' must be true or false")), otherwise;
    return value->get<bool>();
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> all;
    each(key, false, [&](const Json& one, const std::string& place) {
      if (one.is_string()) {
        all.push_back(one.get<std::string>());
      } else {
        fail(cat(place, " must be text"));
      }
    });
    return all;
  }
  template <typename Visit>
  void each(const char* key, bool required, Visit visit) {
    const Json* list = find(key);
    if (list == nullptr) {
      if (required) fail(cat("'", key, "' is missing"));
      return;
    }
    if (!list->is_array()) return fail(cat("'", key, "' must be a list"));
    for (std::size_t i = 0; i < list->size() && error_.empty(); ++i) {
      visit((*list)[i], cat(place_, place_.empty() ? "" : ".", key, "[", i, "]"));
    }
  }
  std::string inside(const char* key) const { return cat(place_, place_.empty() ? "" : ".", key); }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = place_.empty() ? what : cat(place_, ": ", what);
  }

 private:
  const Json& json_;
  std::string place_;
  std::string& error_;
  std::vector<std::string> known_;
};

TimeModel read_time(const Json& json, const std::string& place, std::string& error) {
  TimeModel model;
  if (json.is_number()) {
    model.mean_s = json.get<double>();
    if (!(model.mean_s >= 0 && model.mean_s <= 1e9)) error = cat(place, ": must be from 0 to 1e9");
    return model;
  }
  Object object(json, place, error);
  std::string kind = object.text("kind", "fixed");
  model.mean_s = object.number("mean_s", 0, 0, 1e9);
  model.cv = object.number("cv", 0, 0, 10);
  model.from_s = object.number("from_s", 0, 0, 1e9);
  model.to_s = object.number("to_s", model.from_s, model.from_s, 1e9);
  model.samples = object.integer("samples", 1, 1, 1'000'000);
  model.cap_tokens = object.number("cap_tokens", 0, 0, 1e9);
  model.tokens_per_s = object.number("tokens_per_s", 1, 1e-3, 1e9);
  model.start_s = object.number("start_s", 0, 0, 1e9);
  model.drift_per_step = object.number("drift_per_step", 0, -1, 1);
  model.jitter_cv = object.number("jitter_cv", 0, 0, 10);
  object.each("mixture", false, [&](const Json& one, const std::string& inner) {
    Object part(one, inner, error);
    model.mixture.push_back({part.number("weight", 1, 0, 1e9),
                             part.number("mean_tokens", 0, 1, 1e9),
                             part.number("sd_tokens", 0, 0, 1e9)});
  });
  if (kind == "fixed") {
    model.kind = TimeModel::Kind::kFixed;
  } else if (kind == "uniform") {
    model.kind = TimeModel::Kind::kUniform;
  } else if (kind == "lognormal") {
    model.kind = TimeModel::Kind::kLognormal;
  } else if (kind == "longest") {
    model.kind = TimeModel::Kind::kLongest;
    if (model.mixture.empty()) object.fail("'longest' needs a 'mixture'");
  } else {
    object.fail(cat("unknown kind '", kind, "'",
                    cli::did_you_mean(kind, {"fixed", "uniform", "lognormal", "longest"})));
  }
  return model;
}

StageModel read_stage(const Json& json, const std::string& place, const JobModel& job,
                      std::string& error) {
  StageModel stage;
  Object object(json, place, error);
  stage.name = object.text("name", "");
  for (const std::string& name : object.texts("gangs")) {
    int index = -1;
    for (std::size_t g = 0; g < job.gangs.size(); ++g) {
      if (job.gangs[g].name == name) index = static_cast<int>(g);
    }
    if (index < 0) object.fail(cat("no gang '", name, "'"));
    stage.gangs.push_back(index);
  }
  if (const Json* time = object.find("time")) {
    stage.time = read_time(*time, object.inside("time"), error);
  } else {
    object.fail("'time' is missing");
  }
  stage.bursts = object.integer("bursts", 1, 1, 60);
  if (const Json* gap = object.find("gap"))
    stage.gap = read_time(*gap, object.inside("gap"), error);
  return stage;
}

void read_job(const Json& json, const std::string& place, std::string& error, Workload& workload) {
  JobModel job;
  Object object(json, place, error);
  job.name = object.text("name", cat("job", workload.jobs.size() + 1));
  job.team = object.text("team", "");
  job.arrival_s = object.number("arrival_s", 0, 0, 1e10);
  job.steps = object.integer("steps", 1, 1, 10'000'000);
  job.lag = object.integer("lag", 0, 0, 16);
  job.max_slowdown = object.number("max_slowdown", 1.5, 1, 1e6);
  job.apart_from = object.texts("apart_from");
  int count = object.integer("count", 1, 1, 100'000);
  double every_s = object.number("every_s", 0, 0, 1e9);
  object.each("gangs", true, [&](const Json& one, const std::string& inner) {
    Object gang(one, inner, error);
    GangModel model;
    model.name = gang.text("name", cat("gang", job.gangs.size()));
    model.pool = gang.text("pool", "gpu");
    model.gpus = gang.integer("gpus", 1, 1, 65536);
    model.hbm_bytes = gang.bytes("hbm_bytes", 0);
    model.fixed_bytes = gang.bytes("fixed_bytes", 0);
    model.shareable = gang.flag("shareable", true);
    job.gangs.push_back(model);
  });
  object.each("stages", true, [&](const Json& one, const std::string& inner) {
    job.stages.push_back(read_stage(one, inner, job, error));
  });
  if (!error.empty()) return;
  if (std::string problem = problem_of(job); !problem.empty()) {
    object.fail(problem);
    return;
  }
  if (workload.jobs.size() + static_cast<std::size_t>(count) > kMostJobs) {
    object.fail(cat("more than ", kMostJobs, " jobs"));
    return;
  }
  for (int i = 0; i < count; ++i) {
    workload.jobs.push_back(job);
    if (count > 1) workload.jobs.back().name = cat(job.name, "-", i + 1);
    workload.jobs.back().arrival_s = job.arrival_s + every_s * i;
  }
}

void read_policy(Object& root, std::string& error, nodemgr::policy::Config& policy) {
  const Json* json = root.find("policy");
  if (json == nullptr) return;
  Object object(*json, "policy", error);
  auto time = [&](const char* key, Duration& value) {
    value = from_seconds(object.number(key, seconds(value), 0, 1e9));
  };
  time("grace_s", policy.grace);
  time("min_quantum_s", policy.min_quantum);
  time("max_wait_s", policy.max_wait);
  time("drain_budget_s", policy.drain_budget);
  policy.quantum_factor = object.number("quantum_factor", policy.quantum_factor, 0, 1e12);
  policy.prefetch_share = object.number("prefetch_share", policy.prefetch_share, 0, 1);
  policy.switch_share = object.number("switch_share", policy.switch_share, 0.01, 1);
}

void read_moves(Object& root, std::string& error, placement::MoveModel& moves) {
  const Json* json = root.find("moves");
  if (json == nullptr) return;
  Object object(*json, "moves", error);
  moves.out_bytes_per_s = object.number("out_bytes_per_s", moves.out_bytes_per_s, 1, 1e15);
  moves.in_bytes_per_s = object.number("in_bytes_per_s", moves.in_bytes_per_s, 1, 1e15);
  moves.out_fixed = from_seconds(object.number("out_fixed_s", 0, 0, 1e6));
  moves.in_fixed = from_seconds(object.number("in_fixed_s", 0, 0, 1e6));
  moves.drain = from_seconds(object.number("drain_s", seconds(moves.drain), 0, 1e6));
  moves.at_once = object.flag("at_once", moves.at_once);
}

void read_nodes(Object& root, std::string& error, Setup& setup) {
  std::uint32_t next = 1;
  root.each("nodes", true, [&](const Json& one, const std::string& place) {
    Object object(one, place, error);
    placement::NodeInfo node;
    node.pool = object.text("pool", "gpu");
    node.gpus = object.integer("gpus", 8, 1, 64);
    node.hbm_bytes = object.bytes("hbm_bytes", setup.usable_hbm_bytes);
    node.tier_bytes = object.bytes("tier_bytes", 0);
    node.owner = object.text("owner", "");
    node.owner_max_slowdown = object.number("owner_max_slowdown", 1e9, 1, 1e9);
    std::string name = object.text("name", node.pool);
    int count = object.integer("count", 1, 1, 100'000);
    for (int i = 0; i < count; ++i) {
      node.id = placement::NodeId{next++};
      node.name = cat(name, "-", i + 1);
      setup.nodes.push_back(node);
    }
  });
}

void read_placement(Object& root, std::string& error, Workload& workload) {
  const Json* json = root.find("placement");
  if (json == nullptr) return;
  Object object(*json, "placement", error);
  placement::PlacerConfig& placer = workload.placer;
  workload.schedulers = object.texts("schedulers");
  placer.gpu_price = object.number("gpu_price", placer.gpu_price, 0, 1e9);
  placer.slowdown_price = object.number("slowdown_price", placer.slowdown_price, 0, 1e9);
  placer.max_sharers = object.integer("max_sharers", placer.max_sharers, 1, 64);
  placer.max_group = object.integer("max_group", placer.max_group, 1, 64);
  placer.replays = object.integer("replays", placer.replays, 0, 10'000);
  workload.setup.backfill = object.flag("backfill", true);
  if (const Json* quotas = object.find("team_gpus")) {
    if (!quotas->is_object()) return object.fail("'team_gpus' must be an object");
    for (const auto& [team, gpus] : quotas->items()) {
      if (!gpus.is_number_integer()) return object.fail("'team_gpus' must hold whole numbers");
      placer.team_gpus[team] = gpus.get<int>();
    }
  }
  std::vector<std::string> known = baseline_names();
  known.emplace_back("plexrl");
  for (const std::string& name : workload.schedulers) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    object.fail(cat("no scheduler '", name, "'", cli::did_you_mean(name, known)));
  }
}

void read_root(const Json& json, std::string& error, Workload& workload) {
  Object root(json, "", error);
  int schema = root.integer("schema", 0, 0, 1'000'000);
  if (error.empty() && schema != 1) root.fail("'schema' must be 1");
  workload.name = root.text("name", "");
  Setup& setup = workload.setup;
  setup.seed = static_cast<std::uint64_t>(root.number("seed", 1, 0, 1e15));
  setup.usable_hbm_bytes = root.bytes("usable_hbm_bytes", setup.usable_hbm_bytes);
  setup.history_steps = root.integer("history_steps", setup.history_steps, 0, 1000);
  read_policy(root, error, setup.policy);
  read_moves(root, error, setup.moves);
  read_nodes(root, error, setup);
  read_placement(root, error, workload);
  root.each("jobs", true, [&](const Json& one, const std::string& place) {
    read_job(one, place, error, workload);
  });
  if (error.empty() && workload.jobs.empty()) root.fail("'jobs' is empty");
  if (workload.schedulers.empty()) workload.schedulers = {"plexrl"};
  workload.placer.predictor.policy = setup.policy;
  workload.placer.predictor.moves = setup.moves;
  workload.placer.predictor.usable_hbm_bytes = setup.usable_hbm_bytes;
}

}  // namespace

absl::StatusOr<Workload> parse_workload(const std::string& text) {
  // nlohmann's parser recurses no deeper than the text nests; bound that first.
  int depth = 0;
  for (char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 64) return nodemgr::invalid("nested too deeply");
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return nodemgr::invalid("not JSON: ", error.what());
  }
  Workload workload;
  std::string error;
  read_root(json, error, workload);
  if (!error.empty()) return nodemgr::invalid(error);
  return workload;
}

absl::StatusOr<Workload> read_workload(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return nodemgr::failed("can't read '", path, "'");
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() > kMostFileBytes) return nodemgr::invalid("'", path, "' is larger than 64 MiB");
  auto workload = parse_workload(text);
  if (!workload.ok()) {
    return nodemgr::invalid("'", path, "': ", nodemgr::message_of(workload.status()));
  }
  return workload;
}

}  // namespace plexrl::sim
