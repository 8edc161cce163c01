"""torch.compile: forward and backward of a model as kernels that it makes (on a GPU by Triton), for batches of several sizes."""
import shutil
import sys

import torch

from job import Job, print_loss, skip, small_model, train_step

WIDTH = 256
BATCHES = (64, 64, 96)


def main():
    job = Job(__doc__)
    if not hasattr(torch, "compile"):
        skip(f"PyTorch {torch.__version__} has no torch.compile")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        skip("torch.compile needs a C compiler, and there is none")
    generator = job.generator(0)
    model = small_model(job, WIDTH)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number in job.rounds():
        batch = BATCHES[number % len(BATCHES)]
        inputs = torch.randn(batch, WIDTH, generator=generator, device=job.device)
        targets = inputs[:, :1].sin()
        print_loss(number, train_step(compiled, optimizer, inputs, targets))
    counters = torch._dynamo.utils.counters["stats"]
    if not counters["unique_graphs"]:
        sys.exit("nothing was compiled")
    job.finish(weights=model.parameters())


if __name__ == "__main__":
    main()
