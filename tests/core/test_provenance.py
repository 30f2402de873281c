"""What counts as code of a run."""

from __future__ import annotations

from gpuq.core.experiment.provenance import code_only


def test_what_gpuq_init_writes_for_people_is_no_code() -> None:
    init = ["gpuq.toml", "AGENTS.md", "CLAUDE.md", "ops/decisions.md", ".gitignore", ".claude/settings.json"]
    assert code_only([*init, "train.py", "prompts/AGENTS.md", ".venv/bin/activate"]) == [
        "train.py",
        "prompts/AGENTS.md",
    ]
