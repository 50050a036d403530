"""Asking SLURM to begin a preempted job again."""

import subprocess

TIMEOUT = 60


def requeue(job: str) -> None:
    """Put a job back into the queue; RuntimeError, with SLURM's reason, where that fails."""
    asked = ["scontrol", "requeue", job]
    try:
        subprocess.run(asked, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise RuntimeError(f"{' '.join(asked)} failed: {reason}") from error
