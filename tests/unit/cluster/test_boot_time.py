"""The host's own clock and boot."""

from penstock.cluster.boot_time import SystemBootTime


def test_every_process_of_a_boot_agrees_on_its_id_and_time_goes_on():
    first, second = SystemBootTime(), SystemBootTime()
    assert first.boot_id
    assert first.boot_id == second.boot_id
    assert first.now_ms() <= second.now_ms()
