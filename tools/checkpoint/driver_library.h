#pragma once

#include <cuda.h>

#include <string>

namespace plexrl::checkpoint {

/// The driver's functions for checkpoints of processes, by the names of cuda.h.
struct DriverLibrary {
  CUresult (*init)(unsigned);
  CUresult (*error_name)(CUresult, const char**);
  CUresult (*state)(int, CUprocessState*);
  CUresult (*lock)(int, CUcheckpointLockArgs*);
  CUresult (*checkpoint)(int, CUcheckpointCheckpointArgs*);
  CUresult (*restore)(int, CUcheckpointRestoreArgs*);
  CUresult (*unlock)(int, CUcheckpointUnlockArgs*);
};

/// Loads libcuda.so.1, or with PLEXRL_SIMGPU set the simulated one beside this program, and starts
/// it. False, and why: there is none, it does not start, or it is older than CUDA 12.8.
bool open_driver(DriverLibrary* library, std::string* why);

}  // namespace plexrl::checkpoint
