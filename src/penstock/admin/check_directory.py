"""A data directory looked at from outside: who has it, how it was left, what was cut off, how full the disk is.

Called by admin.doctor. Reads only.
"""

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

from penstock.admin.finding import Report
from penstock.admin.text import render_size
from penstock.cluster.directory import LOCK_FILE
from penstock.log.directory import CLEAN_STOP, DAMAGED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX
from penstock.log.recovery import TORN_SUFFIX
from penstock.log.segment import LOG_SUFFIX

# As broker.py has it; importing all of a broker for a name would take longer than the rest of the command.
METADATA_FILE = "metadata.db"
FREE_BYTES_MIN = 1 << 30
FREE_FRACTION_MIN = 0.05


def check_directory(directory: Path, report: Report) -> int | None:
    """Adds to the report; gives the process that has the directory, if one has."""
    if not directory.is_dir():
        report.find(
            f"there is no directory {directory}",
            "A broker keeps its logs and its metadata there.",
            "Check --data-dir; the broker says where its data is when it starts.",
        )
        return None
    try:
        names = os.listdir(directory)
        holder = lock_holder(directory / LOCK_FILE)
        logs = [Path(found.path) for found in os.scandir(directory) if found.is_dir() and _has_segments(found.path)]
        torn = [path for log in logs for path in sorted(log.glob(f"*{TORN_SUFFIX}"))]
    except OSError as error:
        report.find(
            f"{error.filename} cannot be read: {error.strerror}",
            "A broker run by this user could not open its logs either.",
            "Run doctor as the user of the broker, or give that user the files.",
        )
        return None
    if holder is not None:
        report.sound.append(f"process {holder} has {directory}")
    elif CLEAN_STOP in names:
        report.sound.append(f"no process has {directory}; it was left by a clean stop")
    elif logs:
        report.notes.append(
            f"no process has {directory}, and no clean stop left it: the next start checks the ends of its logs"
        )
    if logs and METADATA_FILE not in names:
        report.notes.append(
            f"{directory} holds logs but no {METADATA_FILE}: right for a broker whose metadata is elsewhere "
            f"(penstock.metadata); another does not know these topics until {METADATA_FILE} is put back from a copy"
        )
    for name in sorted(name for name in names if name.endswith(STRAY_DIRECTORY_SUFFIX)):
        report.notes.append(f"{name} holds records of a topic that is gone; delete it when it is not needed")
    for name in sorted(name for name in names if name.endswith(DAMAGED_DIRECTORY_SUFFIX)):
        report.notes.append(
            f"{name} is a damaged replica that was made anew from the others; delete it when it is not needed"
        )
    for path in torn:
        report.find(
            f"{path.parent.name}: a recovery cut {render_size(path.stat().st_size)} off and kept them in {path.name}",
            "What was cut off was not whole, so not acknowledged with acks=all; acks=1 and 0 may have been lost.",
            f"`penstock log dump {path.parent}` shows the log as it is; delete the file when it is not needed.",
        )
    check_space(str(directory), *_space(directory), report)
    return holder


def check_space(where: str, free_bytes: int, total_bytes: int, report: Report) -> None:
    if free_bytes < FREE_BYTES_MIN or free_bytes < total_bytes * FREE_FRACTION_MIN:
        report.find(
            f"{where}: {render_size(free_bytes)} of {render_size(total_bytes)} are free",
            "When the disk is full, producers get errors and the logs that were being written go offline.",
            "Make room, or keep less: lower retention.ms or retention.bytes of the largest topics "
            "(`penstock topics list --size`).",
        )
    else:
        report.sound.append(f"{where}: {render_size(free_bytes)} free")


def lock_holder(path: Path) -> int | None:
    """The process that has the lock. The file names whoever had it last; only the kernel knows whether it still has."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        match = re.search(rb"pid (\d+)", file.read(64))
        try:
            # Had for some microseconds, if it is free: a broker that starts in just these would think it taken.
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(match[1]) if match else 0
    return None


def _has_segments(directory: str) -> bool:
    return any(name.endswith(LOG_SUFFIX) for name in os.listdir(directory))


def _space(directory: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(directory)
    return usage.free, usage.total
