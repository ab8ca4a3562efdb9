"""Context files that describe a directory to agents, such as `AGENTS.md`."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from yarrow.prompt.safe_reader import SkippedFile, TextFile, read_text_file
from yarrow.prompt.session_directories import SessionDirectories, list_directories_down
from yarrow.prompt.untrusted import neutralize_tag

FILE_NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""File names in order of preference; the first non-empty file of each directory is read."""
MAX_CONTEXT_FILE_BYTES = 64 << 10
"""Maximum bytes of one file; a longer one is truncated with a note."""
MAX_CONTEXT_BYTES = 256 << 10
"""Maximum bytes of all files, in display order; the rest is truncated or omitted."""

TAG = "context_file"
_TAG_NAME = "contextfile"


class ContextFile(Struct, frozen=True):
    """Contents of one context file."""

    path: str
    """Path for display, with `~/` for the home directory."""
    text: str
    """Text of the file, with a note at the end if it is truncated."""

    def render(self) -> str:
        """Return the text between tags that name the path.

        Anything in the text that could pass for such a tag has its `<` replaced by `(`, so that no file can close its
        own tag.
        """
        # A directory may have any name, so replace quotes and angle brackets in the label.
        path = self.path.translate(str.maketrans({'"': "'", "<": "(", ">": ")"}))
        return f'<{TAG} path="{neutralize_tag(path, _TAG_NAME)}">\n{self._neutralize()}\n</{TAG}>'

    def _neutralize(self) -> str:
        # The file must not open or close the tags of untrusted text either: it could change how later text is read.
        return neutralize_tag(neutralize_tag(self.text, _TAG_NAME), "untrusted")


def read_context_files(directories: SessionDirectories) -> tuple[tuple[ContextFile, ...], tuple[str, ...]]:
    """Return the files from the user's directory and home down to the working directory, and warnings."""
    reader = _ContextFileReader(directories)
    return reader.read_all(), tuple(reader.warnings)


class _ContextFileReader:
    """Reads directories one by one and tracks the size limit."""

    def __init__(self, places: SessionDirectories) -> None:
        self.warnings: list[str] = []
        self._session_directories = places
        self._left = MAX_CONTEXT_BYTES
        self._known: set[tuple[int, int]] = set()

    def read_all(self) -> tuple[ContextFile, ...]:
        found = (
            self._read_first(directory, inside)
            for directory, inside in _list_context_directories(self._session_directories)
        )
        return tuple(file for file in found if file)

    def _read_first(self, directory: Path, inside: Path | None) -> ContextFile | None:
        for name in FILE_NAMES:
            path = self._session_directories.format_path(directory / name)
            most = min(MAX_CONTEXT_FILE_BYTES, self._left)
            match read_text_file(directory / name, most=most, inside=inside, directories=self._session_directories):
                case None:
                    continue
                case SkippedFile(why):
                    self.warnings.append(f"{path} {why}")
                case TextFile() as file if file.identity in self._known:
                    return None
                case TextFile() as file if file.text.strip() or file.is_cut:
                    self._known.add(file.identity)
                    return self._take(path, file)
                case TextFile():
                    continue
        return None

    def _take(self, path: str, file: TextFile) -> ContextFile | None:
        self._left -= file.read
        if not file.is_cut:
            return ContextFile(path, file.text.strip())
        if not file.read:
            self.warnings.append(f"{path} is not shown: all context files together may have {MAX_CONTEXT_BYTES} bytes")
            return None
        self.warnings.append(f"{path} is cut: {file.read} of its {file.size} bytes are shown")
        return ContextFile(path, f"{file.text.strip()}\n\n[cut here: {file.read} of {file.size} bytes are shown]")


def _list_context_directories(places: SessionDirectories) -> Iterator[tuple[Path, Path | None]]:
    """Yield each directory once, with the directory that its symlinks must stay in; None for no restriction.

    The user's own directory may link anywhere, a project within itself, and a directory between the two only within
    itself: it may be an archive from an untrusted source.
    """
    yield places.user_directory, None
    top = places.home if places.cwd.is_relative_to(places.home) else places.root
    for directory in list_directories_down(top, places.cwd):
        if directory == places.home:
            yield directory, None
        elif directory.is_relative_to(places.root):
            yield directory, places.root
        else:
            yield directory, directory
