"""Where traces go: which addresses are taken, and what is said where the packages are missing."""

import sys

import pytest

from penstock.clock import Rng, SystemClock
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.metrics import BrokerMetrics
from penstock.tracing import open_tracer
from penstock.tracing.exporting import traces_url


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace.export", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_without_the_packages_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    config = BrokerConfig({"penstock.tracing.endpoint": "http://127.0.0.1:4318"})
    clock = SystemClock()
    with pytest.raises(InvalidConfig, match=r'pip install "penstock\[tracing\]", or leave the endpoint empty'):
        open_tracer(config, clock, Rng(1), BrokerMetrics(clock))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("https://host/", "https://host/v1/traces"),
        ("http://[::1]:4318/tenant/v1/traces", "http://[::1]:4318/tenant/v1/traces"),
    ],
)
def test_a_path_is_taken_as_it_is_and_none_means_the_usual(endpoint: str, url: str) -> None:
    assert BrokerConfig({"penstock.tracing.endpoint": endpoint}).penstock_tracing_endpoint == endpoint
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint",
    [
        "host:4318",
        "grpc://host:4317",
        "http://",
        "http://host:0",
        "http://host:99999",
        "http://[::1",
        "http://host/?token=1",
        "http://ho st",
        "http://höst",
    ],
)
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidConfig, match="write it as http://host:4318"):
        BrokerConfig({"penstock.tracing.endpoint": endpoint})


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidConfig, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        BrokerConfig({"penstock.tracing.endpoint": "http://me:hunter2@host:4318"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("sample.ratio", "1.01"), ("sample.ratio", "-0.1"), ("sample.ratio", "nan"), ("service.name", "")],
)
def test_other_settings_out_of_range_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"penstock.tracing.{name}"):
        BrokerConfig({f"penstock.tracing.{name}": value})
