"""CLA-E on one page: the paper's algorithm in plain PyTorch, to be read from top to bottom.

python examples/cla_on_one_page.py

The encoder θ (backbone and projector) learns from a stream of unlabelled images in one pass. It minimises

    L = L_SimSiam(z₁ ∪ z_r1, z₂ ∪ z_r2) + ω · ½ [ −cos(a(z_r1), θ′(x_r1)) − cos(a(z_r2), θ′(x_r2)) ],

where 1 and 2 are two augmented views, r marks replay samples, a is the aligner, and θ′ is a moving average of θ.
Only the augmentation and the images come from ocssl. ``ocssl.Learner(strategy="cla-e")`` computes the same weights.
"""

from __future__ import annotations

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl import data
from ocssl.augment import Augmentation


def train(
    images: Tensor,
    encoder: nn.Module,
    predictor: nn.Module,
    aligner: nn.Module,
    augment: Augmentation,
    generator: torch.Generator,
    *,
    stream_batch: int = 10,
    batch: int = 138,
    passes: int = 3,
    memory_size: int = 2000,
    lr: float = 0.1,
    omega: float = 0.3,
    tau: float = 0.999,
) -> nn.Module:
    """Train encoder, predictor and aligner in place on a stream of images; the moving average θ′ is returned.

    Args:
        images: ``(n, 3, s, s)`` uint8, in the order of the stream.
        encoder: ``(n, 3, s, s)`` to ``(n, d)``; predictor and aligner map ``(n, d)`` to ``(n, d)``.
        stream_batch, batch, passes: the paper's b_s, b and n_p.
    """
    teacher = copy.deepcopy(encoder).requires_grad_(False)
    parameters = [p for network in (encoder, predictor, aligner) for p in network.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=1e-4)
    memory = torch.zeros(memory_size, *images.shape[1:], dtype=torch.uint8)
    seen = 0

    for stream in images.split(stream_batch):
        for _ in range(passes):
            # The batch: the stream minibatch, and b − b_s different samples of the memory once it holds more of them.
            replay = draw(memory, seen, batch - stream_batch, generator)
            samples = torch.cat([stream, replay])

            # Two augmented views of every sample, (2, b, 3, s, s), in one forward pass.
            views = augment(samples, views=2, generator=generator)
            z = encoder(views.flatten(0, 1))
            z1, z2 = z.chunk(2)

            # SimSiam: predict each view from the other; the target has no gradient.
            p1, p2 = predictor(z).chunk(2)
            loss = -(cosine(p1, z2.detach()) + cosine(p2, z1.detach())) / 2

            # Alignment: map the features of the replay samples to those of the moving average.
            if len(replay) > 0:
                aligned = aligner(torch.cat([z1[len(stream) :], z2[len(stream) :]]))
                with torch.no_grad():
                    target = teacher(views[:, len(stream) :].flatten(0, 1))
                loss = loss - omega * cosine(aligned, target)

            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            # θ′ ← τ θ′ + (1 − τ) θ
            with torch.no_grad():
                for average, current in zip(teacher.parameters(), encoder.parameters(), strict=True):
                    average.lerp_(current, 1 - tau)

        # First in, first out: the minibatch takes the place of the oldest samples.
        memory[(seen + torch.arange(len(stream))) % memory_size] = stream
        seen += len(stream)
    return teacher


def draw(memory: Tensor, seen: int, n: int, generator: torch.Generator) -> Tensor:
    """n different samples of the memory, uniformly; none while it holds no more than n."""
    if min(seen, len(memory)) <= n:
        return memory[:0]
    keys = torch.rand(len(memory), generator=generator)
    keys[seen:] = 2  # empty slots come last
    return memory[keys.topk(n, largest=False, sorted=False).indices]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The mean cosine similarity of rows."""
    return F.cosine_similarity(a, b, dim=-1).mean()


def mlp(width_in: int, hidden: int, width: int) -> nn.Module:
    """Two linear layers with batch norm and ReLU between them."""
    return nn.Sequential(nn.Linear(width_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3000)
    count = parser.parse_args().images

    # A stream of coloured shapes, one class after the other; the labels order the stream and measure the features.
    source, test = data.load("shapes"), data.load("shapes", split="test")
    assert source.labels is not None
    assert test.labels is not None
    images, labels = source.images(range(count)), source.labels[:count]
    stream = images[labels.argsort(stable=True)]

    torch.manual_seed(0)
    convolutions = [
        layer
        for a, b in ((3, 32), (32, 64), (64, 128))
        for layer in (nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
    ]
    backbone = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    projector = nn.Sequential(mlp(128, 128, 256), nn.BatchNorm1d(256, affine=False))
    predictor, aligner = mlp(256, 128, 256), mlp(256, 128, 256)
    augment = Augmentation(source.image_size, Augmentation.Options(mean=source.mean, std=source.std))

    @torch.no_grad()
    def accuracy() -> float:
        """Per cent of the test images whose nearest training image has the same label."""
        backbone.eval()
        known, asked = (F.normalize(backbone(augment.normalize(x))) for x in (images, test.images(range(len(test)))))
        backbone.train()
        return 100 * (labels[(asked @ known.T).argmax(1)] == test.labels).double().mean().item()

    print(f"untrained  1-NN {accuracy():.1f} %")
    generator = torch.Generator().manual_seed(0)
    train(stream, nn.Sequential(backbone, projector), predictor, aligner, augment, generator, batch=42, passes=1)
    print(f"CLA-E      1-NN {accuracy():.1f} %")


if __name__ == "__main__":
    main()
