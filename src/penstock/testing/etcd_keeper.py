"""An etcd of three members that ends with whoever asked for it, however that one ends.

Run by `penstock cluster up --metadata etcd` as a process of its own, `python -m penstock.testing.etcd_keeper`, with one
end of a socket whose other end the asker holds: a JSON line there says where etcd is, or why it is not; when the
other end is gone, so is etcd.
"""

import json
import signal
import socket
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.testing.etcd import EtcdCluster


def main(number: int, directory: Path) -> int:
    held = socket.socket(fileno=number)
    # Who asked for it decides when it ends; signals meant for a whole group of processes do not.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    cluster = EtcdCluster(directory)
    try:
        cluster.start()
    except (PenstockError, OSError) as error:
        _tell(held, {"error": str(error)})
        return 1
    try:
        _tell(held, {"url": cluster.url})
        held.recv(1)
    except OSError:
        pass  # gone as well
    finally:
        cluster.stop()
    return 0


def _tell(held: socket.socket, document: dict[str, str]) -> None:
    held.sendall(json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
