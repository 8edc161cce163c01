"""Trains a classifier on tinygrad on as many images as MNIST has, generated: supervised, with the PTX renderer or NVRTC, as DEV says. Ends
well only if it has learned to classify."""
import os

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, dtypes, nn

from service import Service, digest

IMAGES, PIXELS, CLASSES, HIDDEN = 60000, 28 * 28, 10, 32  # 45 MiB of images stay on the GPU
BATCH, STEPS = 128, 30


def make_images(random):
    """Each is noise over the picture of its class."""
    pictures = random.integers(0, 160, (CLASSES, PIXELS), dtype=np.uint8)
    labels = random.integers(0, CLASSES, IMAGES).astype(np.int32)
    return pictures[labels] + random.integers(0, 96, (IMAGES, PIXELS), dtype=np.uint8), labels


class Classifier:
    def __init__(self):
        self.first, self.last = nn.Linear(PIXELS, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def __call__(self, images):
        return self.last(self.first(images.cast(dtypes.float32) / 128 - 1).relu())


def main():
    assert Device.DEFAULT == "CUDA"
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    Tensor.manual_seed(seed)
    made, labels = make_images(np.random.default_rng(seed))
    images, labels = Tensor(made).realize(), Tensor(labels).realize()
    model = Classifier()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.003)

    @TinyJit
    def learn(batch, wanted):
        optimizer.zero_grad()
        said = model(batch)
        loss = said.sparse_categorical_crossentropy(wanted)
        loss.backward()
        right = (said.argmax(-1) == wanted).mean()
        Tensor.realize(loss, right, *optimizer.schedule_step())
        return loss, right

    for step in range(STEPS):
        batch, wanted = (of[step * BATCH:(step + 1) * BATCH].clone().realize() for of in (images, labels))
        with Context(TRAINING=1):
            loss, right = learn(batch, wanted)
        loss, right = loss.item(), right.item()
        if step % 3 == 2:
            service.log(step, loss=loss, right=right)
    print("weights", digest(*(weights.numpy() for weights in nn.state.get_parameters(model))))
    print("images", digest(images.numpy()))
    assert right > 0.9, f"it has not learned: {right} of the last batch are right"


main()
