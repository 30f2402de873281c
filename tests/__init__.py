"""The tests. `DATA` holds recorded answers and frozen files."""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"

# A busy machine is no defect: no example of a property test is timed. Where CI is set the examples are the same each
# time: what a change breaks is told from what has long been so. Everywhere else they are drawn anew, and
# GPUQ_TEST_EXAMPLES says how many.
settings.register_profile(
    "gpuq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    max_examples=int(os.environ.get("GPUQ_TEST_EXAMPLES", "100")),
)
settings.load_profile("gpuq")
