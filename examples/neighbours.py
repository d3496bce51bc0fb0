"""From a folder of frames to nearest neighbours: learn, embed, look up.

python examples/neighbours.py FRAMES                        # the neighbours of the first image
python examples/neighbours.py FRAMES --query FRAMES/42.jpg  # of any image
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from ocssl.export import load
from ocssl.export.features import embed
from ocssl.imaging import decode
from ocssl.live import learn
from ocssl.live.sources import open_reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path)
    parser.add_argument("--query", type=Path, help="an image [the first frame]")
    parser.add_argument("--work", type=Path, default=Path("neighbours"), help="folder for state and features")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--images-per-second", type=float, default=20.0)
    options = parser.parse_args()

    learn(str(options.frames), options.work / "state", images_per_second=options.images_per_second)
    encoder = load(options.work / "state")
    embed(encoder, open_reader(str(options.frames)), options.work / "features.parquet")

    table = pq.read_table(options.work / "features.parquet")
    paths = table["path"].to_pylist()
    features = np.stack(table["features"].to_numpy())
    with Image.open(options.query or paths[0]) as image:
        query = encoder.transform(decode(image, encoder.image_size)[None].transpose(0, 2, 3, 1))[0]

    centre = features.mean(axis=0)
    features, query = features - centre, query - centre
    cosine = features @ query / (np.linalg.norm(features, axis=1) * np.linalg.norm(query) + 1e-12)
    for place in np.argsort(-cosine)[: options.count]:
        print(f"{cosine[place]:.3f}  {paths[place]}")


if __name__ == "__main__":
    main()
