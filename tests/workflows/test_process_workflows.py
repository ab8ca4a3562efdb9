"""Servers, input, much output, daemons and terminals inside the sandbox."""

import pytest
from developer import Developer

pytestmark = pytest.mark.workflows


def test_a_server_and_a_client_in_one_call(dev: Developer) -> None:
    dev.write("index.html", "served\n")
    script = """
        python3 -u -m http.server 0 --bind 127.0.0.1 > server.log 2>&1 & pid=$!
        until port=$(grep -o 'port [0-9]*' server.log | cut -d' ' -f2) && [ -n "$port" ]; do :; done
        curl -s http://127.0.0.1:$port/index.html; kill $pid"""
    assert "served" in dev.works(script)


def test_a_heredoc(dev: Developer) -> None:
    dev.works("cat > notes.txt <<'EOF'\nit's \"here\" $HOME\nEOF", "cat notes.txt")
    assert (dev.project / "notes.txt").read_text() == 'it\'s "here" $HOME\n'


def test_readers_of_standard_input_end(dev: Developer) -> None:
    assert "[no output]" in dev.works("cat")
    assert "0" in dev.works("read line; wc -c")


def test_200_megabytes_of_output(dev: Developer) -> None:
    printed = dev.works("head -c 200000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo the-end")
    assert "the-end" in printed
    assert len(printed) < 100_000


def test_a_daemon_ends_with_its_call_and_is_reported(dev: Developer) -> None:
    first, second = dev.agent(
        "setsid sh -c 'echo $$ > daemon.pid; exec sleep 300' > /dev/null 2>&1 < /dev/null & "
        "until [ -s daemon.pid ]; do :; done; echo started",
        "ps -eo args | grep -c '[s]leep 300'",
    )
    assert "started" in first.text
    assert "ended" in first.text, first.text
    assert second.text.split()[0] == "0"


def test_tmux_inside(dev: Developer) -> None:
    script = """
        tmux -f /dev/null new-session -d -s work "echo inside > out.txt; tmux wait-for -S done; sleep 100"
        tmux wait-for done; tmux list-sessions; tmux kill-server; cat out.txt"""
    printed = dev.works(script)
    assert "work:" in printed
    assert "inside" in printed
