// plexrl-run: starts a command as a job that shares the node's GPUs, and stays as its parent.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "tools/cli/installation.h"
#include "tools/run/admission.h"
#include "tools/run/cluster_place.h"
#include "tools/run/exit_status.h"
#include "tools/run/group_witness.h"
#include "tools/run/heir.h"
#include "tools/run/job_env.h"
#include "tools/run/job_process.h"
#include "tools/run/join.h"
#include "tools/run/options.h"
#include "tools/run/slurm_launch.h"
#include "tools/run/slurm_step.h"
#include "tools/run/slurm_watch.h"
#include "tools/run/supervisor.h"
#include "tools/run/target.h"
#include "tools/simgpu/driver/spec.h"
#include "tools/slurm/slurm_queries.h"

namespace plexrl::run {
namespace {

void say(const std::string& line) {
  const std::string text = "plexrl-run: " + line + "\n";
  std::fputs(text.c_str(), stderr);  // one call, so that lines of threads and jobs don't mix
}

int fail(int status, const std::string& line) {
  say(line);
  return status;
}

// A socket or a log that lands on 0..2 because the caller had closed them would be written to as if
// it were stderr. The command still finds them closed.
void occupy_standard_files() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || fd > 2) {
      if (fd > 2) close(fd);
      return;
    }
  }
}

bool is_on(const EnvBlock& env, const char* name) {
  const char* value = env.get(name);
  return value && std::string(value) == "1";
}

/// What will be started, and as what.
struct Plan {
  EnvBlock env;
  std::vector<std::string> command;
  std::optional<Admission> admission;  ///< nothing: unshared, or part of the job around us
  std::optional<ClusterPlace> place;   ///< that srun, which is the command, holds
};

// The simulated GPU is asked for by name, so falling back to a real one would be wrong.
std::optional<std::string> use_simgpu(const std::string& spec,
                                      const cli::Installation& installation, EnvBlock& env) {
  const std::string driver = installation.simgpu_folder + "/libcuda.so.1";
  if (access(driver.c_str(), R_OK) != 0) {
    return "--simgpu: this installation has no simulated GPU (" + driver + " is missing)";
  }
  simgpu::Spec parsed;
  std::string problem;
  if (!simgpu::parse_spec(spec, &parsed, &problem)) return "--simgpu: " + problem;
  env.set("PLEXRL_SIMGPU", spec);
  search_first(env, installation.simgpu_folder);
  return std::nullopt;
}

// Why our library can't be loaded into the command; nothing when it can.
std::optional<std::string> why_not_preloaded(const cli::Installation& installation,
                                             const Target& target) {
  if (!target.obstacle.empty() && !target.children_can_be_caught) return target.obstacle;
  if (access(installation.library.c_str(), R_OK) != 0) {
    return installation.library + " is missing: this installation is not complete";
  }
  if (installation.library.find_first_of(" :") != std::string::npos) {
    return "LD_PRELOAD can't name " + installation.library +
           ": install PlexRL under a path without blanks and colons";
  }
  return std::nullopt;
}

// Gets the job a place, and what starts it there. Returns plexrl-run's status when nothing is to be
// started here, or nothing more.
std::optional<int> plan_slurm(const Options& options, SlurmUse use,
                              const cli::Installation& installation, Plan& plan) {
  const auto ask = [&](const std::vector<std::string>& words) {
    return slurm::output_of(words, plan.env.pointers());
  };
  leave_job(plan.env);
  if (const auto there = slurm::check_controller(ask); !there.ok()) {
    return fail(kPlexrlFailed, "--cluster: " + std::string(there.message()) +
                                   ": start it, or give --slurm no to run the job without Slurm "
                                   "where the cluster manager chooses this machine");
  }
  auto place = ClusterPlace::ask(options, installation, plan.env, say);
  if (!place.ok()) return fail(kPlexrlFailed, std::string(place.status().message()));
  const auto node = slurm::find_node(ask, place->node());
  if (!node.ok()) return fail(kPlexrlFailed, std::string(node.status().message()));
  if (node->plexrl_slots < options.gpus) {
    return fail(kPlexrlFailed,
                "the job was placed on node " + place->node() + ", which has " +
                    std::to_string(node->plexrl_slots) + " of the gres plexrl in Slurm and needs " +
                    std::to_string(options.gpus) +
                    ": give it Gres=plexrl:N in slurm.conf and "
                    "Name=plexrl Count=N Flags=CountOnly in gres.conf (docs/slurm.md)");
  }
  if (!node->takes_jobs()) {
    say("Slurm starts nothing on " + place->node() + " now: it is " + node->state +
        (node->reason.empty() ? "" : " (" + node->reason + ")") +
        "; the job can run when `scontrol " + "update nodename=" + place->node() +
        " state=resume` has been done, or elsewhere if you "
        "end it and start it again");
  }
  const auto inner = node_command(options, plan.env, installation.runner, place->id());
  if (use == SlurmUse::kSbatch) {
    const auto answer = ask(sbatch_command(options, place->node(), place->id(), inner));
    if (!answer.ok()) return fail(kPlexrlFailed, std::string(answer.status().message()));
    const std::string job = answer->text.substr(0, answer->text.find_first_of(";\n"));
    if (answer->status != 0 || job.find_first_not_of("0123456789") != std::string::npos) {
      return fail(kPlexrlFailed, "sbatch did not take the job: " + answer->text);
    }
    place->submitted(job);
    std::cout << "Submitted batch job " << job << " to " << place->node() << std::endl;
    return 0;
  }
  plan.command = srun_command(options, place->node(), place->id(), inner);
  prepare_for_srun(plan.env);
  place->share_with_children();
  plan.place.emplace(*std::move(place));
  return std::nullopt;
}

// Fills in the plan. Returns plexrl-run's status when nothing is to be started.
std::optional<int> make_plan(const Options& options, Plan& plan) {
  const cli::Installation installation = cli::this_installation();
  if (options.simgpu) {
    if (const auto problem = use_simgpu(*options.simgpu, installation, plan.env)) {
      return fail(kPlexrlFailed, *problem);
    }
  }
  auto run_unshared = [&](const std::string& why) -> std::optional<int> {
    if (options.require) return fail(kPlexrlFailed, "--require: " + why);
    // Others are placed by what the cluster manager knows of its GPUs.
    if (!options.cluster.empty()) {
      return fail(kPlexrlFailed, "--cluster: the job can't share: " + why);
    }
    if (!why.empty()) say("running unshared: " + why);
    leave_job(plan.env);
    return std::nullopt;
  };
  if (is_on(plan.env, "PLEXRL_DISABLE")) {
    const bool must_share = options.require || !options.cluster.empty();
    return run_unshared(must_share ? "PLEXRL_DISABLE=1 is set" : "");
  }

  if (const SlurmUse use = slurm_use(options, plan.env); use != SlurmUse::kNo) {
    return plan_slurm(options, use, installation, plan);
  }
  if (!options.placement.empty()) leave_srun(plan.env);

  const Target target = options.slurm_step
                            ? Target{.found = Target::Found::kYes}
                            : inspect_target(options.command[0], plan.env.get("PATH"));
  if (target.found == Target::Found::kNo) {
    return fail(kNotFound, options.command[0] + ": command not found");
  }
  if (target.found == Target::Found::kNotExecutable) {
    return fail(kCannotExecute, target.path + ": can't be executed");
  }
  if (const auto why = why_not_preloaded(installation, target)) return run_unshared(*why);
  if (!target.obstacle.empty()) {
    if (options.require) return fail(kPlexrlFailed, "--require: " + target.obstacle);
    say(target.obstacle + "; programs that it starts can");
  }

  if (options.join) {
    if (const auto may_join = check_join(plan.env); !may_join.ok()) {
      const std::string why = "--join: " + std::string(may_join.message());
      return absl::IsFailedPrecondition(may_join) ? fail(kPlexrlFailed, why) : run_unshared(why);
    }
  } else {
    std::optional<ClusterPlace> place;
    if (!options.cluster.empty()) {
      auto found = ClusterPlace::ask(options, installation, plan.env, say);
      if (!found.ok()) return fail(kPlexrlFailed, std::string(found.status().message()));
      if (!found->is_here()) {
        return fail(kPlexrlFailed, "the job was placed on node " + found->node() + " (" +
                                       found->gpus() + "), which is not this machine: start it " +
                                       "there, with the same command");
      }
      place.emplace(*std::move(found));
    }
    auto admission = get_admitted(options, installation, plan.env, say);
    if (absl::IsResourceExhausted(admission.status())) {
      return fail(kPlexrlFailed, "refused: " + std::string(admission.status().message()));
    }
    if (!admission.ok()) return run_unshared(std::string(admission.status().message()));
    describe_job(options, *admission, plan.env);
    if (place) {
      place->started(plan.env.get("PLEXRL_JOB_ID"));
      plan.env.set("CUDA_VISIBLE_DEVICES", place->gpus());
    }
    plan.admission.emplace(std::move(*admission));
  }
  preload(plan.env, installation.library);
  return std::nullopt;
}

Supervisor::Job supervised(Admission& admission) {
  return {.socket = admission.socket,
          .start = std::move(admission.start),
          .resume = {.job = admission.admitted.job,
                     .secret = admission.admitted.secret,
                     .submit = admission.submit}};
}

// What the witness does when plexrl-run has gone.
void inherit(Plan& plan, bool was_killed, const std::function<void()>& let_go) {
  if (!plan.admission) return;
  Admission& admission = *plan.admission;
  const std::string job = plan.env.get("PLEXRL_JOB_ID");
  if (admission.is_another_users) return stand_in_for_runner(job, supervised(admission), let_go);
  let_go();
  if (!admission.start) return;
  if (was_killed) {
    keep_manager_alive(*admission.start);
  } else {
    keep_manager_alive_for(job, *admission.start);
  }
}

// A step of a batch job whose script runs under PlexRL on this node is part of that job; on another
// node it is a job of its own.
bool joins_batch(EnvBlock& env, const cli::Installation& installation) {
  if (env.get("PLEXRL_JOB_ID") == nullptr) return false;
  if (check_join(env).ok()) {
    preload(env, installation.library);
    return true;
  }
  leave_job(env);
  for (const char* name : {"PLEXRL_MEMORY", "PLEXRL_EXPORT", "PLEXRL_EVICT", "PLEXRL_SOCKET"}) {
    env.unset(name);
  }
  return false;
}

int stand_by_step(const Options& options) {
  SlurmStep step;
  Plan plan{
      .env = EnvBlock(environ), .command = {}, .admission = std::nullopt, .place = std::nullopt};
  if (!joins_batch(plan.env, cli::this_installation())) {
    if (const auto status = make_plan(options, plan)) return *status;
  }
  const std::string answer = SlurmStep::answer(EnvBlock(environ), plan.env);
  if (!plan.admission) {
    step.let_run(answer);
    return 0;
  }
  const BlockedSignals signals;
  step.let_run(answer);
  Supervisor supervisor(std::move(plan.admission->link), supervised(*plan.admission), say);
  supervisor.run_in_background();
  SlurmStep::await_end([&] { supervisor.say_exiting(); });
  _exit(0);  // not through destructors: the supervisor's thread still uses its objects
}

int run(const Options& options) {
  if (options.slurm_step) return stand_by_step(options);
  Plan plan{.env = EnvBlock(environ),
            .command = options.command,
            .admission = std::nullopt,
            .place = std::nullopt};
  if (const auto status = make_plan(options, plan)) return *status;

  const BlockedSignals signals;
  GroupWitness witness([&plan](bool was_killed, const std::function<void()>& let_go) {
    inherit(plan, was_killed, let_go);
  });
  auto job = JobProcess::start(plan.command, plan.env, signals);
  if (!job.ok()) {
    const int status = absl::IsNotFound(job.status()) ? kNotFound : kCannotExecute;
    return fail(status, std::string(job.status().message()));
  }
  if (plan.place) {
    watch_slurm_job(slurm_comment(plan.place->id()), plan.place->node(), plan.env.pointers(), say);
    plan.place.reset();  // srun's now
  }
  std::optional<Supervisor> supervisor;
  if (plan.admission) {
    supervisor.emplace(std::move(plan.admission->link), supervised(*plan.admission), say);
    supervisor->run_in_background();
  }
  const int status = job->wait(witness, signals, [&](int signal) {
    if (signal == SIGTERM && supervisor) supervisor->say_exiting();
  });
  witness.dismiss();
  _exit(status);  // not through destructors: the supervisor's thread still uses its objects
}

}  // namespace
}  // namespace plexrl::run

int main(int argc, char** argv) {
  using namespace plexrl::run;
  occupy_standard_files();
  const auto parsed = parse_options(argc, argv, plexrl::cli::process_env());
  if (const Stop* stop = std::get_if<Stop>(&parsed)) {
    std::cout << stop->out << std::flush;
    return stop->error.empty() ? stop->status : fail(stop->status, stop->error);
  }
  return run(std::get<Options>(parsed));
}
