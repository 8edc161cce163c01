"""DataLoader with forked workers, started after the first use of the GPU, which hand batches over in pinned memory."""
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from job import Job, print_loss, small_model, train_step

ITEMS, BATCH, WIDTH, WORKERS = 192, 32, 256, 3


class Items(Dataset):
    def __init__(self, seed):
        self.seed = seed

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        inputs = torch.randn(WIDTH, generator=torch.Generator().manual_seed(self.seed * ITEMS + index))
        return inputs, inputs[:1].cos(), get_worker_info().id


def main():
    job = Job(__doc__)
    model = small_model(job, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    order = torch.Generator().manual_seed(job.options.seed)
    loader = DataLoader(Items(job.options.seed), BATCH, shuffle=True, generator=order, num_workers=WORKERS, persistent_workers=True,
                        pin_memory=job.on_gpu, multiprocessing_context="fork")
    workers = set()
    for number in job.rounds():
        for inputs, targets, worker in loader:
            workers.update(worker.tolist())
            loss = train_step(model, optimizer, inputs.to(job.device, non_blocking=True), targets.to(job.device, non_blocking=True))
        print_loss(number, loss)
    print(f"workers: {sorted(workers)}")
    job.finish(weights=model.parameters())


if __name__ == "__main__":
    main()
