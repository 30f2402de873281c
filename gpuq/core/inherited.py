"""What a program inherits from the job or the shell that it runs in, and what of it belongs to another job."""

from __future__ import annotations

from collections.abc import Mapping

_SCRUBBED = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "PMI", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_")
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Say which controller to talk to and as whom; everything else is another job's business."""


def scrub(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without the variables of an outer job (SLURM_*, SBATCH_*, SRUN_*, PMI* ...).

    They are options to sbatch (sbatch(1), "Input environment variables") and would be inherited by the job.
    """
    return {k: v for k, v in environment.items() if k in _KEPT or not k.startswith(_SCRUBBED)}
