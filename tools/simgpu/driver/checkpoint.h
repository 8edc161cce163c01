#pragma once

/// Checkpoints of a process's device memory (cuCheckpointProcess*): another process, or a thread of
/// this one, gives orders through the machine, and a thread of the driver carries them out.
///
///             lock                 checkpoint
///   RUNNING ----------> LOCKED ------------------> CHECKPOINTED
///           <----------        <------------------
///             unlock               restore
///
/// - lock: calls of the process stop, those inside and all work that was submitted end first; not
///   within the time given: RUNNING again, and CUDA_ERROR_NOT_READY.
/// - checkpoint: all device memory of the process, contexts included, is copied to its host memory
///   and given back. What the driver documents as not supported (managed memory, memory shared with
///   other processes) makes the process FAILED for good, as NVIDIA's does ("does not attempt to
///   keep the process in a good state", README of cuda-checkpoint): its contexts answer errors.
/// - restore: back, at the same addresses. Without room CUDA_ERROR_OUT_OF_MEMORY, still
/// CHECKPOINTED.
///
/// A process that exits meanwhile ends what is under way first, without the modelled time that is
/// left; its memory is its own until then.
namespace plexrl::simgpu {

/// The thread of this process that carries orders out. Once, at the end of cuInit.
void start_checkpoint_thread();

}  // namespace plexrl::simgpu
