"""Each rule of Gemini requests rejects its violation."""

from typing import Any

import pytest

from doubles.gemini_rules import violations

Body = dict[str, Any]


def body(*contents: Body, **more: Any) -> Body:
    return {"contents": list(contents) or [user(text())]} | more


def user(*parts: Body) -> Body:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Body) -> Body:
    return {"role": "model", "parts": list(parts)}


def text(words: str = "x", **more: Any) -> Body:
    return {"text": words, **more}


def call(name: str = "ls", signature: str = "c2ln", **more: Any) -> Body:
    made: Body = {"functionCall": {"name": name, "args": {}, **more}}
    return made | ({"thoughtSignature": signature} if signature else {})


def result(name: str = "ls", **more: Any) -> Body:
    return {"functionResponse": {"name": name, "response": {}, **more}}


def image(data: str = "AAAA", media_type: str = "image/png", key: str = "mimeType") -> Body:
    return {"inlineData": {"data": data, key: media_type}}


def loop(*parts: Body, answers: tuple[Body, ...] = (result(),)) -> Body:
    return body(user(text()), model(*(parts or (call(),))), user(*answers))


def tool(schema: Any = None, **more: Any) -> Body:
    declared: Body = {"name": "ls", **more}
    if schema is not None:
        declared["parametersJsonSchema"] = schema
    return {"tools": [{"functionDeclarations": [declared]}]}


def properties(entry: Any) -> Body:
    return tool({"type": "object", "properties": {"a": entry}})


CHOICE: Body = {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}

LEGAL = [
    body(),
    loop(),
    loop(call(id="a"), call("cat", "", id="b"), answers=(result(id="a"), result("cat", id="b"), text())),
    loop(text("t", thought=True, thoughtSignature="-_8="), text("", thoughtSignature="+/8="), call()),
    body(user(text(), image(), image("-_8=", key="mime_type")), systemInstruction=user(text())),
    body(generationConfig={"temperature": 2, "maxOutputTokens": 1}),
    body(**tool(), **CHOICE),
    body(**properties({"anyOf": [{"type": "string"}], "items": {}, "$ref": "#/$defs/a"})),
]


@pytest.mark.parametrize("legal", LEGAL)
def test_valid_bodies_pass(legal: Body) -> None:
    assert violations(legal, "gemini-3-flash") == []


ILLEGAL = [
    (body(seed=1), '"seed": Cannot find field'),
    (body(generationConfig={"temperature": 2.1}), "temperature"),
    (body(generationConfig={"temperature": None}), "temperature"),
    (body(generationConfig={"maxOutputTokens": 0}), "maxOutputTokens"),
    (body(generationConfig={"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}), "only one of"),
    (body(systemInstruction=user()), "systemInstruction"),
    (body(systemInstruction=user(text(" "))), "systemInstruction"),
    (body(**CHOICE), "without function_declarations"),
    (body(**tool(), toolConfig={"functionCallingConfig": {"mode": "auto"}}), "mode: invalid"),
    (body(tools=[{"functionDeclarations": []}]), "at least one"),
    (body(**tool(name="1s")), "invalid function name"),
    (body(**tool(name="x" * 65)), "invalid function name"),
    (body(tools=tool()["tools"] * 2), "Duplicate function"),
    (body(**tool(description="")), "description"),
    (body(**tool({"type": "object"})), "should be non-empty for OBJECT"),
    (body(**properties(True)), "a schema must be an object"),
    (body(**properties({"const": 1})), '"const" at ls.a'),
    (body(**properties({"anyOf": [{"pattern": "x"}]})), '"pattern" at ls.a.anyOf'),
    (body(**properties({"items": {"uniqueItems": True}})), '"uniqueItems" at ls.a.items'),
    (body(**properties({"$defs": {"b": {"default": 1}}})), '"default" at ls.a.b'),
    (body(**properties({"required": ["z"]})), "property is not defined"),
    (body(contents=[]), "contents is not specified"),
    (body(model(text()), user(text())), "roles must alternate"),
    (body(user(text()), user(text()), user(text())), "roles must alternate"),
    (body(user(text()), model(text())), "ends with a user role"),
    (body(user()), "at least one part"),
    (body(user({})), "one of its kinds"),
    (body(user({"text": "x", "inlineData": {}})), "one of its kinds"),
    (body(user({"executableCode": {}})), "one of its kinds"),
    (body(user(text(thoughtSignature="c2ln"))), "Corrupted"),
    (loop(call(signature="c")), "Corrupted"),
    (loop(call(signature="+_+_")), "Corrupted"),
    (body(user(text(" "))), "blank"),
    (body(user(text(""))), "blank"),
    (body(user(image(media_type="image/gif"))), "MIME"),
    (loop(image(), call()), "MIME"),
    (body(user(image(""))), "Base64"),
    (body(user(image("A"))), "Base64"),
    (body(user(call(signature=""))), "a functionCall part of the user"),
    (loop(result(), call()), "a functionResponse part of the model"),
    (loop(call("a.b"), answers=(result("a.b"),)), "name: invalid"),
    (loop(call(args=None)), "must hold an object"),
    (loop(answers=(result(response="x"),)), "must hold an object"),
    (loop(answers=(text(),)), "number of function response parts"),
    (loop(answers=(text(), result())), "number of function response parts"),
    (loop(answers=(result(), result())), "number of function response parts"),
    (loop(call(), call("b"), answers=(result("b"), result())), "number of function response parts"),
    (loop(call(id="a"), answers=(result(id="b"),)), "number of function response parts"),
    (body(user(result())), "number of function response parts"),
    (loop(call(signature="")), "missing a thought_signature"),
]


@pytest.mark.parametrize(("illegal", "sentence"), ILLEGAL, ids=lambda value: value if isinstance(value, str) else "")
def test_invalid_bodies_are_rejected(illegal: Body, sentence: str) -> None:
    found = violations(illegal, "gemini-3-flash")
    assert any(sentence in one for one in found), found


@pytest.mark.parametrize("name", ["gemini-2.5-pro", "models/gemini-1.5-flash", "gemma-3", ""])
def test_models_that_accept_unsigned_calls(name: str) -> None:
    assert violations(loop(call(signature="")), name) == []
