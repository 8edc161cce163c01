#pragma once

/// Named places at which a test build of the preload kills its own process.
///
/// Only a library compiled with PLEXRL_FAULT_POINTS has them: PLEXRL_FAULT=POINT[:N] raises SIGKILL
/// at the N-th passage (default 1) of that point. Everywhere else the macro is nothing. The points
/// are the places where the manager's books and the process's memory are about to differ, or just
/// did.
#ifdef PLEXRL_FAULT_POINTS
namespace plexrl::shim {
void fault_point(const char* name) noexcept;
}
#define PLEXRL_FAULT_POINT(name) ::plexrl::shim::fault_point(name)
#else
#define PLEXRL_FAULT_POINT(name) static_cast<void>(0)
#endif
