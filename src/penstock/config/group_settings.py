"""Settings a group may have of its own: the table. Only groups of the consumer protocol read them, and only their own.

Called by validate() and describe_group(); made by BrokerConfig.group(), which puts a group's values over the broker's.
"""

from dataclasses import dataclass
from functools import partial

from penstock.config import setting
from penstock.config.setting import Scope

_honoured_integer = partial(setting.integer, scope=Scope.GROUP)
_integer = partial(setting.integer, scope=Scope.GROUP, honoured=False)
_choice = partial(setting.choice, scope=Scope.GROUP, honoured=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    # A row reads as name, default, meaning, limits; one argument a line would hide the table.
    # fmt: off
    consumer_session_timeout_ms: int = _honoured_integer(
        "consumer.session.timeout.ms", 45_000, "How long a member of the consumer protocol may be silent.", low=1,
        broker_names=(("group.consumer.session.timeout.ms", 1),))
    consumer_heartbeat_interval_ms: int = _honoured_integer(
        "consumer.heartbeat.interval.ms", 5_000, "How often a member of the consumer protocol reports.", low=1,
        broker_names=(("group.consumer.heartbeat.interval.ms", 1),))
    consumer_assignment_interval_ms: int = _integer(
        "consumer.assignment.interval.ms", 1_000, "How long apart two assignments of a group are at least.", low=0)
    share_session_timeout_ms: int = _integer(
        "share.session.timeout.ms", 45_000, "How long a member of a share group may be silent.", low=1)
    share_heartbeat_interval_ms: int = _integer(
        "share.heartbeat.interval.ms", 5_000, "How often a member of a share group reports.", low=1)
    share_record_lock_duration_ms: int = _integer(
        "share.record.lock.duration.ms", 30_000, "How long a delivered record is locked for its consumer.", low=1_000)
    share_auto_offset_reset: str = _choice(
        "share.auto.offset.reset", "latest", ("latest", "earliest"), "Where a new share group starts.")
    streams_session_timeout_ms: int = _integer(
        "streams.session.timeout.ms", 45_000, "How long a member of a streams group may be silent.", low=1)
    streams_heartbeat_interval_ms: int = _integer(
        "streams.heartbeat.interval.ms", 5_000, "How often a member of a streams group reports.", low=1)
    # fmt: on


GROUP_SETTINGS = setting.settings_of(GroupSettings)
