#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {

std::string show_done(const Json&) { return "done\n"; }

std::string show_changed(const Json& answer) {
  const Json& jobs = array_of(answer, "jobs");
  return heading(answer) + (jobs.empty() ? "done\n" : jobs_table(jobs));
}

}  // namespace plexrl::ctl
