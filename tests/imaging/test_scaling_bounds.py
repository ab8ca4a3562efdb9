"""Scaling is bounded in time and in how many images are scaled at once."""

import io
import threading

import pytest
from PIL import Image

from yarrow.imaging import fit as fitting
from yarrow.imaging.fit import SCALINGS, Fitting, Unfit, fit


def large() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8_400, 100)).save(buffer, "JPEG", progressive=True)
    return buffer.getvalue()


def test_a_slowly_decoding_image_is_rejected_and_the_next_one_is_scaled(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "SCALING_SECONDS", 0.0)
        for _ in range(SCALINGS + 1):
            result = fit(large())
            assert isinstance(result, Unfit)
            assert "took more than 0 seconds" in result.text
    assert isinstance(fit(large()), Fitting)


def test_an_image_beyond_the_concurrency_limit_waits_and_is_rejected_in_time(monkeypatch: pytest.MonkeyPatch):
    opened, begun, gate = Image.open, threading.Semaphore(0), threading.Event()

    def held(*values: object, **named: object) -> Image.Image:
        begun.release()
        gate.wait(30)
        return opened(*values, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Image, "open", held)
    threads = [threading.Thread(target=fit, args=(large(),)) for _ in range(SCALINGS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=10)
    monkeypatch.setattr(fitting, "SCALING_SECONDS", 0.01)
    result = fit(large())
    gate.set()
    for thread in threads:
        thread.join(30)
    assert isinstance(result, Unfit)
    assert "too many images" in result.text
