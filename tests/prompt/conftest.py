"""A home directory with a repository, for the tests of prompts."""

from pathlib import Path

import pytest
from project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
