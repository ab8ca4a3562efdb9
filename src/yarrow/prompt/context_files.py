"""Finds and reads the files in which people tell agents about a directory, such as `AGENTS.md`."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from yarrow.prompt.places import Places, down
from yarrow.prompt.reading import Skipped, TextFile, read_text
from yarrow.prompt.untrusted import without_tag

NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Of each directory the first that says something is read."""
FILE_BYTES = 64 << 10
"""Of one file; what is over is cut, and said so in the text."""
ALL_BYTES = 256 << 10
"""Of all files, in the order they are shown in; what is over is cut or not shown at all."""

TAG = "context_file"
_TAG_NAME = "contextfile"


class ContextFile(Struct, frozen=True):
    """What one file says."""

    path: str
    """As people read it, with `~/` for home."""
    text: str
    """With a note at the end when the file is longer."""

    def rendered(self) -> str:
        """Return the text between tags that name the path.

        Whatever a reader could take for such a tag within them has a `(` for its `<`, so that no file ends its own.
        """
        # The quotes and brackets of the label are ours; a directory can have any name.
        path = self.path.translate(str.maketrans({'"': "'", "<": "(", ">": ")"}))
        return f'<{TAG} path="{without_tag(path, _TAG_NAME)}">\n{self._inert()}\n</{TAG}>'

    def _inert(self) -> str:
        # Nor may a file open or close the tags that mark untrusted text: what follows it would read as that.
        return without_tag(without_tag(self.text, _TAG_NAME), "untrusted")


def read_context_files(places: Places) -> tuple[tuple[ContextFile, ...], tuple[str, ...]]:
    """Return the files from the user's directory and home down to the working directory, and what was left out."""
    reader = _Reader(places)
    return reader.files(), tuple(reader.warnings)


class _Reader:
    """Reads one directory after the other and keeps count."""

    def __init__(self, places: Places) -> None:
        self.warnings: list[str] = []
        self._places = places
        self._left = ALL_BYTES
        self._known: set[tuple[int, int]] = set()

    def files(self) -> tuple[ContextFile, ...]:
        found = (self._first(directory, inside) for directory, inside in _directories(self._places))
        return tuple(file for file in found if file)

    def _first(self, directory: Path, inside: Path | None) -> ContextFile | None:
        for name in NAMES:
            path = self._places.shown(directory / name)
            most = min(FILE_BYTES, self._left)
            match read_text(directory / name, most=most, inside=inside, places=self._places):
                case None:
                    continue
                case Skipped(why):
                    self.warnings.append(f"{path} {why}")
                case TextFile() as file if file.identity in self._known:
                    return None
                case TextFile() as file if file.text.strip() or file.cut:
                    self._known.add(file.identity)
                    return self._taken(path, file)
                case TextFile():
                    continue
        return None

    def _taken(self, path: str, file: TextFile) -> ContextFile | None:
        self._left -= file.read
        if not file.cut:
            return ContextFile(path, file.text.strip())
        if not file.read:
            self.warnings.append(f"{path} is not shown: all context files together may have {ALL_BYTES} bytes")
            return None
        self.warnings.append(f"{path} is cut: {file.read} of its {file.size} bytes are shown")
        return ContextFile(path, f"{file.text.strip()}\n\n[cut here: {file.read} of {file.size} bytes are shown]")


def _directories(places: Places) -> Iterator[tuple[Path, Path | None]]:
    """Yield each directory once, with the directory that a link in it must not leave; None is anywhere.

    The user's own may link to anything, a project within itself, and what lies between the two only within its
    directory: it may be an archive from anywhere.
    """
    yield places.users, None
    top = places.home if places.cwd.is_relative_to(places.home) else places.root
    for directory in down(top, places.cwd):
        if directory == places.home:
            yield directory, None
        elif directory.is_relative_to(places.root):
            yield directory, places.root
        else:
            yield directory, directory
