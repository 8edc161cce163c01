#pragma once

#include <string>

#include "tools/ctl/admin_client.h"

/// The manager's answers as text for a terminal, one function a verb. Each takes the whole answer.
namespace plexrl::ctl {

std::string show_status(const Json& answer);
std::string show_jobs(const Json& answer);
std::string show_gpus(const Json& answer);
std::string show_memory(const Json& answer);
std::string show_limits(const Json& answer);
std::string show_explain(const Json& answer);
std::string show_usage(const Json& answer);
/// For verbs that only change something: "done", or the job as it is now.
std::string show_done(const Json& answer);
std::string show_changed(const Json& answer);

/// The tables alone, which `status` shows too.
std::string jobs_table(const Json& jobs);
std::string gpus_table(const Json& gpus);
std::string teams_table(const Json& teams);

/// `usage` as CSV: the JSON's keys, then a line for each row.
std::string usage_csv(const Json& answer);

}  // namespace plexrl::ctl
