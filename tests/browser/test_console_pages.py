"""Every page of the console in a real browser, on a live broker with traffic.

Screenshots are left in $PENSTOCK_SCREENSHOTS, where that is set.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

CHECKS = (Path(__file__).parent / "checks.js").read_text()
# What sticks out to the right and is not made to be scrolled sideways.
TOO_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .filter((one) => !one.closest(".scroll, .diff, pre, .tabs, .visually-hidden") && one.checkVisibility())
    .map((one) => one.tagName + "." + one.getAttribute("class"))"""
SHOTS = os.environ.get("PENSTOCK_SCREENSHOTS")

# An address, and something that is shown there only when the page has what it needs.
PAGES = {
    "overview": ("", "All partitions have a leader"),
    "brokers": ("/brokers", "Broker 1"),
    "broker": ("/brokers/1", "num.partitions"),
    "topics": ("/topics", "team.stream-000"),
    "topic": ("/topics/orders", "looked at"),
    "topic-hostile": ("/topics/hostile", "<b>key</b>"),
    "topic-partitions": ("/topics/orders/partitions", "4 of 4|1 of 1"),
    "topic-groups": ("/topics/orders/groups", "billing"),
    "topic-settings": ("/topics/orders/settings", "cleanup.policy"),
    "topic-charts": ("/topics/orders/charts", "Produced"),
    "groups": ("/groups", "billing"),
    "group": ("/groups/billing", "billing-1"),
    "schemas": ("/schemas", "payments-value"),
    "schema": ("/schemas/payments-value", "Its number."),
    "spark": ("/spark", "spark-large-orders"),
    "transactions": ("/transactions", "checkout"),
    "doctor": ("/doctor", "Not examined yet|Examined"),
}


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def assert_accessible(page: Page) -> None:
    wrong: list[str] = page.evaluate(CHECKS)
    assert wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_what_it_is_for_and_is_accessible(visit: Any, name: str, theme: str) -> None:
    path, sought = PAGES[name]
    page: Page = visit(path, theme=theme)
    expect(page.locator("main")).to_contain_text(re.compile(sought))
    expect(page.locator("nav#nav a[aria-current=page]")).to_have_count(1)
    assert page.title() != "owned"
    assert_accessible(page)
    shoot(page, f"{name}-{theme}")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_on_a_phone(visit: Any, name: str) -> None:
    path, sought = PAGES[name]
    page: Page = visit(path, width=375, height=740)
    expect(page.locator("main")).to_contain_text(re.compile(sought))
    wide: list[str] = page.evaluate(TOO_WIDE)
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(page, f"{name}-phone")
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def test_lists_are_searched_sorted_and_paged_and_the_address_knows_it(visit: Any) -> None:
    page: Page = visit("/topics")
    expect(page.get_by_role("status").filter(has_text="124 topics").first).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".pager")).to_contain_text("51–100 of 124")
    assert "page=2" in page.url
    page.reload()
    expect(page.locator(".pager")).to_contain_text("51–100 of 124")
    page.keyboard.press("/")
    page.keyboard.type("stream 01")
    expect(page.locator(".count")).to_contain_text("1")
    expect(page.locator("tbody tr").first).to_contain_text("team.stream-001")
    assert "search=stream" in page.url
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Messages").click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Messages")
    expect(page.locator("tbody tr").first).to_contain_text("orders")
    page.get_by_role("searchbox").fill("no such topic")
    expect(page.locator(".empty")).to_contain_text("No topic matches")
    page.go_back()
    page.go_back()
    assert "page=2" in page.url or page.url.endswith("/topics")


def test_a_topic_is_created_changed_and_deleted_by_keyboard_and_mouse(visit: Any) -> None:
    page: Page = visit("/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    assert_accessible(page)
    shoot(page, "dialog-create")
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Other settings").fill("retention.ms=3600000")
    page.keyboard.press("Tab")
    dialog.get_by_role("button", name="Create").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("made-here")
    expect(page.locator(".empty")).to_contain_text("The topic is empty")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("hello <b>there</b>")
    dialog.get_by_label("Headers").fill("a: b")
    shoot(page, "dialog-produce")
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("at offset 0")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("table.messages")).to_contain_text("hello <b>there</b>")
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Edit retention.ms", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value").fill("7200000")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("tr.own")).to_contain_text("2 h")
    page.get_by_role("button", name="Edit retention.ms", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value").fill("soon")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("something else")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(dialog).to_contain_text("not the same")
    dialog.get_by_role("textbox").fill("made-here")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    page.get_by_role("searchbox").fill("made-here")
    expect(page.locator(".empty")).to_contain_text("No topic matches")


def test_messages_open_are_searched_and_paged(visit: Any, site: Any) -> None:
    page: Page = visit("/topics/orders?from=oldest&partition=0&limit=20")
    expect(page.locator("table.messages tbody tr")).to_have_count(20)
    page.get_by_role("button", name="Message 0 of partition 0").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("12345678901234567890")
    expect(detail).to_contain_text("trace")
    assert_accessible(page)
    shoot(page, "message")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("button", name="Message 20 of partition 0")).to_be_visible()
    assert "cursor=" in page.url
    page.get_by_label("How to search").select_option("json")
    page.get_by_label("Search in messages").fill("$.customer.id == 3")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("table.messages tbody tr").first).to_contain_text('"id": 3')
    with page.expect_download() as downloading:
        page.get_by_label("Search in messages").fill("")
        page.get_by_label("How to search").select_option("text")
        page.get_by_role("button", name="CSV").click()
    assert downloading.value.suggested_filename == "orders.csv"


def test_hostile_records_stay_text_and_large_ones_are_loaded_on_request(visit: Any) -> None:
    page: Page = visit("/topics/hostile?from=oldest")
    for offset in range(3):
        page.get_by_role("button", name=f"Message {offset} of partition 0").click()
    expect(page.locator("tr.detail").first).to_contain_text("<script>document.title='owned'</script>")
    expect(page.locator("tr.detail").nth(1)).to_contain_text("ff 00 fe")
    assert page.locator("main script, main img, main b, main i:not([class])").count() == 0
    assert "owned" not in page.title()
    large = page.locator("tr.detail").nth(2)
    expect(large).to_contain_text("The first 2,000 characters")
    large.get_by_role("button", name="Load whole").click()
    expect(large.get_by_role("button", name="Load whole")).to_have_count(0)
    assert len(large.locator("pre").first.inner_text()) == 500_000


def test_decoded_values_say_by_which_schema(visit: Any) -> None:
    page: Page = visit("/topics/payments?from=oldest&partition=0")
    page.get_by_role("button", name="Message 0 of partition 0").click()
    expect(page.locator("tr.detail")).to_contain_text("Avro")
    expect(page.locator("tr.detail")).to_contain_text("schema 2")
    expect(page.locator("tr.detail pre").first).to_contain_text('"note": "thanks"')


def test_a_group_is_moved_only_after_its_plan_was_shown(visit: Any) -> None:
    page: Page = visit("/groups/spark-large-orders")
    expect(page.locator("main")).to_contain_text("A Spark query reads without joining")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Move").select_option("latest")
    dialog.get_by_role("button", name="Show what would change").click()
    expect(dialog).to_contain_text("Nothing has been changed yet")
    assert_accessible(page)
    shoot(page, "dialog-reset")
    dialog.get_by_label("Move").select_option("earliest")
    expect(dialog.get_by_role("button", name="Show what would change")).to_be_visible()
    dialog.get_by_role("button", name="Show what would change").click()
    dialog.get_by_role("button", name="Move the group").click()
    expect(page.locator("#toasts")).to_contain_text("4 partitions of spark-large-orders moved")


def test_versions_of_a_schema_stand_side_by_side_and_a_new_one_is_checked_first(visit: Any) -> None:
    page: Page = visit("/schemas/payments-value")
    expect(page.locator(".diff .come").first).to_be_visible()
    expect(page.locator(".diff")).to_contain_text('"note"')
    page.get_by_label("Compare").select_option("")
    expect(page.locator("pre.code")).to_contain_text("Payment")
    page.get_by_role("button", name="New version").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Schema").fill('{"type":"record","name":"Payment","fields":[{"name":"other","type":"int"}]}')
    dialog.get_by_role("button", name="Check").click()
    expect(dialog).to_contain_text("It does not get along with version 2")
    shoot(page, "dialog-schema")
    dialog.get_by_role("button", name="Cancel").click()


def test_charts_grow_while_one_looks_and_can_be_read_as_tables(visit: Any) -> None:
    page: Page = visit("")
    chart = page.locator("figure.chart").first
    expect(chart.locator("path.path").first).to_be_attached(timeout=40_000)
    chart.locator("summary").click()
    expect(chart.locator("tbody tr").nth(1)).to_be_attached(timeout=40_000)
    chart.locator("svg").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator("line.cross")).to_be_attached()
    assert re.search(r"Produced \d", chart.locator("svg").get_attribute("aria-label") or "")
    shoot(page, "overview-charts")


def test_the_doctor_examines(visit: Any) -> None:
    page: Page = visit("/doctor")
    page.get_by_role("button", name="Examine now").click()
    expect(page.locator("main")).to_contain_text("In order", timeout=40_000)
    assert_accessible(page)
    shoot(page, "doctor-report")


def test_the_theme_is_switched_and_remembered(visit: Any) -> None:
    page: Page = visit("")
    page.get_by_role("button", name="Switch to dark theme").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    page.locator("h1").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    expect(page.get_by_role("button", name="Switch to light theme")).to_be_visible()


def test_the_keyboard_reaches_everything_in_order(visit: Any) -> None:
    page: Page = visit("/groups")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.evaluate("document.querySelector('main h1').dataset.drawn = 'once'")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    # What is focused stays: the step to #main must not draw the page anew, whenever the browser tells of it.
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done)))")
    expect(page.locator("main h1[data-drawn=once]")).to_be_attached()
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.get_by_role("link", name="Topics", exact=True).press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.locator("main")).to_be_focused()
    expect(page.locator("#announce")).to_contain_text(re.compile("Topics|topics"))


def test_a_read_only_console_offers_no_changes(visit: Any, site: Any) -> None:
    site.services.console.is_readonly = True
    try:
        page: Page = visit("/topics/orders/settings")
        expect(page.locator("table.config")).to_contain_text("cleanup.policy")
        expect(page.locator("#where")).to_contain_text("Read-only")
        assert page.get_by_role("button", name=re.compile("Delete|Produce|Edit|Add|Empty|Create")).count() == 0
    finally:
        site.services.console.is_readonly = False
