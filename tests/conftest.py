"""Settings shared by the whole suite."""

from hypothesis import HealthCheck, settings

# The same examples in every run, so that a red build can be repeated; no deadline, because
# the first call of a kernel compiles it and shared machines are slow at times.
settings.register_profile(
    "fieldslab",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fieldslab")
