#pragma once

/// Marks the few functions that run at every launch. They hold no lock, make no shared
/// read-modify-write and no system call, allocate nothing and log nothing; the rare case is a
/// separate PLEXRL_COLD function. `tests/bench` measures them.
#define PLEXRL_HOT __attribute__((always_inline)) inline
#define PLEXRL_COLD __attribute__((noinline, cold))
