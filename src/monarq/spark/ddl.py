"""Reads the type of a payload, written as Spark's DDL or as Spark's JSON.

Spark's own reader of DDL lives in the JVM, which its Python workers cannot call.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from monarq.errors import InvalidRequestError

_SIMPLE: dict[str, DataType] = {
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "byte": ByteType(),
    "tinyint": ByteType(),
    "date": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "real": FloatType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "short": ShortType(),
    "smallint": ShortType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}

_TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>`(?:[^`]|``)+`)
             | (?P<text>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
             | (?P<word>[^\W\d]\w*|\d+\w*)
             | (?P<mark>[<>(),:]) )""",
    re.VERBOSE,
)


def read_type(text: str) -> DataType:
    """A type (`ARRAY<INT>`), or the fields of a struct (`id INT, name STRING`)."""
    if text.lstrip().startswith(("{", '"')):
        return _checked(_from_json(text))
    return _checked(_Reader(text).whole())


def _from_json(text: str) -> DataType:
    try:
        document: Any = json.loads(text)
        if isinstance(document, dict) and document.get("type") == "struct":
            return StructType.fromJson(document)
        wrapped = StructType.fromJson(
            {
                "type": "struct",
                "fields": [{"name": "_", "type": document, "nullable": True, "metadata": {}}],
            }
        )
    except Exception as error:  # noqa: BLE001 - Spark raises whatever it meets in the document
        raise InvalidRequestError(f"this is no schema in Spark's JSON: {error}") from None
    return wrapped.fields[0].dataType


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    def whole(self) -> DataType:
        if not self._tokens:
            raise InvalidRequestError("the schema is empty")
        is_type = len(self._tokens) == 1 or self._tokens[1][1] in ("<", "(")
        found = self._type() if is_type else StructType(self._fields(end=None))
        if self._at < len(self._tokens):
            raise self._wrong("the end")
        return found

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise InvalidRequestError(f"{text[at:].strip()[:40]!r} is not understood")
            at = found.end()
            kind = found.lastgroup or ""
            tokens.append((kind, found[kind]))
        return tokens

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self, *allowed: str) -> bool:
        if self._next()[1].lower() in allowed and self._next()[0] in ("mark", "word"):
            self._at += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._wrong(repr(mark))

    def _wrong(self, expected: str) -> InvalidRequestError:
        found = self._next()[1]
        where = f"{found[:40]!r}" if found else "the end"
        return InvalidRequestError(f"expected {expected}, found {where}, in {self._text[:200]!r}")

    def _name(self) -> str:
        kind, token = self._next()
        if kind not in ("quoted", "word"):
            raise self._wrong("a name")
        self._at += 1
        return token[1:-1].replace("``", "`") if kind == "quoted" else token

    def _fields(self, end: str | None) -> list[StructField]:
        fields: list[StructField] = []
        if end is not None and self._next()[1] == end:
            return fields
        while True:
            name = self._name()
            self._take(":")
            kind = self._type()
            nullable = True
            if self._take("not"):
                self._expect("null")
                nullable = False
            if self._take("comment"):
                if self._next()[0] != "text":
                    raise self._wrong("a text")
                self._at += 1
            fields.append(StructField(name, kind, nullable))
            if not self._take(","):
                return fields

    def _type(self) -> DataType:
        if self._next()[0] != "word":
            raise self._wrong("a type")
        word = self._name().lower()
        match word:
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self._fields(end=">")
                self._expect(">")
                return StructType(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal()
        if word not in _SIMPLE:
            self._at -= 1
            raise self._wrong(f"a type ({', '.join(_SIMPLE)}, decimal, array, map, struct)")
        return _SIMPLE[word]

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number(1, 38)
            if self._take(","):
                scale = self._number(0, precision)
            self._expect(")")
        return DecimalType(precision, scale)

    def _number(self, least: int, most: int) -> int:
        token = self._next()[1]
        if not token.isdigit() or not least <= int(token) <= most:
            raise self._wrong(f"a number from {least} to {most}")
        self._at += 1
        return int(token)


def _checked(kind: DataType) -> DataType:
    """Types that JSON has no way to write are refused, and names that stand twice."""
    match kind:
        case StructType():
            if not kind.fields:
                raise InvalidRequestError("a struct needs at least one field")
            names = [name.lower() for name in kind.names]
            for name in kind.names:
                if names.count(name.lower()) > 1:
                    raise InvalidRequestError(f"the field {name!r} stands twice")
            for field in kind.fields:
                _checked(field.dataType)
        case ArrayType():
            _checked(kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise InvalidRequestError("the keys of a map must be strings, as in JSON")
            _checked(kind.valueType)
        case DecimalType():
            pass
        case _:
            if kind not in _SIMPLE.values():
                raise InvalidRequestError(
                    f"{kind.simpleString()} is no type of a payload: use {', '.join(_SIMPLE)}, "
                    "decimal, array, map or struct"
                )
    return kind
