"""What a command with a used key asks for, held against what was submitted with it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.attempt import Request
from gpuq.core.config import Settings
from gpuq.core.repeat import unlike
from gpuq.core.units import GIB, slurm_time

SUBMITTED = Request(cpus=8, memory=28 * GIB, time_limit=3600, partition="gpu", nice=5, signal_before=60)


def differences(
    request: Request, *, cpu_only: bool = False, fill: bool = False, hold: bool = False, **flags: object
) -> str:
    return "; ".join(unlike(request, msgspec.convert(flags, Settings), cpu_only=cpu_only, fill=fill, hold=hold))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"memory": 2 * GIB}, "--mem 2G (it has 28G)"),
        ({"cpus": 1}, "--cpus 1 (it has 8)"),
        ({"time": "2:00:00"}, "--time 2:00:00 (it has 01:00:00)"),
        ({"time": "UNLIMITED"}, "--time UNLIMITED (it has 01:00:00)"),
        ({"partition": "bg"}, "--partition bg (it has gpu)"),
        ({"nice": 0}, "--nice 0 (it has 5)"),
        ({"signal_before": 30}, "--signal-before 30 (it has 60)"),
        ({"cpu_only": True}, "--cpu-only (it has one GPU)"),
        ({"fill": True}, "--fill (it is no filler)"),
        ({"hold": True}, "--hold (it was not held)"),
    ],
)
def test_each_option_that_is_not_as_it_was(flags: dict[str, object], says: str) -> None:
    assert differences(SUBMITTED, **flags) == says  # type: ignore[arg-type]


def test_what_slurm_chose_has_no_value() -> None:
    bare = Request(cpus=1, memory=GIB)
    found = differences(bare, time="1:00:00", partition="gpu", signal_before=60)
    assert found.split("; ") == [
        "--time 1:00:00 (it has the partition's)",
        "--partition gpu (it has the default one)",
        "--signal-before 60 (it has none)",
    ]


@given(st.integers(1, 64), st.integers(1, 2**45), st.integers(60, 10**6), st.booleans(), st.booleans())
def test_the_same_again_is_no_difference(cpus: int, memory: int, seconds: int, cpu_only: bool, hold: bool) -> None:
    limit = seconds // 60 * 60
    request = Request(cpus=cpus, memory=memory, time_limit=limit, gpu=not cpu_only, hold=hold)
    same = differences(request, cpu_only=cpu_only, hold=hold, cpus=cpus, memory=memory, time=slurm_time(limit))
    assert same == ""
    assert differences(request) == ""
