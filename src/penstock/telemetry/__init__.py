"""What clients measure of themselves and push to the broker (KIP-714): asked for, taken in, kept for a while, shown.

Called by handlers.telemetry and broker, through reception. subscriptions: who is asked for what; instances: who may
push when; otlp: what a push says; values: what is kept of it for /metrics.
"""

from penstock.telemetry.instances import Client
from penstock.telemetry.reception import ACCEPTED_CODECS, Reception

__all__ = ["ACCEPTED_CODECS", "Client", "Reception"]
