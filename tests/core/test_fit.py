"""What is asked for, held against the partition and its nodes, before Slurm would leave it pending for ever."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.config import Settings
from gpuq.core.fit import DEFAULT_CPUS, DEFAULT_MEMORY, Fitted, choose_partition, fit, for_kind
from gpuq.core.job import Node, Partition
from gpuq.core.units import GIB, MIB
from gpuq.errors import SubmissionRefused


def partition(
    name: str = "gpu",
    *,
    default: bool = True,
    max_time: int | None = 8 * 3600,
    cpus: int | None = None,
    memory: int | None = None,
) -> Partition:
    return Partition(
        name=name,
        default=default,
        max_time=max_time,
        default_time=None,
        max_cpus_per_node=cpus,
        max_memory_per_node=memory,
        state="UP",
    )


def node(name: str = "n1", *, cpus: int = 20, memory: int = 15867, gres: str = "gpu:1", of: str = "gpu") -> Node:
    return Node(name=name, partition=of, cpus=cpus, memory=memory * MIB, gres=gres, state="idle", reason="")


def ask(settings: Settings, *nodes: Node, gpu: bool = True, on: Partition | None = None) -> Fitted:
    return fit(settings, gpu=gpu, hold=False, partition=on or partition(), nodes=list(nodes or (node(),)))


def refusal(settings: Settings, *nodes: Node, gpu: bool = True, on: Partition | None = None) -> SubmissionRefused:
    with pytest.raises(SubmissionRefused) as caught:
        ask(settings, *nodes, gpu=gpu, on=on)
    return caught.value


def test_more_memory_than_the_node_has_is_refused_naming_what_it_has() -> None:
    error = refusal(Settings(memory=16384 * MIB))
    assert "16384M (16G)" in error.message
    assert "n1 has 15867M" in error.message
    assert error.hint == "ask for at most --mem 15867M"
    assert ask(Settings(memory=15867 * MIB)).request.memory == 15867 * MIB


def test_more_cores_than_the_node_has_are_refused_though_slurm_would_take_them() -> None:
    error = refusal(Settings(cpus=64))
    assert "64 CPUs" in error.message
    assert "n1 has 20" in error.message
    assert error.hint == "ask for at most --cpus 20"


def test_more_time_than_the_partition_allows_is_refused_with_both() -> None:
    error = refusal(Settings(time="24:00:00"))
    assert "1-00:00:00 is asked for, and partition gpu allows 08:00:00" in error.message
    assert "no time limit is asked for" in refusal(Settings(time="UNLIMITED")).message
    assert ask(Settings(time="UNLIMITED"), on=partition(max_time=None)).request.time_limit is None


def test_24_00_is_24_minutes_and_is_said_so() -> None:
    fitted = ask(Settings(time="24:00"))
    assert fitted.request.time_limit == 24 * 60
    assert fitted.notes == ("--time 24:00 is 24 minutes to Slurm (minutes:seconds); hours are written like 24:00:00",)
    assert ask(Settings(time="0:24:00")).notes == ()


def test_a_few_megabytes_are_said_to_be_megabytes() -> None:
    (note,) = ask(Settings(memory=28 * MIB)).notes
    assert note.startswith("28M of memory is little for a job")
    assert ask(Settings(memory=65 * MIB)).notes == ()


def test_a_time_of_zero_is_refused_with_the_reason() -> None:
    assert "no limit at all" in refusal(Settings(time="0")).message


def test_a_node_without_a_gpu_is_named_with_the_cure() -> None:
    error = refusal(Settings(), node(gres=""))
    assert "this node offers no gres/gpu" in error.message
    assert "n1" in error.message
    assert "--cpu-only" in error.hint
    assert ask(Settings(), node(gres=""), gpu=False).request.gpu is False


def test_without_a_word_a_run_gets_the_defaults_or_what_the_node_has() -> None:
    big = ask(Settings(), node(cpus=64, memory=256 * 1024)).request
    assert (big.cpus, big.memory, big.gpu, big.time_limit) == (DEFAULT_CPUS, DEFAULT_MEMORY, True, None)
    small = ask(Settings(), node(cpus=2, memory=1000)).request
    assert (small.cpus, small.memory) == (2, 1000 * MIB)


def test_the_partitions_own_limits_count_too() -> None:
    assert "n1 has 4 in partition gpu" in refusal(Settings(cpus=8), on=partition(cpus=4)).message
    assert "has 1024M" in refusal(Settings(memory=2 * GIB), on=partition(memory=GIB)).message


def test_cores_and_memory_must_be_on_the_same_node() -> None:
    many, much = node("many", cpus=64, memory=1000), node("much", cpus=2, memory=64000)
    assert "no single node" in refusal(Settings(cpus=64, memory=32 * GIB), many, much).message
    assert ask(Settings(cpus=64, memory=900 * MIB), many, much).request.cpus == 64


def test_defaults_are_chosen_such_that_one_node_can_hold_them_together() -> None:
    many, much = node("many", cpus=64, memory=1000), node("much", cpus=2, memory=64000)
    request = ask(Settings(), many, much).request
    assert (request.cpus <= 64 and request.memory <= 1000 * MIB) or (
        request.cpus <= 2 and request.memory <= 64000 * MIB
    )


def test_the_node_named_is_the_one_that_has_most_of_what_is_short() -> None:
    many, much = node("many", cpus=64, memory=1000), node("much", cpus=2, memory=64000)
    assert "many has 64" in refusal(Settings(cpus=65), many, much).message
    assert "much has 64000M" in refusal(Settings(memory=64 * GIB), many, much).message


def test_nodes_of_other_partitions_and_nodes_without_a_gpu_do_not_help() -> None:
    assert "has no nodes" in refusal(Settings(), node(of="cpu")).message
    assert "n1 has 20" in refusal(Settings(cpus=64), node(), node("n2", cpus=64, gres="")).message


def test_a_signal_must_come_before_the_end() -> None:
    assert "is not before the time limit of 600" in refusal(Settings(time="10", signal_before=600)).message
    assert "28800" in refusal(Settings(signal_before=30000)).message
    assert ask(Settings(time="10", signal_before=599)).request.signal_before == 599


def test_the_partition_is_slurms_default_or_the_one_named() -> None:
    gpu, cpu = partition("gpu"), partition("cpu", default=False)
    assert choose_partition(None, [cpu, gpu]) is gpu
    assert choose_partition("cpu", [gpu, cpu]) is cpu
    with pytest.raises(SubmissionRefused, match=r"no partition 'gpo' \(there are: gpu, cpu\)"):
        choose_partition("gpo", [gpu, cpu])
    with pytest.raises(SubmissionRefused, match="no default partition"):
        choose_partition(None, [cpu])
    with pytest.raises(SubmissionRefused, match="there are: none"):
        choose_partition(None, [])


NODES = st.lists(
    st.builds(
        lambda c, m, g: node(cpus=c, memory=m, gres=g),
        st.integers(1, 128),
        st.integers(1, 10**6),
        st.sampled_from(["gpu:1", ""]),
    ),
    max_size=4,
)


@given(
    st.builds(
        Settings,
        cpus=st.none() | st.integers(1, 200),
        memory=st.none() | st.integers(MIB, 2**40),
        time=st.sampled_from([None, "10", "9:00:00"]),
    ),
    NODES,
    st.booleans(),
    st.none() | st.integers(1, 64),
)
def test_what_is_accepted_fits_on_one_node_and_what_was_asked_is_kept(
    settings: Settings, nodes: list[Node], gpu: bool, cap: int | None
) -> None:
    on = partition(cpus=cap)
    try:
        request = fit(settings, gpu=gpu, hold=True, partition=on, nodes=nodes).request
    except SubmissionRefused:
        return
    assert request.cpus == settings.cpus or settings.cpus is None
    assert request.memory == settings.memory or settings.memory is None
    assert any(
        request.cpus <= min(n.cpus, cap or n.cpus) and request.memory <= n.memory and (n.gpus or not gpu) for n in nodes
    )
    assert request.time_limit is None or request.time_limit <= 8 * 3600
    assert request.hold


# -- the partitions of a host that gpuq has set up ---------------------------------------------------------------------

SHARED = msgspec.structs.replace(
    partition("cpu", default=False, cpus=12, memory=25320 * MIB), max_memory_per_cpu=2110 * MIB
)
BACKGROUND = partition("bg", default=False, cpus=8)
OURS = [partition(), SHARED, BACKGROUND]
REFERENCE_NODES = [node(cpus=20, memory=54000, of=one.name) for one in OURS]


def ours(settings: Settings, *, gpu: bool = True, on: Partition = OURS[0]) -> Fitted:
    return fit(settings, gpu=gpu, hold=False, partition=on, nodes=REFERENCE_NODES, beside=OURS)


def test_the_default_partition_stays_the_default_one() -> None:
    assert choose_partition(None, OURS).name == "gpu"
    assert for_kind(Settings(), OURS, cpu_only=False, fill=False).partition is None
    assert for_kind(Settings(), OURS, cpu_only=True, fill=False).partition == "cpu"
    assert for_kind(Settings(partition="gpu"), OURS, cpu_only=False, fill=True).partition == "bg"
    assert for_kind(Settings(), [partition()], cpu_only=True, fill=False).partition is None
    with pytest.raises(SubmissionRefused, match="no partition 'bg'"):
        for_kind(Settings(), [partition()], cpu_only=False, fill=True)


def test_the_defaults_are_what_is_always_left() -> None:
    fitted = ours(Settings())
    assert (fitted.request.cpus, fitted.request.memory) == (8, 28 * GIB)
    assert fitted.notes == ()
    more = ours(Settings(cpus=9))
    assert "only 8 CPUs and" in more.notes[0]
    assert "may have to wait" in ours(Settings(memory=40 * GIB)).notes[0]
    small = [msgspec.structs.replace(one, cpus=2, memory=8000 * MIB) for one in REFERENCE_NODES]
    tiny = msgspec.structs.replace(
        SHARED, max_cpus_per_node=1, max_memory_per_node=2000 * MIB, max_memory_per_cpu=2000 * MIB
    )

    found = fit(Settings(), gpu=True, hold=False, partition=OURS[0], nodes=small, beside=[OURS[0], tiny, BACKGROUND])
    assert (found.request.cpus, found.request.memory) == (1, 6000 * MIB)


def test_a_share_that_slurm_counts_as_licenses_is_the_same() -> None:
    """Slurm 24.11: the partition tells no limit, and job_submit.lua keeps the one of core/conf_partitions."""
    counted = msgspec.structs.replace(SHARED, max_cpus_per_node=None, max_memory_per_node=None)
    beside = [OURS[0], counted, BACKGROUND]
    nodes = REFERENCE_NODES
    for own, other in (
        (ours(Settings()), fit(Settings(), gpu=True, hold=False, partition=OURS[0], nodes=nodes, beside=beside)),
        (
            ours(Settings(), gpu=False, on=SHARED),
            fit(Settings(), gpu=False, hold=False, partition=counted, nodes=nodes, beside=beside),
        ),
    ):
        assert own.request == other.request
    with pytest.raises(SubmissionRefused, match="has 12"):
        fit(Settings(cpus=13), gpu=False, hold=False, partition=counted, nodes=nodes, beside=beside)


def test_work_without_a_gpu_gets_the_memory_that_its_cpus_bring() -> None:
    fitted = ours(Settings(), gpu=False, on=SHARED)
    assert (fitted.request.cpus, fitted.request.memory) == (8, 8 * 2110 * MIB)
    assert ours(Settings(cpus=1), gpu=False, on=SHARED).request.memory == 2110 * MIB
    assert "cost 5 CPUs" in ours(Settings(cpus=1, memory=9000 * MIB), gpu=False, on=SHARED).notes[0]
    with pytest.raises(SubmissionRefused, match="25320M"):
        ours(Settings(memory=26 * GIB), gpu=False, on=SHARED)
    with pytest.raises(SubmissionRefused, match="has 12"):
        ours(Settings(cpus=13), gpu=False, on=SHARED)
