"""torch.profiler around training steps (on a GPU through CUPTI): how often each operation ran, and whether its kernels were seen."""
import torch
from torch.profiler import ProfilerActivity, profile

from job import Job, print_loss, skip, small_model, train_step

BATCH, WIDTH = 64, 256
SHOWN = ("aten::addmm", "aten::gelu", "aten::mm", "aten::native_layer_norm")


def device_time(event):
    """us on the GPU; the name of it is another in older versions."""
    return getattr(event, "device_time_total", None) or getattr(event, "cuda_time_total", 0)


def main():
    job = Job(__doc__)
    model = small_model(job, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = job.generator(0)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * job.on_gpu
    with profile(activities=activities) as found:
        for number in job.rounds():
            inputs = torch.randn(BATCH, WIDTH, generator=generator, device=job.device)
            print_loss(number, train_step(model, optimizer, inputs, inputs[:, :1]))
    averages = {event.key: event for event in found.key_averages()}
    if job.on_gpu and not any(device_time(averages[name]) for name in SHOWN):
        skip("the profiler sees no kernels here")
    for name in SHOWN:
        seen = f", kernels {'seen' if device_time(averages[name]) else 'NOT seen'}" if job.on_gpu else ""
        print(f"{name}: {averages[name].count} times{seen}")
    job.finish(weights=model.parameters())


if __name__ == "__main__":
    main()
