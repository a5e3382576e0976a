"""Which versions of etcd read what they should.

Called by etcd_client, which warns once of one that does not. From the versions named here on, a read is linearizable
also when a member was stopped and goes on.
"""

import re

SOUND_VERSIONS = {(3, 4): 42, (3, 5): 28, (3, 6): 9}
WHY_UNSOUND = (
    "a member that was stopped for a while can answer reads with old state. Nothing is lost by it, since every change "
    f"compares first; it is mended in {', '.join(f'{x}.{y}.{patch}' for (x, y), patch in SOUND_VERSIONS.items())}."
)


def is_sound(version: str) -> bool:
    """Whether reads of this version can be trusted. One that cannot be read as a version is left alone."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return True
    major, minor, patch = map(int, found.groups())
    if (major, minor) > max(SOUND_VERSIONS):
        return True
    return patch >= SOUND_VERSIONS.get((major, minor), patch + 1)
