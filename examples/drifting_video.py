"""A video that drifts: nearest neighbours before and after learning from it, as a strip in an HTML page.

python examples/drifting_video.py                     # a drawn video whose light and figures change
python examples/drifting_video.py --video drive.mp4   # your own (extra 'video')
"""

from __future__ import annotations

import argparse
import base64
import html
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ocssl import Learner
from ocssl.data.shapes import draw
from ocssl.imaging import decode
from ocssl.live.video import VideoReader


def drawn_video(count: int, size: int) -> Tensor:
    """Figures one kind after another, in light that turns from warm to cold."""
    images, labels = draw(count, size=size, seed=0)
    images = images[labels.argsort(stable=True)].float()
    cold = torch.linspace(0, 1, count)[:, None]
    light = torch.cat([1 - 0.5 * cold, torch.full_like(cold, 0.75), 0.5 + 0.5 * cold], dim=1)
    return (images * light[:, :, None, None]).to(torch.uint8)


def frames_of(video: Path, size: int) -> Tensor:
    """Every frame, cropped and resized."""
    frames = [decode(item.picture, size) for item in VideoReader(video).items()]  # type: ignore[arg-type]
    return torch.from_numpy(np.stack(frames))


def nearest(features: np.ndarray, queries: list[int], count: int) -> list[list[int]]:
    """For each query the nearest frames by cosine, those right beside it in time left out."""
    features = features - features.mean(axis=0)
    features /= np.linalg.norm(features, axis=1, keepdims=True) + 1e-12
    found = []
    for query in queries:
        cosine = features @ features[query]
        cosine[max(0, query - 3) : query + 4] = -np.inf
        found.append(np.argsort(-cosine)[:count].tolist())
    return found


def strip(title: str, frames: Tensor, queries: list[int], found: list[list[int]]) -> str:
    """A table: each query and its neighbours in one row."""
    rows = "".join(
        f"<tr><th>{picture(frames[query])}</th>{''.join(f'<td>{picture(frames[one])}</td>' for one in others)}</tr>"
        for query, others in zip(queries, found, strict=True)
    )
    return f"<h2>{html.escape(title)}</h2><table>{rows}</table>"


def picture(frame: Tensor) -> str:
    buffer = io.BytesIO()
    Image.fromarray(frame.permute(1, 2, 0).numpy()).save(buffer, "PNG")
    return f'<img width="48" alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", type=Path)
    parser.add_argument("--frames", type=int, default=1800, help="of the drawn video")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--backbone", default="convnet")
    parser.add_argument("--output", "-o", type=Path, default=Path("neighbours.html"))
    options = parser.parse_args()

    frames = frames_of(options.video, options.size) if options.video else drawn_video(options.frames, options.size)
    learner = Learner(
        backbone=options.backbone, image_size=options.size, batch=42, passes=1, hidden_dim=128, output_dim=512
    )
    queries = np.linspace(10, len(frames) - 10, 6).astype(int).tolist()
    before = nearest(learner.transform(frames), queries, count=8)
    learner.partial_fit(frames).flush()
    after = nearest(learner.transform(frames), queries, count=8)

    style = "<style>body{font:16px sans-serif;margin:2em}th{padding-right:1em}</style>"
    page = strip("Before", frames, queries, before) + strip("After one pass", frames, queries, after)
    options.output.write_text(f"<!doctype html><meta charset=utf-8><title>Neighbours</title>{style}{page}")
    print(f"{learner.seen:,} frames, CBP {learner.budget.spent:,}: {options.output}")


if __name__ == "__main__":
    main()
