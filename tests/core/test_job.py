"""States and GRES strings, as the releases of Slurm spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.job import ENDED, ENDING, RUNNING, STATES, WAITING, Phase, gpu_count, phase_of


def test_every_state_is_in_one_phase_only() -> None:
    assert len(STATES) == len(WAITING) + len(RUNNING) + len(ENDING) + len(ENDED)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", Phase.WAITING),
        ("RUNNING", Phase.RUNNING),
        ("SUSPENDED", Phase.RUNNING),
        ("COMPLETING", Phase.ENDING),
        ("COMPLETED", Phase.ENDED),
        ("OUT_OF_MEMORY", Phase.ENDED),
        ("CANCELLED by 1000", Phase.ENDED),
        ("REQUEUE_HOLD", Phase.WAITING),
    ],
)
def test_the_phase_of_a_state(state: str, phase: Phase) -> None:
    assert phase_of(state) is phase


@given(st.text().filter(lambda text: text.split(" ", 1)[0] not in STATES))
def test_a_word_that_is_no_state_is_never_given_a_phase(text: str) -> None:
    with pytest.raises(ValueError, match="not a job state"):
        phase_of(text)


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gres/gpu:1", 1),  # 23.02 and later
        ("gres:gpu:1", 1),  # 22.05
        ("gres/gpu", 1),
        ("gres:gpu", 1),
        ("gres/gpu=1", 1),
        ("gpu:1", 1),
        ("gpu", 1),
        ("gpu:a100:2", 2),
        ("gres/gpu:a100:2", 2),
        ("gres/gpu:rtx_4090=2", 2),
        ("gpu:a100", 1),
        ("gpu:1(S:0)", 1),
        ("gpu:a100:1(S:0-1)", 1),
        ("gpu:a100:1,gpu:v100:3", 4),
        ("shard:4,gpu:1", 1),
        ("gres/shard:4", 0),
        ("gres/mps:100", 0),
        ("gpumem:8", 0),
        ("notgpu:1", 0),
        ("gres/gpu:0", 0),
        ("(null)", 0),
        ("N/A", 0),
        ("", 0),
    ],
)
def test_gpus_are_counted_in_the_spelling_of_every_release(gres: str, count: int) -> None:
    assert gpu_count(gres) == count


@pytest.mark.parametrize("kind", ["3090", "4090ti", "a100-sxm4", "rtx6000", "nvidia_a100-pcie-40gb", "a100.2g"])
def test_a_gpu_type_may_begin_with_a_digit(kind: str) -> None:
    assert gpu_count(f"gpu:{kind}:1") == 1
    assert gpu_count(f"gres/gpu:{kind}:2") == 2
    assert gpu_count(f"gpu:{kind}:2(S:0)") == 2


@given(st.integers(min_value=0, max_value=64), st.sampled_from(["gres/", "gres:", ""]), st.sampled_from(["", ":a100"]))
def test_the_number_in_a_gres_string_is_the_count(number: int, prefix: str, kind: str) -> None:
    assert gpu_count(f"{prefix}gpu{kind}:{number}") == number
