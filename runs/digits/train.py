"""The example experiment: how well a small neural network reads handwritten digits, by 5-fold cross-validation.

The data are the 1,797 images that scikit-learn ships, so nothing is downloaded. One `job.sh` per variant passes the
settings; the score goes to `cv.json` in the run directory. Everything a reader of the log needs is in it: `gpuq run` in
job.sh writes the first and the last line, `runlog` the settings, a line for each fold and the score.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from gpuq import runlog


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64, help="units in the one hidden layer")
    parser.add_argument("--epochs", type=int, default=300, help="passes over the training data, always all of them")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=Path,
        default=os.environ.get("GPUQ_RUN_DIR"),
        help="where cv.json goes (default: $GPUQ_RUN_DIR, which gpuq sets)",
    )
    args = parser.parse_args()
    if args.out is None:
        parser.error("no --out, and GPUQ_RUN_DIR is not set: submit with gpuq, or name a directory")
    return args


def cross_validate(args: argparse.Namespace, log: runlog.Log) -> list[float]:
    """The accuracy on each held-out fold."""
    # Here, not above: a wrong option is then told at once, and not after the slow import.
    from sklearn.datasets import load_digits
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import StratifiedKFold
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # The number of epochs is a setting that all variants share; stopping at it is not a fault.
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    images, labels = load_digits(return_X_y=True)
    splits = StratifiedKFold(args.folds, shuffle=True, random_state=args.seed).split(images, labels)
    scores: list[float] = []
    for train, test in splits:
        network = MLPClassifier(
            (args.hidden,),
            learning_rate_init=args.learning_rate,
            max_iter=args.epochs,
            n_iter_no_change=args.epochs,
            random_state=args.seed,
        )
        model = make_pipeline(StandardScaler(), network)
        model.fit(images[train], labels[train])
        scores.append(float(model.score(images[test], labels[test])))
        log.step(accuracy=scores[-1], loss=network.loss_)
        if log.stopping:  # SIGTERM: a fold more would be lost anyway
            raise SystemExit("stopped by SIGTERM")
    return scores


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write aside, then rename: a reader, or a job killed here, never leaves half a result."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def main() -> None:
    args = settings()
    chosen = {key: value for key, value in vars(args).items() if key != "out"}
    with runlog.start(chosen, total=args.folds, every=0) as log:
        scores = cross_validate(args, log)
        mean = fmean(scores)
        result = {"score": mean, "mean": mean, "std": pstdev(scores), "folds": scores, "settings": chosen}
        write_json(args.out / "cv.json", result)
        log.result(score=mean)


if __name__ == "__main__":
    main()
