#pragma once

#include <string>

#include "tools/ctl/admin_client.h"

/// Values of the manager's answer as table cells. A key that is absent, null or of another type is
/// an empty cell: a newer or older manager must not break the table.
namespace plexrl::ctl {

std::string text_of(const Json& object, const char* key);
/// Of a job: what the gap that it is in is mostly due to: "network 10.0.0.3:8000"; "" if unknown.
std::string gap_of(const Json& job);
std::string count_of(const Json& object, const char* key);
std::string bytes_of(const Json& object, const char* key);    ///< "12.0 MiB"
std::string rate_of(const Json& object, const char* key);     ///< "1.2 GiB/s"
std::string seconds_of(const Json& object, const char* key);  ///< from seconds: "1.50 s"
std::string ratio_of(const Json& object, const char* key);    ///< "42.1 %"
std::string times_of(const Json& object, const char* key);    ///< "1.35x"
std::string list_of(const Json& object, const char* key);     ///< "0 1"

/// The jobs that a GPU's `holder` or `queue` names, by the beginnings of their ids: "1f3a9c02
/// 77b0d1e4".
std::string jobs_of(const Json& object, const char* key);

/// The array of that name, or an empty one.
const Json& array_of(const Json& object, const char* key);

/// "node a (simulated GPU)": the line above each table.
std::string heading(const Json& answer);

}  // namespace plexrl::ctl
