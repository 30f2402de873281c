"""munge, slurmctld and slurmd: do they run, do they answer, and do they run with what is on disk now."""

from __future__ import annotations

import datetime

from gpuq.core.checks.check import Check, failure, ok, unknown, warning
from gpuq.core.checks.hostfacts import HostFacts

_SLACK = datetime.timedelta(seconds=2)
"""File times are finer than the start times of processes."""


def _munge(facts: HostFacts) -> list[Check]:
    process, key = facts.processes.get("munged"), facts.munge_key
    if not _wants_munge(facts):
        return []
    if process is None and facts.munge_error != "":
        text = "munge does not run; without it no Slurm command and no daemon can talk to another"
        return failure("munge", text, facts.munge_error or "", repair=_start(facts, "munged"))
    if process and key and key.modified and process.started and key.modified > process.started + _SLACK:
        text = "munge runs with an older key than the one on disk, so it and the others do not believe each other"
        return failure(
            "munge-key",
            text,
            f"{key.path} is of {_time(key.modified)}, munged (process {process.pid}) started {_time(process.started)}",
            repair=(facts.restart("munged"), facts.restart("slurmctld", "slurmd")),
        )
    said = facts.munge_error
    if said is None:
        return ok("munge", "munge runs") if process else unknown("munge", "munge could not be tried")
    if "rewound" in said.lower() or "expired credential" in said.lower():
        text = "the clock jumps: munge makes credentials that are from the past or the future"
        return failure("clock", text, said, repair=("timedatectl set-ntp true", facts.restart("munged")))
    if said:
        return failure("munge", "munge runs, but makes no credentials", said, repair=_start(facts, "munged"))
    return ok("munge", "munge makes credentials and reads them")


def _wants_munge(facts: HostFacts) -> bool:
    kind = facts.setting("AuthType") or "auth/munge"
    return "munge" in kind and (facts.slurm_conf.text is not None or "munged" in facts.processes)


def _key_file(facts: HostFacts) -> list[Check]:
    key = facts.munge_key
    if key is None or not _wants_munge(facts) or key.kind not in {"file", "missing"}:
        return []
    if key.missing:
        return failure(
            "munge-key",
            f"munge has no key: {key.path} is missing",
            repair=("mungekey --create", f"chown munge: {key.path}; chmod 400 {key.path}", facts.restart("munged")),
        )
    if key.mode & 0o077:
        return failure(
            "munge-key-mode",
            f"munge's key {key.path} can be read by others; munged refuses it at its next start",
            f"mode {key.mode:04o}, owner {key.owner}",
            repair=(f"chmod 400 {key.path}", facts.restart("munged")),
        )
    return []


def _no_conf(facts: HostFacts) -> list[Check]:
    if facts.slurm_conf.text is not None or facts.config is not None:
        return []
    return failure(
        "slurm-conf",
        f"there is no readable configuration: {facts.slurm_conf.path} {facts.slurm_conf.why}".rstrip(),
        facts.config_error,
        repair=("gpuq local up starts a Slurm of its own for this host",),
    )


def _controller(facts: HostFacts) -> list[Check]:
    return _daemon(facts, "slurmctld", facts.controller, "the queue stands still and no command is answered")


def _slurmd(facts: HostFacts) -> list[Check]:
    return _daemon(facts, "slurmd", facts.compute, "nothing starts on this host")


def _daemon(facts: HostFacts, name: str, here: bool, means: str) -> list[Check]:
    process = facts.processes.get(name)
    if process is not None:
        return ok(name, f"{name} runs (process {process.pid})")
    if not here:
        return []
    log = facts.logs.get(name)
    evidence = [line for line in (log.lines if log else ()) if "fatal:" in line][-1:]
    if not evidence and log is not None and not log.readable:
        evidence = [f"{log.path} may not be read by you; as root: gpuq doctor"]
    return failure(name, f"{name} does not run; {means}", *evidence, repair=(*_start(facts, name), facts.look(name)))


def _start(facts: HostFacts, name: str) -> tuple[str, ...]:
    if facts.embedded:
        return (f"gpuq local up --dir {facts.embedded}", "or let doctor do it: gpuq doctor --fix")
    return (facts.restart(name),)


def _answers(facts: HostFacts) -> list[Check]:
    if facts.config is not None:
        return ok("answers", f"slurmctld answers (Slurm {facts.config.get('SLURM_VERSION', facts.version)})")
    if facts.controller and "slurmctld" not in facts.processes:
        return []  # told above
    if facts.slurm_conf.text is None or facts.munge_error:
        return []  # told, too
    return failure(
        "answers",
        "slurmctld does not answer",
        facts.config_error,
        repair=("scontrol ping", facts.look("slurmctld")),
    )


def _newer_than_daemons(facts: HostFacts) -> list[Check]:
    if facts.embedded or not (facts.processes or facts.config):
        return []  # gpuq writes it while the daemons start
    stale = []
    if facts.config is not None and "Different" in facts.config.get("HASH_VAL", ""):
        stale.append(f"slurmctld runs with another slurm.conf: HASH_VAL={facts.config['HASH_VAL']}")
    process = facts.processes.get("slurmd")
    for file in (facts.gres_conf, facts.cgroup_conf):
        if process and process.started and file.modified and file.modified > process.started + _SLACK:
            stale.append(f"{file.path} is of {_time(file.modified)}, slurmd started {_time(process.started)}")
    if facts.config is None:
        process = facts.processes.get("slurmctld")
        file = facts.slurm_conf
        if process and process.started and file.modified and file.modified > process.started + _SLACK:
            stale.append(f"{file.path} is of {_time(file.modified)}, slurmctld started {_time(process.started)}")
    if not stale:
        return ok("conf-in-use", "the daemons run with the configuration that is on disk")
    return warning(
        "conf-in-use",
        "the configuration was changed and the daemons have not read it",
        *stale,
        repair=(
            "scontrol reconfigure",
            "nodes, ports and gres.conf need more: " + facts.restart("slurmctld", "slurmd"),
        ),
    )


def _planned(facts: HostFacts) -> list[Check]:
    here = {"slurm.conf": facts.slurm_conf, "gres.conf": facts.gres_conf, "cgroup.conf": facts.cgroup_conf}
    if not facts.planned or facts.embedded:
        return []
    differ = [name for name, text in facts.planned.items() if name in here and here[name].text != text]
    if not differ:
        return ok("planned-conf", f"the configuration is the one in {facts.planned_dir}")
    return warning(
        "planned-conf",
        f"{', '.join(differ)} of this host differ from {facts.planned_dir}",
        repair=tuple(f"diff -u {facts.planned_dir}/{name} {here[name].path}" for name in differ),
    )


def _time(moment: datetime.datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


CAUSES = (_munge, _key_file)
RULES = (_no_conf, _controller, _slurmd, _answers, _newer_than_daemons, _planned)
