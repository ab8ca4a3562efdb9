"""Export and import: what leaves is self-contained and whole, what arrives is a stranger's (cases S-01, S-03)."""

import gzip
import hashlib
import json
import resource
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_samples import NOW, header, message, messages, names, nasty_text, patient, texts, write_session

from yarrow.errors import InvalidArgument, LimitExceeded, StorageError
from yarrow.message import Image, Message, Role, Text, Thinking, ToolCall
from yarrow.session import export_import
from yarrow.session.export_import import ImportSpool, export_lines
from yarrow.session.line_codec import UnknownRecord, encode_line, seal
from yarrow.session.record import Compaction, Header, Record
from yarrow.session.session_file_reader import StoredSession, load_session

SECRET = 'hunter2-"quoted"-ключ'
COMPACTION = Compaction(
    timestamp=NOW, summary="s", first_kept_message_id="", tokens_before=9, tokens_after=1, reason="auto"
)


def exported(path: Path, *, secrets: Iterable[str] = ()) -> bytes:
    return b"".join(export_lines(load_session(path), lambda _: None, secrets=list(secrets)))


def imported(directory: Path, *chunks: bytes) -> tuple[StoredSession, list[bytes]]:
    with ImportSpool(directory) as incoming:
        for chunk in chunks:
            incoming.feed(chunk)
        loaded = incoming.finish()
        return loaded, list(loaded.read_raw_lines())


def refusal(directory: Path, *chunks: bytes) -> str:
    with pytest.raises(InvalidArgument) as caught:
        imported(directory, *chunks)
    assert names(directory) == []
    return caught.value.message


def only_line(line: bytes) -> dict[str, object]:
    return json.loads(line)


def test_an_export_is_the_file_line_by_line(tmp_path: Path) -> None:
    future = b'{"kind":"future","x":[1.50,"\\u00e4"]}'
    more = seal(encode_line(message("two"))[:-1].replace(b'"role"', b'"mood":"good","role"').rpartition(b",")[0] + b"}")
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"), COMPACTION, tail=future + b"\n" + more)
    assert exported(path) == path.read_bytes()


def test_an_export_keeps_unknown_header_fields(tmp_path: Path) -> None:
    line = encode_line(header()).replace(b'"version"', b'"colour":"red","version"').rpartition(b",")[0] + b"}\n"
    path = write_session(tmp_path / "s1.jsonl", tail=line + encode_line(message("one")))
    assert exported(path) == path.read_bytes()


def test_an_export_omits_unreadable_lines_and_has_a_header(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", message("one"), tail=b"bad\n" + encode_line(header(name="late"))[:-9])
    first, second = exported(path).splitlines()
    assert (only_line(first)["kind"], only_line(first)["id"]) == ("header", "s1")
    assert second + b"\n" == encode_line(load_session(path).records[0].value)  # type: ignore[arg-type]


def test_an_export_starts_with_the_header(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", COMPACTION, header(name="found"), message("one"))
    assert [only_line(line)["kind"] for line in exported(path).splitlines()] == ["header", "compaction", "message"]


def test_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"))
    loaded = load_session(path)
    path.unlink()
    with pytest.raises(StorageError, match=r"cannot read .*s1\.jsonl"):
        list(export_lines(loaded, lambda _: None))


def test_a_shrunk_file_is_an_error_without_a_partial_line(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"))
    loaded = load_session(path)
    with path.open("r+b") as stream:
        stream.truncate(loaded.size - 5)
    with pytest.raises(StorageError, match="was truncated"):
        list(export_lines(loaded, lambda _: None))


def test_blobs_are_inlined_into_their_blocks(tmp_path: Path) -> None:
    contents = {hashlib.sha256(data).hexdigest(): data for data in ("ä\u2028".encode(), b"\x89PNG")}
    text, image = contents
    missing = "f" * 64
    line = b'{"kind":"message","id":"m","role":"tool","timestamp":"%b","content":[%b]}' % (
        NOW.encode(),
        b",".join(
            b'{"type":"%b","%b":"","blob":"%b","mediaType":"image/png"}' % parts
            for parts in (
                (b"text", b"text", text.encode()),
                (b"image", b"data", image.encode()),
                (b"text", b"text", missing.encode()),
            )
        ),
    )
    path = write_session(tmp_path / "s1.jsonl", header(), tail=seal(line))
    asked: list[str] = []

    def blob(digest: str) -> bytes | None:
        asked.append(digest)
        return contents.get(digest)

    arrived = imported(tmp_path, *export_lines(load_session(path), blob))[0]
    value = arrived.records[0].value
    assert isinstance(value, Message)
    note = f"[This block was a text whose content is missing or damaged, blob {missing}.]"
    assert value.content == (Text("ä\u2028"), Image("image/png", "iVBORw=="), Text(note))
    assert asked == [text, image, missing]
    assert arrived.report.warnings() == (f"A block on line 2 {note[12:-2]}.",)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "F" * 64, "f" * 63, "f" * 64 + "\n", ""])
def test_an_invalid_digest_is_never_opened(tmp_path: Path, digest: str) -> None:
    line = json.dumps({"kind": "message", "id": "m", "role": "user", "timestamp": NOW, "content": [{"blob": digest}]})
    path = write_session(tmp_path / "s1.jsonl", header(), tail=line.encode() + b"\n")
    loaded = load_session(path)
    assert list(export_lines(loaded, pytest.fail))[1] == line.encode() + b"\n"


def test_secrets_are_redacted_and_checksums_stay_valid(tmp_path: Path) -> None:
    call = ToolCall("c", "bash", json.dumps({"command": f"echo {SECRET}"}))
    records: list[Record] = [
        header(name=f"with {SECRET}"),
        message(f"key: {SECRET}!"),
        Message(id="m", role=Role.ASSISTANT, content=(Thinking(SECRET, "signature"), call), timestamp=NOW),
        message("harmless"),
        message(json.dumps(SECRET, ensure_ascii=False)),
    ]
    unknown = json.dumps({"kind": "future", SECRET: {"deep": ["a", SECRET, 12345678901234567890]}}).encode()
    path = write_session(tmp_path / "s1.jsonl", *records, tail=unknown + b"\n")
    told = exported(path, secrets=[SECRET, ""])
    for spelling in (SECRET, json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1], "hunter2"):
        assert spelling.encode() not in told
    assert all(line.count(b'"crc32"') == 1 for line in told.splitlines())
    arrived = imported(tmp_path, told)[0]
    assert (arrived.header.name, arrived.report.warnings()) == ("with [redacted]", ())
    said, thought, harmless, quoted, future = (stored.value for stored in arrived.records)
    assert isinstance(said, Message)
    assert isinstance(thought, Message)
    assert said.text == "key: [redacted]!"
    assert thought.content == (Thinking("[redacted]"), ToolCall("c", "bash", '{"command": "echo [redacted]"}'))
    assert harmless == records[3]
    assert isinstance(quoted, Message)
    assert quoted.text == '"[redacted]"'
    assert future == UnknownRecord("future")
    assert b'{"deep":["a","[redacted]",12345678901234567890]}' in told


@pytest.mark.parametrize("word", ["message", "assistant", "text", "auto", "end_turn", "image/png", "thinking", "high"])
def test_a_secret_equal_to_a_format_keyword_loses_no_record(tmp_path: Path, word: str) -> None:
    said = Message(id="m", role=Role.ASSISTANT, content=(Text("x"), Image("image/png", "AA==")), timestamp=NOW)
    path = write_session(tmp_path / "s1.jsonl", header(), said, COMPACTION)
    arrived = imported(tmp_path, exported(path, secrets=[word]))[0]
    assert [type(stored.value) for stored in arrived.records] == [Message, Compaction]


@pytest.mark.parametrize("depth", [300, 900, 50_000])
def test_a_secret_nested_in_an_unknown_record(tmp_path: Path, depth: int) -> None:
    line = b'{"kind":"future","x":%b"hunter2"%b}' % (b"[" * depth, b"]" * depth)
    path = write_session(tmp_path / "s1.jsonl", header(), tail=seal(line) + line + b"\n")
    told = exported(path, secrets=["hunter2"])
    assert b"hunter2" not in told
    assert len(imported(tmp_path, told)[0].records) == len(load_session(path).records)


def test_each_line_of_a_multiline_secret_is_a_secret(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nQIDAQABAoIBAQ==\n"
    path = write_session(tmp_path / "s1.jsonl", header(), message("+MIIEpAIBAAKCAQEA\n+QIDAQABAoIBAQ==\r\nrest"))
    assert texts_of(exported(path, secrets=[key]), tmp_path) == ["+[redacted]\n+[redacted]\r\nrest"]


def texts_of(data: bytes, directory: Path) -> list[str]:
    loaded = imported(directory, data)[0]
    return [stored.value.text for stored in loaded.records if isinstance(stored.value, Message)]


def test_case_S_03_line_separators_survive(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"
    raw = json.dumps({"kind": "message", "id": "m", "role": "user", "content": [{"type": "text", "text": text}]})
    line = raw.encode()[:-1] + b',"timestamp":"%b"}' % NOW.encode()
    path = write_session(
        tmp_path / "s1.jsonl", header(), message(text), tail=line.replace(b"\\u2028", "\u2028".encode())
    )
    told = exported(path)
    assert told.count(b"\n") == 3
    assert texts_of(told, tmp_path) == texts(path) == [text, text]


def test_a_line_of_12_mb_survives(tmp_path: Path) -> None:
    text = "x\u2028\0" * 2_500_000
    path = write_session(tmp_path / "s1.jsonl", header(), message(text))
    told = exported(path)
    half = len(told) // 2
    assert imported(tmp_path, told[:half], told[half:])[1] == list(load_session(path).read_raw_lines())


def test_case_S_01_a_torn_line_and_others_are_skipped_and_counted(tmp_path: Path) -> None:
    lines = [
        encode_line(header()),
        encode_line(message("one")),
        b"bad\n",
        encode_line(message("two")),
        b'{"kind":"message","role":"assi',
    ]
    loaded, _ = imported(tmp_path, b"".join(lines))
    assert (len(loaded.records), loaded.report.skipped_count) == (2, 2)
    assert names(tmp_path) == []


def test_a_byte_order_mark_and_lines_of_windows_are_accepted(tmp_path: Path) -> None:
    lines = encode_line(header()), encode_line(message("one"))
    loaded, raw = imported(tmp_path, b"\xef\xbb", b"\xbf" + lines[0][:-1], b"\r", b"\n", lines[1][:-1] + b"\r\n")
    assert (loaded.header, loaded.report.warnings(), raw) == (header(), (), [lines[1][:-1]])


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n\n", "is empty"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"\xef\xbb\xbf\n <html>", "an HTML page"),
        ('{"kind":"header"}\n'.encode("utf-16"), "text in UTF-16"),
        (gzip.compress(b"{}", mtime=0), "a compressed file"),
        (b"\x7fELF\x02\x01\x01\0\0", "a binary file"),
        (b'[{"kind":"message"}]', "a JSON array"),
        (b'{\n  "kind": "message"\n}', "multi-line JSON"),
        (b'{"type":"session","id":"1"}\n{"type":"message"}\n', "JSON lines of another program"),
        (b'{"kind":"message","text":"hi"}\n{"kind":"other"}\n', "JSON lines of another program"),
        (b"Dear diary\n", "some other text"),
    ],
)
def test_a_file_that_is_not_a_session_is_rejected_by_name(tmp_path: Path, sent: bytes, named: str) -> None:
    assert named in refusal(tmp_path, sent)
    assert named in refusal(tmp_path, *(sent[at : at + 1] for at in range(len(sent))))


def test_a_hostile_id_in_a_file_is_ignored(tmp_path: Path) -> None:
    hostile = header("../../../../etc/cron.d/x", parent_id="..\0/")
    loaded, _ = imported(tmp_path, encode_line(hostile), encode_line(message("one", message_id="/etc/passwd")))
    assert loaded.header == hostile
    assert names(tmp_path) == []


def test_records_without_a_header_and_a_lone_header_are_accepted(tmp_path: Path) -> None:
    assert len(imported(tmp_path, encode_line(message("one")))[0].records) == 1
    assert imported(tmp_path, encode_line(header()))[0].header == header()
    assert len(imported(tmp_path, encode_line(header()), b'{"kind":"future"}\n')[0].records) == 1


def test_a_too_large_import_is_rejected_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_import, "MAX_IMPORT_BYTES", 1000)
    with ImportSpool(tmp_path) as incoming:
        incoming.feed(b"x" * 1000)
        assert names(tmp_path) != []
        with pytest.raises(LimitExceeded, match="1000 bytes"):
            incoming.feed(b"x")
    assert names(tmp_path) == []


def test_an_unwritable_session_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot save the import in"), ImportSpool(tmp_path / "missing"):
        pytest.fail("it was opened")


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with ImportSpool(tmp_path) as incoming, pytest.raises(StorageError, match="cannot save the import in"):
            incoming.feed(b"x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


def test_the_draft_is_private_to_its_owner(tmp_path: Path) -> None:
    with ImportSpool(tmp_path):
        (draft,) = tmp_path.iterdir()
        assert draft.stat().st_mode & 0o777 == 0o600


@patient
@given(
    st.lists(messages | st.just(COMPACTION) | nasty_text.map(lambda text: header(name=text)), max_size=5),
    st.lists(st.sampled_from((b"", b"\r\n", b"bad\n", b'{"kind":"future","x":"\\ud800\xe2\x80\xa8"}\n')), max_size=3),
    st.integers(1, 200),
)
def test_export_import_export_round_trips(records: list[Record], between: list[bytes], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = write_session(directory / "s1.jsonl", header(), *records, tail=b"".join(between))
        once = exported(path)
        loaded, raw = imported(directory, *(once[at : at + chunk] for at in range(0, len(once), chunk)))
        assert loaded.report.skipped_count == 0
        assert [stored.value for stored in loaded.records] == [stored.value for stored in load_session(path).records]
        # As the owner of an import writes it: a header of its own, and then what came.
        again = Header(id="s2", cwd="/u", imported_from=loaded.header.id, created_at=NOW, updated_at=NOW)
        copy = write_session(directory / "s2.jsonl", again, tail=b"".join(line + b"\n" for line in raw))
        assert exported(copy).split(b"\n")[1:] == once.split(b"\n")[1:]


def test_the_longest_secret_is_redacted_first(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), message("hunter2-longer"))
    assert texts_of(exported(path, secrets=["hunter2", "hunter2-longer"]), tmp_path) == ["[redacted]"]


SECRETS = (
    "hunter2",
    'p"w\\x/',
    "ключ-🌍",
    "a\u2028b\0c",
    "the-first-line\nthe-second-line",
    "a+b/c=?&d",
    "hunter2-longer",
)


@patient
@given(st.lists(nasty_text | st.sampled_from(SECRETS), max_size=8).map("".join), nasty_text)
def test_no_secret_remains_in_a_text(said: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = write_session(Path(directory) / "s1.jsonl", header(name=name), message(said))
        (text,) = texts_of(exported(path, secrets=SECRETS), Path(directory))
        assert not any(secret in text for secret in SECRETS)
        (before,) = texts(path)
        assert text == before or "[redacted]" in text
