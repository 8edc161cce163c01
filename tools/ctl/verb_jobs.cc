#include "absl/strings/str_cat.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

using cli::Table;

// What holds the job up, or binds its GPUs, if anything does.
std::string remarks_of(const Json& job) {
  std::string text;
  auto add = [&](const char* what, const std::string& why) {
    if (!why.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", what, why);
  };
  add("", text_of(job, "queued_reason"));
  for (const Json& gang : array_of(job, "gangs")) {
    add("waits: ", text_of(gang, "waits_for"));
    if (const auto pids = list_of(gang, "stopped_pids"); !pids.empty()) {
      add("stopped: pid ", pids);
    }
    add("exclusive: ", text_of(gang, "exclusive_reason"));
  }
  add("idle: ", gap_of(job));
  return text;
}

std::string gpus_of(const Json& job) {
  std::string text;
  for (const Json& gang : array_of(job, "gangs")) {
    const std::string gpus = list_of(gang, "gpus");
    if (!gpus.empty()) text += (text.empty() ? "" : " | ") + gpus;
  }
  return text;
}

}  // namespace

std::string jobs_table(const Json& jobs) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"ID"},
               {"NAME"},
               {"USER"},
               {"TEAM"},
               {"PRIO", kRight},
               {"STATE"},
               {"GPUS"},
               {"PROMISED", kRight},
               {"HBM", kRight},
               {"HOST", kRight},
               {"DISK", kRight},
               {"SHARE", kRight},
               {"WAIT", kRight},
               {"SLOWDOWN", kRight},
               {"REMARKS"}});
  for (const Json& job : jobs) {
    table.add_row({text_of(job, "id").substr(0, 8), text_of(job, "name"), text_of(job, "user"),
                   text_of(job, "team"), count_of(job, "priority"), text_of(job, "state"),
                   gpus_of(job), bytes_of(job, "promised_bytes"), bytes_of(job, "hbm_bytes"),
                   bytes_of(job, "host_bytes"), bytes_of(job, "disk_bytes"),
                   ratio_of(job, "share_ratio"), seconds_of(job, "wait_s"),
                   times_of(job, "slowdown_ratio"), remarks_of(job)});
  }
  return table.str();
}

std::string show_jobs(const Json& answer) {
  const Json& jobs = array_of(answer, "jobs");
  return heading(answer) + (jobs.empty() ? "no jobs\n" : jobs_table(jobs));
}

}  // namespace plexrl::ctl
