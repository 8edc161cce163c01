#pragma once

/// What a call through the preload costs, beside the bare call of a driver that returns at once
/// (stub_driver.cc).
///
/// The program runs itself again with the preload and the stub, as a process of a job whose manager
/// is a fake in the parent; that manager grants the first lease asked for, and everything that is
/// charged.
namespace plexrl::bench {

/// The whole of a program's `main`: its result is the status. `measure` runs in the child.
int run_against_stub(int argc, char** argv, int (*measure)());

/// For `measure`: the function as programs find it, so the preload's; and as the stub has it under
/// a name that no preload knows ("bare_" and the rest). Ends the process where either is missing.
void find_both(const char* name, void** caught, void** bare);

}  // namespace plexrl::bench
