#include "tools/run/join.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "nodemgr/ids.h"
#include "tools/run/manager_link.h"

namespace plexrl::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{15};
constexpr std::chrono::milliseconds kPause{200};

absl::Status ask(const std::string& socket, const wire::JobJoin& join) {
  auto link = ManagerLink::connect(socket);
  if (!link.ok()) return link.status();
  if (const auto sent = link->join(join); !sent.ok()) return sent;
  const auto answer = link->receive();
  if (!answer.ok()) return answer.status();
  if (answer->kind == ManagerLink::Answer::Kind::kAdmitted) return absl::OkStatus();
  return absl::PermissionDeniedError(answer->text);
}

}  // namespace

absl::Status check_join(const EnvBlock& env) {
  for (const char* name : {"PLEXRL_JOB_ID", "PLEXRL_JOB_SECRET", "PLEXRL_SOCKET"}) {
    if (env.get(name)) continue;
    return absl::FailedPreconditionError(absl::StrCat("not inside a job (", name, " is not set)"));
  }
  const auto job = nodemgr::parse_id(env.get("PLEXRL_JOB_ID"));
  const auto secret = nodemgr::parse_id(env.get("PLEXRL_JOB_SECRET"));
  if (!job || !secret) {
    return absl::InvalidArgumentError(
        absl::StrCat(job ? "PLEXRL_JOB_SECRET" : "PLEXRL_JOB_ID", " is not 32 hex digits"));
  }
  const auto give_up = Clock::now() + kPatience;
  for (;;) {
    const absl::Status status = ask(env.get("PLEXRL_SOCKET"), {*job, *secret});
    const bool may_come = absl::IsNotFound(status) || absl::IsUnavailable(status);
    if (!may_come || Clock::now() > give_up) return status;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace plexrl::run
