"""The report as one HTML page: totals, charts, a table, each topic in detail, and how the numbers were made.

Called by cli.report. The page asks nobody for anything: style and drawings are inside, a policy in its head forbids
the rest. Whatever comes from the cluster (names of topics) is escaped.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from penstock.spark.report import wording
from penstock.spark.report.charts import Bar, bars_by_name, line_with_band
from penstock.spark.report.facts import Judged, Report
from penstock.spark.report.page_parts import bucket_chart, card, disk_points
from penstock.spark.report.page_topic import topic_details
from penstock.spark.report.totals import Totals, add_up

STYLE = Path(__file__).with_name("style.css")
NAMED_MAX = 12
DETAILED_MAX = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_page(report: Report) -> str:
    totals = add_up(report)
    ordered = sorted(report.topics, key=lambda one: (-(one.topic.stored_bytes or 0), -one.topic.rows, one.topic.name))
    parts = [
        _head(report),
        f"<h1>Topics of {escape(report.bootstrap)}</h1>",
        f'<p class="soft">Made {wording.minute(report.made_at_ms)} by <code>penstock report</code>. Days are UTC; '
        "sizes are decimal (1 GB = 10<sup>9</sup> bytes); rows are offsets.</p>",
        _tiles(report, totals),
        _overview(report, totals, ordered),
        "<h2>All topics</h2>",
        _table(report, totals, ordered),
        "<h2>Each topic</h2>",
        *(topic_details(one, report) for one in ordered[:DETAILED_MAX]),
        _left_out(ordered),
        _method(report),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _head(report: Report) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Topics of {escape(report.bootstrap)}</title>"
        # No icon: otherwise a browser would ask for one.
        f'<link rel="icon" href="data:,"><style>{STYLE.read_text()}</style></head><body><main>'
    )


def _tiles(report: Report, totals: Totals) -> str:
    tiles = [
        (wording.whole(len(report.topics)), "topics"),
        (wording.whole(totals.partitions), "partitions"),
        (wording.count(totals.rows), "rows kept"),
        (wording.size(totals.stored_bytes), "on disk, replicas included"),
        (wording.size(totals.incoming_bytes_a_day), "incoming a day"),
    ]
    if report.currency is not None:
        tiles.append((wording.money(totals.cost, report.currency), "a month"))
    if totals.disk:
        tiles.append((wording.size(totals.disk[-1].likely), f"on disk in {report.horizon_days} days, likely"))
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _overview(report: Report, totals: Totals, ordered: Sequence[Judged]) -> str:
    largest = [
        Bar(one.topic.name, float(one.topic.stored_bytes or 0), wording.size(one.topic.stored_bytes))
        for one in ordered[:NAMED_MAX]
        if one.topic.stored_bytes
    ]
    cards = [card("On disk by topic", bars_by_name(largest, "Bytes on disk by topic"))]
    has_bytes = any(bucket.bytes for bucket in totals.days)
    cards.append(card(f"Incoming by day, {'bytes' if has_bytes else 'rows'}", bucket_chart(totals.days, has_bytes)))
    if totals.disk:
        points = disk_points(totals.stored_bytes, totals.disk, report.made_at_ms)
        cards.append(card("Disk, forecast", line_with_band(points, "Bytes on disk, forecast", wording.size)))
    if report.currency is not None:
        priced = sorted(ordered, key=lambda one: -(one.cost.total if one.cost else 0))[:NAMED_MAX]
        bars = [
            Bar(one.topic.name, one.cost.total, wording.money(one.cost.total, report.currency))
            for one in priced
            if one.cost is not None and one.cost.total > 0
        ]
        cards.append(card("Cost a month by topic", bars_by_name(bars, "Cost a month by topic")))
    return f'<div class="cards">{"".join(cards)}</div>'


def _table(report: Report, totals: Totals, ordered: Iterable[Judged]) -> str:
    names = ["Topic", "Partitions", "Rows", "On disk", "Rows a day", "In a day", "Growth a day"]
    names += [f"Disk in {report.horizon_days} d"] + (["A month"] if report.currency is not None else [])
    rows: list[str] = []
    for one in ordered:
        disk = one.forecast.disk_bytes[-1].likely if one.forecast and one.forecast.disk_bytes else None
        cells = [
            wording.whole(one.topic.partitions),
            wording.whole(one.topic.rows),
            wording.size(one.topic.stored_bytes),
            wording.count(one.incoming_rows_a_day),
            wording.size(one.incoming_bytes_a_day),
            wording.signed_size(one.trend.slope if one.trend else None),
            wording.size(disk),
        ]
        if report.currency is not None:
            cells.append(wording.money(one.cost.total if one.cost else None, report.currency))
        rows.append(_row(one.topic.name, cells))
    sums = [wording.whole(totals.partitions), wording.whole(totals.rows), wording.size(totals.stored_bytes)]
    sums += [wording.count(totals.incoming_rows_a_day), wording.size(totals.incoming_bytes_a_day), ""]
    sums += [wording.size(totals.disk[-1].likely if totals.disk else None)]
    sums += [wording.money(totals.cost, report.currency)] if report.currency is not None else []
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'
        f"<tfoot>{_row('Together', sums)}</tfoot></table></div>"
    )


def _row(name: str, cells: Iterable[str]) -> str:
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _left_out(ordered: Sequence[Judged]) -> str:
    left = len(ordered) - DETAILED_MAX
    return f'<p class="soft">{left} smaller topics are in the table only.</p>' if left > 0 else ""


def _method(report: Report) -> str:
    told = [
        "Rows of a day are offsets: where the log stood at the end of it minus where it stood at its beginning, asked "
        "by timestamp. Nothing was read. Markers of transactions and records that compaction removed are in the count.",
        "Bytes of a day are its rows times the mean size of a row of the same partition on disk, so compression counts "
        "as it is. The last, pale bar is today; a pale first bar is a day whose beginning retention has removed.",
        "“A day” is the mean of the last seven complete days. Growth is the slope of a straight line (least squares) "
        "through all complete days: how many bytes a day more come in each day than the day before.",
        "The forecast lets that line go on, and lets retention remove what came in that long before. The band holds 95 "
        "of 100 cases if days keep varying as they did (Student's t); bounds of days are added up, so it is rather too "
        "wide. It knows no weekends, no plans and no limits of a machine. Segments go as a whole, which it ignores.",
        "Partitions needed: the forecast day's bytes, in its busiest hour, over what one partition should carry.",
    ]
    if report.currency is not None:
        told.append(
            "Cost is of 30 days at the prices given. Who reads is not in the log: the price file's fan_out says."
        )
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*told, *report.notes))
    return f'<footer><h2>How these numbers were made</h2><ul class="soft">{notes}</ul></footer>'
