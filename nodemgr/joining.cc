#include "nodemgr/joining.h"

#include "nodemgr/ids.h"
#include "nodemgr/sessions.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

std::optional<Refusal> refusal_to_join(const Job* job, const wire::Id128& secret,
                                       const Client& client) {
  if (job == nullptr || !job->admitted) {
    return Refusal{wire::kErrorUnknownJob, "no such job here: start it with plexrl-run"};
  }
  if (!equal_secrets(job->secret, secret)) {
    return Refusal{wire::kErrorSecret, "the job's secret is wrong"};
  }
  if (job->uid != client.uid) {
    return Refusal{wire::kErrorUid,
                   cat("the job belongs to uid ", job->uid, ", this process to ", client.uid)};
  }
  std::uint64_t user_namespace = user_namespace_of(client.pid);
  if (job->user_namespace != 0 && user_namespace != 0 && user_namespace != job->user_namespace) {
    // There the same uid may be somebody else.
    return Refusal{wire::kErrorUid,
                   "this process is in another user namespace than its plexrl-run: "
                   "start plexrl-run inside of the container"};
  }
  return std::nullopt;
}

void answer_join(const Node& node, Client& client, const Packet& packet) {
  wire::JobJoin body{};
  if (!packet.read(body)) {
    return refuse_packet(client, packet, wire::kErrorMalformed, "kJobJoin has a wrong size");
  }
  const Job* job = node.find_job(body.job);
  if (const auto refusal = refusal_to_join(job, body.secret, client)) {
    return client.send_error(wire::Type::kError, packet.request, refusal->code, refusal->why);
  }
  client.send(wire::Type::kJobAdmitted, packet.request, admission_to(*job, node));
}

wire::JobAdmitted admission_to(const Job& job, const Node& node) {
  wire::JobAdmitted body{};
  body.job = job.id;
  body.secret = job.secret;
  body.promised_bytes = job.promised_bytes;
  body.generation = node.generation;
  body.simulated = node.simulated ? 1 : 0;
  return body;
}

}  // namespace plexrl::nodemgr
