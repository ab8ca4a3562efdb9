"""The model that is used without a name can chat."""

from typing import Any

import pytest

from doubles.chat_server import ChatServer, page
from doubles.ollama_server import OllamaServer, shown
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.chat_model_filter import is_chat_model, is_chat_name
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.ollama.adapter import OllamaProvider

OTHERS = (
    *("nomic-embed-text:latest", "text-embedding-nomic-embed-text-v1.5", "mxbai-embed-large", "embeddinggemma:300m"),
    *("bge-m3", "BAAI/bge-large-en", "all-minilm:l6-v2", "intfloat/multilingual-e5-large", "Qwen/Qwen3-Reranker-4B"),
    *("whisper-large-v3", "gpt-4o-transcribe", "tts-1-hd", "dall-e-3", "omni-moderation-latest", "jina-embeddings-v3"),
)
CHATS = (
    *("qwen3:8b", "qwen/qwen3-coder-30b", "llama3.2:1b", "gemma3n:e4b", "phi4-mini", "gpt-oss:20b", "deepseek-r1:8b"),
    *("mistral-small3.2", "devstral", "granite4:micro", "smollm2:135m", "hf.co/x/y-GGUF:Q4_K_M", "gpt-4o-mini", "m"),
)


@pytest.mark.parametrize("name", OTHERS)
def test_case_RA_11_a_model_that_cannot_chat_is_known_by_its_name(name: str) -> None:
    assert not is_chat_name(name)


@pytest.mark.parametrize("name", CHATS)
def test_case_RA_11_any_other_name_may_be_that_of_a_chat_model(name: str) -> None:
    assert is_chat_name(name)


@pytest.mark.parametrize(
    ("row", "name", "chats"),
    [
        ({"capabilities": ["embedding"]}, "m", False),
        ({"capabilities": ["completion"]}, "my-embedded-helper", True),
        ({"capabilities": []}, "m", True),
        ({"capabilities": None, "type": "embeddings"}, "m", False),
        ({"type": "llm"}, "m", True),
        ({"type": 5, "capabilities": {"chat": True}}, "bge-m3", False),
    ],
)
def test_reported_capabilities_count_more_than_the_name(row: dict[str, Any], name: str, chats: bool) -> None:
    assert is_chat_model(row, name) == chats


async def first_ollama_model(models: list[str], loaded: list[str], capabilities: dict[str, list[str]]) -> str:
    async with OllamaServer() as server:
        server.models = {name: shown(capabilities.get(name)) for name in models}
        server.pages["/api/tags"] = page({"models": [{"name": name, "model": name} for name in models]})
        server.pages["/api/ps"] = page({"models": [{"name": name, "model": name} for name in loaded]})
        provider = OllamaProvider("o", "", settings=ProviderSettings(base_url=server.root), key="", http=HttpClient())
        try:
            return (await provider.info()).model
        finally:
            await provider.close()


async def test_case_RA_11_embedding_models_are_skipped() -> None:
    assert await first_ollama_model(["e", "q"], [], {"e": ["embedding"], "q": ["completion"]}) == "q"
    assert await first_ollama_model(["nomic-embed-text", "q"], [], {}) == "q"


async def test_case_RA_11_a_loaded_model_is_preferred() -> None:
    assert await first_ollama_model(["a", "b", "c"], ["b"], {}) == "b"
    assert await first_ollama_model(["a", "bge-m3"], ["bge-m3"], {}) == "a"


async def test_case_RA_11_a_server_without_a_chat_model_is_an_error() -> None:
    with pytest.raises(ProviderError, match="no model that can chat") as caught:
        await first_ollama_model(["bge-m3"], ["bge-m3"], {})
    assert caught.value.code is Code.PROVIDER_SETUP


async def test_case_RA_11_a_llamacpp_server_with_several_models() -> None:
    async with ChatServer() as server:
        provider = LlamaCppProvider("l", "", settings=ProviderSettings(base_url=server.root), key="", http=HttpClient())
        server.pages["/v1/models"] = page({"data": [{"id": "text-embedding-nomic"}, {"id": "qwen/qwen3-coder-30b"}]})
        assert (await provider.info()).model == "qwen/qwen3-coder-30b"
        server.pages["/v1/models"] = page({"data": [{"id": "text-embedding-nomic"}]})
        with pytest.raises(ProviderError, match="no models that can chat"):
            await provider.info()
        await provider.close()
