#pragma once

#include <cstdint>

namespace plexrl::shim {

/// What the job was promised per GPU, from PLEXRL_MEMORY (bytes, or with a unit as in `8GiB`,
/// `500MB`), for answers before a GPU is attached; ~0 when nothing readable is set or the process
/// is in no job. Read once.
std::uint64_t promise_from_environment() noexcept;

/// What to ask the driver about in place of an address that is in no allocation: between ours lie
/// addresses that it knows and the job does not; for those, one that nobody knows.
std::uint64_t as_the_job_knows(std::uint64_t address);

// bool is_outside(address, bytes), the wrappers' hook (hooks.h), is defined here, too. Small
// allocations lie in blocks that the driver takes for one allocation: it would let a copy that
// reaches beyond one of them write into the next. What an allocation was rounded up to is its own.

}  // namespace plexrl::shim
