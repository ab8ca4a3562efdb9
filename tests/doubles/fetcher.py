"""A stand-in for uv and pip: handles their arguments with a prepared wheel as $FETCHER says."""

import os
import sys
import time
import zipfile
from pathlib import Path


def main() -> None:
    arguments = sys.argv[1:]
    with Path(os.environ["FETCHER_LOG"]).open("a") as log:
        log.write(" ".join(arguments) + f" pid={os.getpid()}\n")
    wheel = Path(os.environ["FETCHER_WHEEL"])
    folder = Path(arguments[arguments.index("--target" if "--target" in arguments else "--dest") + 1])
    folder.mkdir(exist_ok=True)
    match os.environ["FETCHER"]:
        case "offline":
            sys.exit("warning: retrying\nerror: no route to the index")
        case "silent":
            sys.exit(7)
        case "slow":
            (folder / "part").write_bytes(b"x" * 1000)
            time.sleep(600)
        case "half":
            (folder / wheel.name).write_bytes(wheel.read_bytes()[:-40])
        case _ if "--target" in arguments:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        case _:
            (folder / wheel.name).write_bytes(wheel.read_bytes())


if __name__ == "__main__":
    main()
