"""A memory series as a picture (PNG or SVG), drawn by matplotlib, which is an extra."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuq.adapters.files import write_atomic
from gpuq.core.memory.looks import Sample
from gpuq.errors import UsageError

_GIB = 1024**3
FORMATS = (".png", ".svg")


def write(path: Path, samples: Sequence[Sample], title: str) -> None:
    """Draw anon, shmem and page cache, stacked, and the limit. Raises UsageError: no matplotlib, or no such place."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "a picture needs matplotlib, which is not installed", hint="pip install 'gpuq-slurm[plot]'; or without FILE"
        ) from None
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    if len(samples) == 1:  # an area and a line need two
        samples = [samples[0], msgspec.structs.replace(samples[0], at=samples[0].at + datetime.timedelta(seconds=1))]
    start = samples[0].at
    minutes = [(one.at - start).total_seconds() / 60 for one in samples]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.stackplot(
        minutes,
        [[(getattr(one, name) or 0) / _GIB for one in samples] for name in ("anon", "shmem", "cache")],
        labels=["anon", "shmem", "page cache (can be given back)"],
        colors=["#c44e52", "#dd8452", "#c6d4e8"],
    )
    limits = [(x, one.limit / _GIB) for x, one in zip(minutes, samples, strict=True) if one.limit is not None]
    if limits:
        axes.plot(*zip(*limits, strict=True), color="black", linestyle="--", linewidth=1, label="limit")
    axes.set_xlabel("minutes since the first look")
    axes.set_ylabel("GiB")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend(loc="upper left")
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:].lower())
    try:
        write_atomic(path, image.getvalue(), durable=False)
    except OSError as error:
        raise UsageError(f"the picture cannot be written: {path}: {error.strerror or error}") from None
