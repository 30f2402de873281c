"""Layers of settings: which one wins, and what is told about a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.config import Settings, from_directives, from_environment, from_table, merge
from gpuq.core.script import Directive, check_script
from gpuq.core.units import GIB
from gpuq.errors import ConfigError

LAYER = st.builds(
    Settings,
    partition=st.none() | st.just("gpu"),
    memory=st.none() | st.integers(1, 100),
    cpus=st.none() | st.integers(1, 100),
    nice=st.none() | st.integers(-5, 5),
    results=st.none() | st.just(()) | st.just(("cv.json",)),
)


@given(st.lists(LAYER, max_size=5))
def test_the_last_layer_that_says_something_wins(layers: list[Settings]) -> None:
    merged = merge(layers)
    for field in Settings.__struct_fields__:
        said = [getattr(layer, field) for layer in layers if getattr(layer, field) is not None]
        assert getattr(merged, field) == (said[-1] if said else None)


@given(LAYER, LAYER, LAYER)
def test_merging_in_steps_is_merging_at_once(a: Settings, b: Settings, c: Settings) -> None:
    assert merge([merge([a, b]), c]) == merge([a, merge([b, c])]) == merge([a, b, c])


def test_zero_and_empty_are_said_and_none_is_not() -> None:
    assert merge([Settings(nice=5, results=("x",)), Settings(nice=0, results=())]) == Settings(nice=0, results=())


def test_a_whole_file() -> None:
    table = {
        "project": {"runs": "experiments"},
        "submit": {"partition": "gpu", "mem": "28G", "cpus": 4, "time": "8:00:00", "nice": 0, "signal_before": 60},
        "results": {"files": ["cv.json"], "score": "cv.json:mean"},
    }
    assert from_table(table, "gpuq.toml") == Settings(
        partition="gpu",
        memory=28 * GIB,
        cpus=4,
        time="8:00:00",
        nice=0,
        signal_before=60,
        results=("cv.json",),
        score="cv.json:mean",
        runs="experiments",
    )


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"submit": {"memory": "28G"}}, "unknown key 'memory' in [submit]"),
        ({"submit": {"cpu": 4}}, "did you mean 'cpus'?"),
        ({"sumbit": {}}, "did you mean 'submit'?"),
        ({"zzz": {}}, "known are project, submit, results"),
        ({"submit": 3}, "must be a table, written [submit]"),
        ({"submit": {"mem": 28.5}}, 'like "28G"'),
        ({"submit": {"mem": True}}, 'like "28G"'),
        ({"submit": {"mem": "28X"}}, "'28X' is not a size"),
        ({"submit": {"mem": 0}}, "whole node"),
        ({"submit": {"time": "8h"}}, "Slurm would want 08:00:00"),
        ({"submit": {"time": 0}}, "no limit at all"),
        ({"submit": {"cpus": "4"}}, "whole number"),
        ({"submit": {"cpus": True}}, "whole number"),
        ({"submit": {"cpus": 0}}, "at least 1"),
        ({"submit": {"signal_before": 0}}, "between 1 and 65535"),
        ({"submit": {"nice": 2**31}}, "--nice"),
        ({"submit": {"partition": ""}}, "must be a text in quotes"),
        ({"results": {"files": "cv.json"}}, 'like ["cv.json"]'),
        ({"results": {"files": ["../cv.json"]}}, "inside the run directory"),
        ({"results": {"files": ["/cv.json"]}}, "inside the run directory"),
        ({"results": {"files": [""]}}, "inside the run directory"),
        ({"results": {"score": "cv.json"}}, 'like "cv.json:mean"'),
        ({"results": {"score": "../cv.json:mean"}}, 'like "cv.json:mean"'),
    ],
)
def test_a_wrong_file_is_refused_naming_file_place_and_cure(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_table(table, "/p/gpuq.toml")
    assert says in caught.value.message
    assert caught.value.message.startswith("/p/gpuq.toml: ")


def test_a_run_toml_may_not_move_the_runs_root() -> None:
    with pytest.raises(ConfigError, match=r"unknown table \[project\]"):
        from_table({"project": {"runs": "x"}}, "run.toml", run=True)
    assert from_table({"submit": {"cpus": 2}}, "run.toml", run=True) == Settings(cpus=2)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["project", "submit", "results", "runs", "mem", "cpus", "time", "nice", "files", "score", "partition"]
)


@given(
    st.dictionaries(KEYS | st.text(max_size=5), st.dictionaries(KEYS, JSON_LIKE, max_size=3) | JSON_LIKE, max_size=3)
)
def test_whatever_a_file_holds_it_is_read_or_refused_with_its_name(table: dict[str, Any]) -> None:
    try:
        settings = from_table(table, "gpuq.toml")
        said = "gpuq.toml: "
    except ConfigError as error:
        settings, said = Settings(), error.message
    assert isinstance(settings, Settings)
    assert said.startswith("gpuq.toml: ")


def test_variables_of_the_environment() -> None:
    environment = {
        "GPUQ_MEM": "2G",
        "GPUQ_CPUS": "4",
        "GPUQ_TIME": "60",
        "GPUQ_RUNS": "x",
        "GPUQ_NICE": "-1",
        "HOME": "/h",
    }
    assert from_environment(environment) == Settings(memory=2 * GIB, cpus=4, time="60", runs="x", nice=-1)


def test_an_empty_variable_counts_as_not_set_and_those_of_a_job_are_no_settings() -> None:
    assert from_environment({"GPUQ_MEM": "", "GPUQ_TAG": "a", "GPUQ_ATTEMPT": "1", "GPUQ_DEBUG": "1"}) == Settings()


def test_a_variable_that_is_nearly_one_of_ours_is_refused_with_the_right_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown variable GPUQ_MEN; did you mean 'GPUQ_MEM'\?"):
        from_environment({"GPUQ_MEN": "2G"})
    with pytest.raises(ConfigError, match=r"did you mean 'GPUQ_PARTITION'\?"):
        from_environment({"GPUQ_PARTITON": "gpu"})
    assert from_environment({"GPUQ_SOMEBODY_ELSES": "1"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value"), [("GPUQ_CPUS", "many"), ("GPUQ_CPUS", "0"), ("GPUQ_MEM", "x"), ("GPUQ_TIME", "24h")]
)
def test_a_wrong_variable_is_refused_naming_it(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"environment: {name}"):
        from_environment({name: value})


def test_directives_of_a_script_are_a_layer() -> None:
    text = "#!/bin/bash\n#SBATCH --mem=2G -c 4\n#SBATCH -t 24:00\n#SBATCH -p gpu --nice=7 --constraint=x\ntrue\n"
    assert from_directives(check_script(text, "job.sh").directives, "job.sh") == Settings(
        memory=2 * GIB, cpus=4, time="24:00", partition="gpu", nice=7
    )


@pytest.mark.parametrize(
    "option", ["--mem=x", "--time=8h", "--cpus-per-task=four", "--cpus-per-task=0", "--mem=0", "--nice=low"]
)
def test_a_wrong_directive_is_refused_naming_its_line(option: str) -> None:
    name, _, value = option[2:].partition("=")
    with pytest.raises(ConfigError, match=r"job\.sh:3: `#SBATCH "):
        from_directives([Directive(3, name, value, f"#SBATCH {option}")], "job.sh")


def test_retries_after_a_kill_for_memory() -> None:
    assert from_table({"retry": {"oom": 2}}, "gpuq.toml").retry_oom == 2
    assert from_table({"retry": {"oom": 0}}, "run.toml", run=True).retry_oom == 0
    for value in (-1, 6, True, "2"):
        with pytest.raises(ConfigError, match=r"\[retry\] oom"):
            from_table({"retry": {"oom": value}}, "gpuq.toml")
