"""The file that says whose log a directory holds: read back as written, and never believed when damaged."""

from pathlib import Path

from tests.unit.log.making import TOPIC_ID

from penstock.disk import RealDisk
from penstock.log.topic_id import TOPIC_ID_FILE, read_topic_id, write_topic_id


def test_a_directory_says_which_topic_it_belongs_to(tmp_path: Path) -> None:
    assert read_topic_id(RealDisk(), tmp_path) is None
    write_topic_id(RealDisk(), tmp_path, TOPIC_ID)
    assert read_topic_id(RealDisk(), tmp_path) == TOPIC_ID
    assert f"topic_id: {TOPIC_ID}" in (tmp_path / TOPIC_ID_FILE).read_text()


def test_a_damaged_topic_id_is_not_taken_for_another_topic(tmp_path: Path) -> None:
    write_topic_id(RealDisk(), tmp_path, TOPIC_ID)
    content = (tmp_path / TOPIC_ID_FILE).read_bytes()
    for bit in range(len(content) * 8):
        damaged_content = bytearray(content)
        damaged_content[bit // 8] ^= 1 << bit % 8
        (tmp_path / TOPIC_ID_FILE).write_bytes(damaged_content)
        assert read_topic_id(RealDisk(), tmp_path) is None
    (tmp_path / TOPIC_ID_FILE).write_bytes(b"\0" * len(content))
    assert read_topic_id(RealDisk(), tmp_path) is None
