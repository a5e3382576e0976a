"""Settings: Kafka's names in typed tables, a broker's and a topic's values, and what clients may see and change.

Called by everything above. The tables are broker_settings.py, topic_config.py, group_settings.py and
client_metrics_settings.py; docs/configuration.md is written from them.
"""

from penstock.config.broker_config import BrokerConfig
from penstock.config.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from penstock.config.setting import Dynamic, Kind, Scope, Setting
from penstock.config.topic_config import TopicConfig
from penstock.config.validation import (
    SETTINGS,
    append_items,
    subtract_items,
    validate,
    validate_change,
)

__all__ = [
    "SETTINGS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "Dynamic",
    "Kind",
    "Scope",
    "Setting",
    "TopicConfig",
    "append_items",
    "describe_broker",
    "describe_client_metrics",
    "describe_cluster",
    "describe_group",
    "describe_topic",
    "subtract_items",
    "validate",
    "validate_change",
]
