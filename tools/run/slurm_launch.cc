#include "tools/run/slurm_launch.h"

#include <unistd.h>

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/run/exit_status.h"

namespace plexrl::run {
namespace {

/// How long --no-wait leaves Slurm to find that the node is free: it looks every now and then only.
constexpr char kImmediately[] = "--immediate=5";
/// Of slurm.conf: where packages and builds of Slurm put it, and where slurmd keeps one that it got
/// from the controller.
constexpr const char* kConfigurations[] = {"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf",
                                           "/etc/slurm-llnl/slurm.conf",
                                           "/usr/local/etc/slurm.conf"};
constexpr const char* kExitVariables[] = {"SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE"};

bool is_readable(const std::string& file) { return access(file.c_str(), R_OK) == 0; }

bool is_configured(const EnvBlock& env, const std::string& root) {
  if (const char* const named = env.get("SLURM_CONF")) return is_readable(named);
  for (const char* file : kConfigurations) {
    if (is_readable(root + file)) return true;
  }
  return false;
}

bool has_srun(const EnvBlock& env, const std::string& root) {
  const char* const path = env.get("PATH");
  const std::vector<std::string> folders = absl::StrSplit(path ? path : "", ':', absl::SkipEmpty());
  for (const std::string& folder : folders) {
    if (access(absl::StrCat(root, folder, "/srun").c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::string number(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

/// What srun and sbatch are told alike.
void add_request(const Options& options, const std::string& node, const std::string& placement,
                 std::vector<std::string>& words) {
  // The user's own come first, so that what has to be as chosen wins.
  const std::vector<std::string> more =
      absl::StrSplit(options.slurm_options, ' ', absl::SkipWhitespace());
  words.insert(words.end(), more.begin(), more.end());
  words.push_back(absl::StrCat("--nodelist=", node));
  words.emplace_back("--nodes=1");
  words.emplace_back("--ntasks=1");
  words.push_back(absl::StrCat("--gres=plexrl:", options.gpus));
  words.push_back(absl::StrCat("--job-name=", options.name));
  words.push_back(absl::StrCat("--comment=", slurm_comment(placement)));
}

}  // namespace

SlurmUse slurm_use(const Options& options, const EnvBlock& env, const std::string& root) {
  if (options.cluster.empty() || !options.placement.empty()) return SlurmUse::kNo;
  if (options.slurm == "srun") return SlurmUse::kSrun;
  if (options.slurm == "sbatch") return SlurmUse::kSbatch;
  if (options.slurm == "no" || env.get("SLURM_JOB_ID") != nullptr) return SlurmUse::kNo;
  return has_srun(env, root) && is_configured(env, root) ? SlurmUse::kSrun : SlurmUse::kNo;
}

std::string slurm_comment(const std::string& placement) {
  return absl::StrCat("plexrl:", placement);
}

std::vector<std::string> node_command(const Options& options, const EnvBlock& env,
                                      const std::string& runner, const std::string& placement) {
  std::vector<std::string> words = {
      runner,
      absl::StrCat("--cluster=", options.cluster),
      absl::StrCat("--placement=", placement),
      absl::StrCat("--name=", options.name),
      absl::StrCat("--gpus=", options.gpus),
      absl::StrCat("--priority=", options.priority),
      absl::StrCat("--evict=", options.may_be_checkpointed ? "checkpoint" : "page"),
      absl::StrCat("--export=", options.exports_are_real ? "real" : "job")};
  if (!options.team.empty()) words.push_back(absl::StrCat("--team=", options.team));
  if (options.memory_bytes != 0) {
    words.push_back(absl::StrCat("--memory=", options.memory_bytes));
  }
  if (options.max_wait_ns != 0) {
    words.push_back(absl::StrCat("--max-wait=", options.max_wait_ns, "ns"));
  }
  if (options.max_slowdown != 0) {
    words.push_back(absl::StrCat("--max-slowdown=", number(options.max_slowdown)));
  }
  if (options.no_wait) words.emplace_back("--no-wait");
  if (options.require) words.emplace_back("--require");
  for (const std::string& name : options.apart_from) {
    words.push_back(absl::StrCat("--apart-from=", name));
  }
  // What the environment says goes there with the environment, and a node may say otherwise.
  const char* const by_environment = env.get("PLEXRL_SIMGPU");
  if (options.simgpu && (by_environment == nullptr || *options.simgpu != by_environment)) {
    words.push_back(options.simgpu->empty() ? "--simgpu"
                                            : absl::StrCat("--simgpu=", *options.simgpu));
  }
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

std::vector<std::string> srun_command(const Options& options, const std::string& node,
                                      const std::string& placement,
                                      const std::vector<std::string>& node_command) {
  std::vector<std::string> words = {"srun", "--quiet", "--disable-status"};
  if (options.no_wait) words.emplace_back(kImmediately);
  add_request(options, node, placement, words);
  words.emplace_back("--");
  words.insert(words.end(), node_command.begin(), node_command.end());
  return words;
}

std::vector<std::string> sbatch_command(const Options& options, const std::string& node,
                                        const std::string& placement,
                                        const std::vector<std::string>& node_command) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  add_request(options, node, placement, words);
  words.push_back(absl::StrCat("--wrap=exec ", quoted(node_command)));
  return words;
}

std::string quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    absl::StrAppend(&line, line.empty() ? "" : " ", "'",
                    absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
  }
  return line;
}

void prepare_for_srun(EnvBlock& env) {
  for (const char* name : kExitVariables) {
    if (env.get(name) == nullptr) env.set(name, std::to_string(kPlexrlFailed));
  }
}

void leave_srun(EnvBlock& env) {
  for (const char* name : kExitVariables) {
    const char* const value = env.get(name);
    if (value && value == std::to_string(kPlexrlFailed)) env.unset(name);
  }
}

}  // namespace plexrl::run
