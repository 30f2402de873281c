"""Which programs train, and whether they are told to leave the GPU alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from gpuq.core.guard.scene import Scene, absolute
from gpuq.core.guard.shell import UNKNOWN

_TRAINS = frozenset("train training trainer pretrain pretraining retrain finetune finetuning sweep".split())
_TWO = {("fine", "tune"), ("fine", "tuning"), ("pre", "train"), ("pre", "training")}
_OTHER = frozenset(
    "plot prepare prep preprocess make split data dataset datasets download fetch test tests view viewer log logs export "
    "analyze analyse analysis eval evaluate inspect convert build create generate gen report stats summary summarize check "
    "count visualize visualise vis monitor show list guide doc docs utils util helpers config configs args time loss curve "
    "curves merge clean lint format draw figure figures tokenize parse print".split()
)
"""Words of a name that tell of something beside training: plot_training.py, train_test_split.py."""
_CPU = {"--device": "cpu", "--accelerator": "cpu", "--platform": "cpu"}
_CPU_FLAGS = frozenset("--cpu --no-cuda --no_cuda --use-cpu --use_cpu --no-gpu --cpu-only".split())


def is_training(path: str, scene: Scene) -> bool:
    """A Python program that trains: by its name, or because the job.sh of some run starts it."""
    if UNKNOWN in path or not path.endswith((".py", ".ipynb")) or "\n" in path:
        return False
    if named_so(posixpath.splitext(posixpath.basename(path))[0]):
        return True
    return posixpath.relpath(absolute(path, scene), scene.project) in scene.trained()


def is_training_module(module: str, scene: Scene) -> bool:
    """The same for `python -m MODULE`."""
    parts = module.split(".")
    return is_training(module.replace(".", "/") + ".py", scene) or (
        parts[-1] in {"task", "main", "run", "cli"} and any(map(named_so, parts[:-1]))
    )


def named_so(stem: str) -> bool:
    """A name with a word for training in it, and none for something beside it."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem).lower())
    trains = bool(_TRAINS & set(words)) or any(pair in _TWO for pair in pairwise(words))
    return trains and not _OTHER & set(words)


def on_the_cpu(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether its arguments or variables keep a program from the GPU."""
    hidden = environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in {"", "-1", "none", "NoDevFiles"}:
        return True
    if environment.get("JAX_PLATFORMS", environment.get("JAX_PLATFORM_NAME", "")) == "cpu":
        return True
    for n, word in enumerate(arguments):
        key, equals, value = word.partition("=")
        if word in _CPU_FLAGS or (
            key in _CPU and _CPU[key] == (value if equals else "".join(arguments[n + 1 : n + 2]))
        ):
            return True
    return False
