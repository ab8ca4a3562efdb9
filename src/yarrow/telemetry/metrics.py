"""The instruments: how long model calls take, what tokens they cost, how runs end, what slow readers lose."""

from opentelemetry.metrics import Meter

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Bounds of the buckets, as the GenAI conventions advise."""


class Metrics:
    """One of each for a service."""

    def __init__(self, meter: Meter) -> None:
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Of one model call.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Of one model call, by gen_ai.token.type.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self.runs = meter.create_counter("yarrow.runs", unit="{run}", description="That ended, by how.")
        self.dropped = meter.create_counter(
            "yarrow.events.dropped", unit="{event}", description="That slow subscribers were told they lost."
        )
