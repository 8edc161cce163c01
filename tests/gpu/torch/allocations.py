"""PyTorch's allocator under way: tensors of a byte to tens of MiB that come and go on two streams, its cache emptied now and then, a
request that no GPU can meet, pinned copies. Which allocator it is PYTORCH_CUDA_ALLOC_CONF says; the first line tells what it was."""
import contextlib
import os
import random

import torch

from job import Job, digest, skip

LARGEST = 24 << 20
KEPT = 24


def which_allocator(job):
    if not job.on_gpu:
        return "none"
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        return backend
    segments = torch.cuda.memory_snapshot()
    return backend + (", expandable segments" if any(segment.get("is_expandable") for segment in segments) else "")


def asked_for():
    return os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def is_as_asked(allocator):
    if "backend:cudaMallocAsync" in asked_for():
        return allocator == "cudaMallocAsync"
    return ("expandable segments" in allocator) == ("expandable_segments:True" in asked_for())


class Streams:
    """The current stream and another, where there are streams."""

    def __init__(self, job):
        self.side = torch.cuda.Stream() if job.on_gpu else None

    def beside(self):
        """Work inside is done by the other stream, after what was asked of this one."""
        if self.side is None:
            return contextlib.nullcontext()
        self.side.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self.side)

    def join(self, tensor):
        """This stream goes on after the other one, which has used `tensor`."""
        if self.side is not None:
            tensor.record_stream(self.side)
            torch.cuda.current_stream().wait_stream(self.side)


def ask_for_too_much(job):
    if not job.on_gpu:
        return
    total = torch.cuda.get_device_properties(job.device).total_memory
    try:
        torch.empty(2 * total, dtype=torch.uint8, device=job.device)
        print("twice the GPU: there")
    except torch.cuda.OutOfMemoryError:
        print("twice the GPU: out of memory")


def main():
    job = Job(__doc__)
    allocator = which_allocator(job)
    print(f"allocator: {allocator}")
    if job.on_gpu and not is_as_asked(allocator):
        skip(f"PyTorch {torch.__version__} has the allocator '{allocator}' for '{asked_for()}'")
    streams, dice = Streams(job), random.Random(job.options.seed)
    kept = []
    for number in job.rounds():
        for _ in range(12):
            size = dice.choice((1, 100, 513, 4096, 1 << 20, 5 << 20, dice.randrange(1, LARGEST)))
            tensor = torch.full((size,), dice.randrange(250), dtype=torch.uint8, device=job.device)
            with streams.beside():
                tensor.add_(number)
                temporary = tensor * 3
                tensor.copy_(temporary)
            streams.join(tensor)
            kept.append(tensor)
        dice.shuffle(kept)
        del kept[KEPT:]
        host = torch.empty(kept[0].shape, dtype=torch.uint8, pin_memory=job.on_gpu)
        host.copy_(kept[0], non_blocking=True)
        job.synchronize()
        print(f"round {number}: {len(kept)} tensors, {digest(host)}")
        if number % 4 == 3 and job.on_gpu:
            torch.cuda.empty_cache()
        if number == 1:
            ask_for_too_much(job)
    job.finish(tensors=kept)


if __name__ == "__main__":
    main()
