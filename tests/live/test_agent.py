"""An agent that dies in the middle of its work, and the next one that goes on from files alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import SOURCE, Project

AGENT = '''
"""Plays an agent: it knows the plan (a file) and gpuq, and remembers nothing."""
import json, subprocess, sys
from pathlib import Path

def gpuq(*args):
    done = subprocess.run([sys.executable, "-m", "gpuq", *args, "--json"], stdout=subprocess.PIPE, text=True)
    return done.returncode, json.loads(done.stdout)

plan = Path("ops/plan").read_text().split()
code, state = gpuq("status")
known = {run["tag"] for run in state["runs"]}
assert set(plan) <= known, state
# The rule of AGENTS.md: in doubt the same command with the same key. It completes what was cut off, and doubles nothing.
code, made = gpuq("chain", *plan[:-1], "--key", "night")
assert code == 0, made
code, made = gpuq("submit", plan[-1], "--after", plan[-2], "--key", "night")
assert code == 0, made
code, result = gpuq("wait", *plan)
Path("ops/report.json").write_text(json.dumps(result))
sys.exit(code)
'''


def start(project: Project) -> subprocess.Popen[bytes]:
    """An agent in a session of its own, as a terminal or a supervisor makes one."""
    return subprocess.Popen(
        [sys.executable, "ops/agent.py"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.one_release
def test_a_second_agent_goes_on_where_the_first_was_killed(slurm_shared: Embedded, project: Project) -> None:
    plan = ["a", "b", "c", "d", "e"]
    for tag in plan:
        project.run(
            tag, 'echo "$GPUQ_TAG" >> "$GPUQ_PROJECT/order"; sleep 0.3; echo "$GPUQ_TAG" >> "$GPUQ_PROJECT/ends"'
        )
    ops = project.root / "ops"
    ops.mkdir()
    (ops / "plan").write_text("\n".join(plan))
    (ops / "agent.py").write_text(AGENT)
    dice = random.Random(8)
    for _ in range(6):
        agent = start(project)
        time.sleep(dice.uniform(0.1, 1.0))  # not a wait: the moment of death is what is drawn
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
    agent = start(project)
    assert agent.wait(timeout=120) == 0
    report = Path(ops / "report.json").read_text()
    assert report.count("SUCCEEDED") == len(plan)
    for tag in plan:
        assert project.numbers(tag) == [1]
    assert (project.root / "order").read_text().split() == plan  # each once, and in order
    assert (project.root / "ends").read_text().split() == plan  # and none was taken down with an agent
