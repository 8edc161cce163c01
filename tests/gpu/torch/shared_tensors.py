"""Tensors shared by torch.multiprocessing: a spawned child changes a tensor of its parent in place, and hands one of its own back, each
round another, while the first stays shared."""
import torch
import torch.multiprocessing

from job import Job, digest

WORDS = 1 << 20


def child(device, seed, requests, answers):
    """Until it is asked for None. What it gives away it keeps until the next request: the receiver has copied it by then."""
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator(device=device).manual_seed(seed)
    while True:
        request = requests.get()
        if request is None:
            return
        shared, factor = request
        shared.mul_(factor).add_(1)
        own = torch.empty(WORDS, dtype=torch.int64, device=device).random_(generator=generator)
        own.add_(shared)
        if device.type == "cuda":
            torch.cuda.synchronize()
        del shared, request
        answers.put(own)


def main():
    job = Job(__doc__)
    context = torch.multiprocessing.get_context("spawn")
    requests, answers = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=child, args=(job.device, job.options.seed, requests, answers))
    other.start()
    shared = torch.empty(WORDS, dtype=torch.int64, device=job.device).random_(generator=job.generator(0))
    if not job.on_gpu:
        shared.share_memory_()
    for number in job.rounds():
        job.synchronize()
        requests.put((shared, 2 * number + 3))
        received = answers.get()
        own = received.clone()
        job.synchronize()
        del received
        print(f"round {number}: shared {digest(shared)}, of the child {digest(own)}")
        shared.add_(own)
    requests.put(None)
    other.join()
    print(f"child: {other.exitcode}")
    job.finish(shared=[shared])


if __name__ == "__main__":
    main()
