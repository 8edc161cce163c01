"""What the programs here share: options, reproducible arithmetic, ballast, and digests of what they computed.

A program shows one behaviour of PyTorch and prints, on stdout, only what is the same whenever and beside whomever it runs. It leaves
the GPU alone in its pauses, and holds ballast, so that two of them do not fit at once.
"""
import argparse
import ctypes
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs to give the same bits each time
import torch  # noqa: E402

SKIPPED = 77
PIECE_WORDS = 1 << 23  # of ballast: 64 MiB


def skip(reason):
    print(reason, file=sys.stderr)
    sys.exit(SKIPPED)


def digest(*tensors):
    """The first 16 digits of the SHA-256 of the tensors' bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        here = tensor.detach().cpu().contiguous()
        total.update(ctypes.string_at(here.data_ptr(), here.numel() * here.element_size()))
    return total.hexdigest()[:16]


class Ballast:
    """Device memory full of random words. A part of it is changed each round, all of it goes into the digest."""

    def __init__(self, job, mib):
        self.pieces = []
        words = (mib << 20) // 8
        for start in range(0, words, PIECE_WORDS):
            piece = torch.empty(min(PIECE_WORDS, words - start), dtype=torch.int64, device=job.device)
            self.pieces.append(piece.random_(generator=job.generator(start)))

    def change(self, round_number):
        if self.pieces:
            self.pieces[round_number % len(self.pieces)].mul_(3).add_(round_number)

    def digest(self):
        """Of sums of words, each times the number of its place: integers, so that the order of summing does not matter."""
        sums = []
        for piece in self.pieces:
            places = torch.arange(1, 2 * piece.numel(), 2, dtype=torch.int64, device=piece.device)
            sums.append(places.mul_(piece).sum())
        return digest(*sums)


class Job:
    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try the program without a GPU")
        parser.add_argument("--rounds", type=int, default=10)
        parser.add_argument("--ballast-mib", type=int, default=64)
        parser.add_argument("--pause-ms", type=float, default=0, help="without work for the GPU, in each round")
        parser.add_argument("--seed", type=int, default=1)
        self.options = parser.parse_args()
        self.device = torch.device(self.options.device)
        self.on_gpu = self.device.type == "cuda"
        print(f"version: {torch.__version__}", file=sys.stderr)
        if self.on_gpu and not torch.cuda.is_available():
            skip(f"PyTorch {torch.__version__} finds no GPU that it can use")
        torch.manual_seed(self.options.seed)
        torch.use_deterministic_algorithms(True)
        if not self.on_gpu:
            torch.set_num_threads(1)
        self.ballast = Ballast(self, self.options.ballast_mib)

    def generator(self, stream):
        """Random numbers of their own for each `stream`."""
        return torch.Generator(device=self.device).manual_seed(self.options.seed * 1_000_003 + stream)

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def rounds(self):
        """The numbers of the rounds. Each ends with a pause."""
        for number in range(self.options.rounds):
            yield number
            self.ballast.change(number)
            self.pause()

    def pause(self):
        self.synchronize()
        time.sleep(self.options.pause_ms / 1e3)

    def finish(self, **tensors):
        """Prints a digest of each list of tensors, and of the ballast."""
        for name, ones in tensors.items():
            print(f"{name}: {digest(*ones)}")
        print(f"ballast: {self.ballast.digest()}")


def print_loss(number, loss):
    """To the last bit."""
    print(f"loss {number}: {float(loss).hex()}")


def small_model(job, width=256, depth=3):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)).to(job.device)


def train_step(model, optimizer, inputs, targets):
    """One step of a regression; the loss as a tensor."""
    optimizer.zero_grad(set_to_none=True)
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
