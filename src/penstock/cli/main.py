"""The command `penstock`: sends `serve` and `gateway` straight to what they start, everything else to typer.

Called by the entry point in pyproject.toml and by `python -m penstock.cli.main`.
"""

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The fast way: typer, rich and the client library take as long to import as a broker takes to start.
    if given[:1] == ["serve"]:
        gc.disable()  # nothing of what is imported is garbage
        from penstock.cli import serve

        gc.enable()
        sys.exit(serve.main(given[1:]))
    if given[:1] == ["gateway"]:
        from penstock.cli import gateway

        sys.exit(gateway.main(given[1:]))

    from penstock.cli.app import app

    app(given, prog_name="penstock")


if __name__ == "__main__":
    main()
