"""A home directory with a repository below it, for tests of what prompts are made from."""

from pathlib import Path

from yarrow.prompt.resource_directories import SessionDirectories


class Project:
    """`home/code/project` is a repository; the working directory is `src/deep` in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.users = self.home / ".yarrow"
        self.root = self.home / "code" / "project"
        self.cwd = self.root / "src" / "deep"
        self.cwd.mkdir(parents=True)
        self.users.mkdir()
        (self.root / ".git").mkdir()

    def places(self) -> SessionDirectories:
        return SessionDirectories.make(home=self.home, user_directory=self.users, cwd=self.cwd)

    def write(self, path: Path, content: str | bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))
        return path

    def skill(self, folder: Path, description: str = "does it", *, body: str = "Body.") -> Path:
        return self.write(folder / "SKILL.md", f"---\nname: {folder.name}\ndescription: {description}\n---\n{body}\n")

    def template(self, name: str, content: str, directory: Path | None = None) -> Path:
        return self.write((directory or self.users) / "prompts" / f"{name}.md", content)
