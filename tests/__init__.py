"""The tests. `DATA` holds recorded answers and frozen files."""

from pathlib import Path

from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"

# A busy machine is no defect: no example of a property test is timed.
settings.register_profile("gpuq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuq")
