"""Metrics: what a broker counts and times, and the page it shows them on.

Called by everything above: parts hold counters and histograms, broker.py makes them, the HTTP listener renders them.
"""

from penstock.metrics.broker_metrics import BrokerMetrics
from penstock.metrics.registry import Counter, Family, Gauge, Gauges, Histogram, Registry

__all__ = ["BrokerMetrics", "Counter", "Family", "Gauge", "Gauges", "Histogram", "Registry"]
