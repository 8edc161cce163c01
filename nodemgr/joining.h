#pragma once

#include <optional>
#include <string>

#include "nodemgr/client.h"
#include "nodemgr/node.h"

/// Who may be part of a job: who knows its secret, and is of its user in its user namespace.
namespace plexrl::nodemgr {

struct Refusal {
  wire::ErrorCode code;
  std::string why;  ///< for the user
};

/// Why this client may not join `job` (null: there is no such job); nothing when it may.
std::optional<Refusal> refusal_to_join(const Job* job, const wire::Id128& secret,
                                       const Client& client);

/// kJobJoin of a plexrl-run: kJobAdmitted, or kError with the reason. Changes nothing.
void answer_join(const Node& node, Client& client, const Packet& packet);

/// What a plexrl-run is told of a job that it belongs to.
wire::JobAdmitted admission_to(const Job& job, const Node& node);

}  // namespace plexrl::nodemgr
