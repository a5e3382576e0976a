"""One topic on the page: what it holds, its days and hours, where it goes, what it costs.

Called by report.page.
"""

from html import escape

from penstock.spark.report import wording
from penstock.spark.report.charts import Bar, bars_over_time, line_with_band
from penstock.spark.report.facts import DAY_MS, DeepFacts, Judged, Report
from penstock.spark.report.page_parts import bucket_chart, card, disk_points


def topic_details(one: Judged, report: Report) -> str:
    topic = one.topic
    has_bytes = any(bucket.bytes for bucket in topic.days)
    unit = "bytes" if has_bytes else "rows"
    cards = [_facts_card(one, report)]
    if any(bucket.rows for bucket in topic.days):
        cards.append(card(f"By day, {unit}", bucket_chart(topic.days, has_bytes)))
    if any(bucket.rows for bucket in topic.hours):
        cards.append(card(f"By hour, {unit}", bucket_chart(topic.hours, has_bytes, is_hourly=True)))
    if one.forecast is not None and one.forecast.disk_bytes:
        points = disk_points(topic.stored_bytes, one.forecast.disk_bytes, report.made_at_ms)
        cards.append(card("Disk, forecast", line_with_band(points, f"Disk of {topic.name}", wording.size)))
    if one.deep is not None:
        cards.append(_deep_card(one.deep))
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in one.notes)
    summary = f"{wording.size(topic.stored_bytes)}, {wording.count(topic.rows)} rows"
    return (
        f"<details><summary>{escape(topic.name)}<small>{escape(summary)}</small></summary>{notes}"
        f'<div class="cards">{"".join(cards)}</div></details>'
    )


def _facts_card(one: Judged, report: Report) -> str:
    topic = one.topic
    facts = [
        ("Partitions", wording.whole(topic.partitions)),
        ("Copies on disk", wording.UNKNOWN if topic.replicas is None else f"{topic.replicas:.1f}"),
        ("Rows kept", wording.whole(topic.rows)),
        ("Bytes, one copy", wording.size(topic.bytes)),
        ("Bytes, all copies", wording.size(topic.stored_bytes)),
        ("Bytes a row", wording.size(topic.bytes / topic.rows) if topic.bytes and topic.rows else wording.UNKNOWN),
        ("Oldest record", wording.UNKNOWN if topic.oldest_ms is None else wording.minute(topic.oldest_ms)),
        ("Kept for", _kept_for(one)),
    ]
    if one.forecast is not None:
        needed = f"{one.forecast.partitions_needed}, at most {one.forecast.partitions_needed_at_most}"
        facts.append((f"Partitions needed in {report.horizon_days} days", f"{needed} (has {topic.partitions})"))
    if one.cost is not None:
        facts += [
            ("Cost a month", wording.money(one.cost.total, report.currency)),
            ("… storage", wording.money(one.cost.storage, report.currency)),
            ("… incoming", wording.money(one.cost.incoming, report.currency)),
            ("… outgoing", wording.money(one.cost.outgoing, report.currency)),
            ("… partitions", wording.money(one.cost.partitions, report.currency)),
        ]
    return f'<div class="card">{_list(facts)}</div>'


def _kept_for(one: Judged) -> str:
    settings = one.topic.settings
    if settings.cleanup_policy is None:
        return wording.UNKNOWN
    limits = [f"{settings.retention_ms / DAY_MS:g} days"] if settings.retention_ms is not None else []
    limits += [f"{wording.size(settings.retention_bytes)} a partition"] if settings.retention_bytes is not None else []
    kept = " or ".join(limits) if settings.deletes and limits else "ever"
    return f"{kept}, compacted" if settings.is_compacted else kept


def _deep_card(deep: DeepFacts) -> str:
    facts = [
        ("Records read", wording.whole(deep.rows)),
        ("Different keys, about", wording.whole(deep.keys_about)),
        ("Without a key", wording.share(deep.null_keys, deep.rows)),
        ("Without a value", wording.share(deep.null_values, deep.rows)),
        ("Value, mean", wording.size(deep.value_bytes_mean)),
        (
            "Uncompressed over disk",
            wording.UNKNOWN if deep.compression_ratio is None else f"{deep.compression_ratio:.2f}",
        ),
    ]
    bars = [
        Bar(name, float(value), f"{name}: {wording.size(value)}")
        for name, value in deep.value_bytes_percentiles.items()
    ]
    chart = bars_over_time(bars, "Size of values by percentile", wording.size)
    return f'<div class="card"><h3>Every record read</h3>{_list(facts)}{chart}</div>'


def _list(facts: list[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in facts)}</dl>"
