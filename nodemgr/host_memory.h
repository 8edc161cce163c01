#pragma once

#include <cstdint>
#include <string>

namespace plexrl::nodemgr {

/// Host memory that slabs may take when the user sets no budget: 80 % of what is available, or of
/// what the cgroup (v2 or v1) of this process still allows, whichever is less. Bytes.
/// `root` is "" or a test's folder that holds proc/ and sys/.
std::uint64_t default_host_budget(const std::string& root = "");

}  // namespace plexrl::nodemgr
