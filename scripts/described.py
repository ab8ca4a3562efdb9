"""Reference of frozen structs: each field with its type, its default and its docstring."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from enum import EnumMeta, StrEnum
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

import msgspec

PLAIN = {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "None": "null", "Any": "anything"}


class Field(NamedTuple):
    """A field as in JSON; `default` is JSON, or empty for a required field."""

    name: str
    type: str
    default: str
    text: str


class Described(NamedTuple):
    """A struct."""

    name: str
    tag: str
    """Distinguishing member, as `key: "value"`; empty for a struct that is used in one place only."""
    text: str
    """The docstring of the class, with its fields named as in JSON."""
    fields: tuple[Field, ...]


def structs(module: ModuleType) -> dict[str, Described]:
    """Return the structs that a module defines, by class name."""
    classes = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)]
    kinds = [node for node in classes if hasattr(getattr(module, node.name), "__struct_fields__")]
    return {node.name: _struct(node, module) for node in kinds}


def _struct(node: ast.ClassDef, module: ModuleType) -> Described:
    kind = getattr(module, node.name)
    texts = dict(_texts(node))
    types = dict(_annotations(node))
    fields = tuple(
        Field(each.encode_name, type_text(types[each.name], module), _default(each), texts.get(each.name, ""))
        for each in msgspec.structs.fields(kind)
    )
    config = kind.__struct_config__
    tag = f'`{config.tag_field}: "{config.tag}"`' if config.tag_field else ""
    names = {each.name: each.encode_name for each in msgspec.structs.fields(kind)}
    text = re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", inspect.getdoc(kind) or "")
    return Described(node.name, tag, text, fields)


def _annotations(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for field in node.body:
        match field:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                yield name, annotation
            case _:
                continue


def _texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
            case _:
                continue


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.UNSET:
        return "absent"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
    if value is msgspec.NODEFAULT:
        return ""
    return msgspec.json.encode(value() if callable(value) else value).decode()


def type_text(node: ast.expr, module: ModuleType) -> str:
    """Return a type annotation of a module in words."""
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return " or ".join(filter(None, (type_text(left, module), type_text(right, module))))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[item, *_])):
            return f"list of {type_text(item, module)}"
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, item])):
            return f"object of {type_text(item, module)}"
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=values)):
            return _choices(ast.literal_eval(value) for value in values)
        case ast.Constant(value=None):
            return "null"
        case ast.Name(id="UnsetType"):
            return ""
        case ast.Name(id=name):
            return PLAIN.get(name) or _of_name(name, getattr(module, name))
        case _:
            return f"`{ast.unparse(node)}`"


def _of_name(name: str, kind: Any) -> str:
    if isinstance(kind, EnumMeta):
        return _choices(each.value for each in cast("Iterable[StrEnum]", kind))
    if get_origin(kind) is Literal:
        return _choices(get_args(kind))
    return name


def _choices(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)
