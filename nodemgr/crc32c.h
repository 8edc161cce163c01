#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plexrl::nodemgr {

/// CRC-32C (Castagnoli, as in RFC 3720): the checksum of journal records and trace frames.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace plexrl::nodemgr
