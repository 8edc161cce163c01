#pragma once

#include <cstddef>

namespace plexrl::interpose {

/// A stand-in for a driver function that the tables don't know (a newer driver's, or another
/// preload's wrapper that reaches the driver unseen).
///
/// A newer libcudart asks for every function it knows when it starts, so being asked for means
/// nothing yet; being called does. The stand-in tells plexrl::shim::on_unknown_entry before the
/// first call goes on, then jumps to the function with all arguments as they came, whatever its
/// signature (unknown_entry_x86_64.S). Later calls cost a load, a predicted branch and a jump.
///
/// The same function gets the same stand-in (two, if two threads ask first at once). `name` is
/// copied, cut at kNameBytes. Null when all kStandIns are taken: the caller then says that the
/// driver lacks the function.
///
/// Threads: any. Takes no lock, allocates nothing.
void* stand_in(void* function, const char* name, int version) noexcept;

inline constexpr size_t kStandIns = 256;
inline constexpr size_t kNameBytes = 104;

}  // namespace plexrl::interpose
