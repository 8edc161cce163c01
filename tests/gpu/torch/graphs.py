"""CUDA graphs: whole training steps captured once and replayed, two graphs that share a pool of memory, each fed through the same input
tensors. Without a GPU the steps are run as they stand."""
import torch

from job import Job, print_loss, small_model, train_step

BATCH, WIDTH = 64, 256


class Step:
    """A training step of a model of its own; `run` does it on what is in `inputs` and `targets`."""

    def __init__(self, job, inputs, targets):
        self.inputs, self.targets = inputs, targets
        self.model = small_model(job, WIDTH)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, capturable=job.on_gpu)
        self.loss = None
        self.run = self.do

    def do(self):
        self.loss = train_step(self.model, self.optimizer, self.inputs, self.targets)

    def capture(self, pool=None):
        """Three steps before, on a stream of their own, as PyTorch asks for. Returns the graph's pool."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.do()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self.do()
        self.run = graph.replay
        return graph.pool()


def main():
    job = Job(__doc__)
    generator = job.generator(0)
    inputs = torch.randn(BATCH, WIDTH, generator=generator, device=job.device)
    targets = torch.randn(BATCH, 1, generator=generator, device=job.device)
    first, second = Step(job, inputs, targets), Step(job, inputs, targets)
    if job.on_gpu:
        second.capture(pool=first.capture())
    for number in job.rounds():
        inputs.copy_(torch.randn(BATCH, WIDTH, generator=generator, device=job.device))
        for step in (first, second):
            step.run()
            print_loss(number, step.loss)
    job.finish(first=first.model.parameters(), second=second.model.parameters())


if __name__ == "__main__":
    main()
