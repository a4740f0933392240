"""The reference as an HTML page, made from the API's description.

Plain markup with its style inside; no script, nothing loaded. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#f8f5f0, #131210);
  --surface: light-dark(#fffefc, #1b1a17); --soft: light-dark(#f1ede5, #24221e);
  --line: light-dark(#e4ded3, #302d27); --ink: light-dark(#1d1a16, #f1ece3);
  --ink-2: light-dark(#544e45, #bdb5a8); --accent: light-dark(#ab420a, #ff9e57); }
body { font: 0.9375rem/1.5 system-ui, sans-serif; margin: 0; background: var(--paper);
  color: var(--ink); }
header { background: #1a1713; color: #efe8dc; padding: 1rem max(1rem, 50vw - 30rem); }
header a { color: #ff9242; text-decoration: none; font-weight: 600; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; letter-spacing: -0.01em; }
h2 { margin: 3rem 0 1rem; text-transform: capitalize; }
h3 { margin: 2rem 0 0.5rem; }
a { color: var(--accent); }
code { font: 0.9em ui-monospace, monospace; background: var(--soft); padding: 0 0.25em;
  border-radius: 3px; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; text-transform: capitalize; }
table { border-collapse: collapse; width: 100%; }
th { font-size: 0.8rem; color: var(--ink-2); }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.75rem 0.3rem 0;
  border-bottom: 1px solid var(--line); }
details { background: var(--surface); border: 1px solid var(--line); border-radius: 8px;
  margin: 0.5rem 0; }
summary { cursor: pointer; padding: 0.55rem 0.9rem; }
summary:hover { background: var(--soft); }
details > div { padding: 0 0.9rem 0.9rem; overflow-x: auto; }
.method { display: inline-block; min-width: 4.2rem; font: 600 0.8rem ui-monospace, monospace;
  color: var(--accent); }
"""


def _page(title: str, body: str) -> str:
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n"
        '<body><header><a href="/">Monarq</a></header>'
        f"<main>{body}</main></body></html>\n"
    )


def reference_page(description: dict[str, Any]) -> str:
    """Of an OpenAPI description as `openapi.openapi` makes it."""
    info = description["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>',
        '<p><a href="/">Back to the dashboard</a></p>',
        _contents(description),
        *_tags(description),
        '<h2 id="types">Types</h2>',
        *_types(description["components"]["schemas"]),
    ]
    return _page("Monarq: the API", "\n".join(parts))


def _contents(description: dict[str, Any]) -> str:
    names = [*(tag["name"] for tag in description["tags"]), "types"]
    links = (f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in names)
    return f'<nav aria-label="Contents">{" ".join(links)}</nav>'


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))


def _tags(description: dict[str, Any]) -> Iterator[str]:
    for tag in description["tags"]:
        yield f'<h2 id="{_anchor(tag["name"])}">{escape(tag["name"])}</h2>'
        for path, methods in description["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield _operation(method, path, operation)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{_marked(operation['description'])}</p>"] if "description" in operation else []
    if operation["parameters"]:
        rows = "".join(_parameter(parameter) for parameter in operation["parameters"])
        parts.append(f"<table><tr><th>parameter<th>in<th>type<th></tr>{rows}</table>")
    if "requestBody" in operation:
        [content] = operation["requestBody"]["content"].values()
        parts.append(f"<p>Body: {_type(content['schema'])}</p>")
    rows = "".join(
        f"<tr><td><code>{status}</code><td>{_answer(answer)}<td>{_marked(answer['description'])}"
        for status, answer in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>status<th>answer<th></tr>{rows}</table>")
    return (
        f"<details><summary><span class=method>{method.upper()}</span> "
        f"<code>{escape(path)}</code> {_marked(operation['summary'])}</summary>"
        f"<div>{''.join(parts)}</div></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    notes = [schema["description"]] if "description" in schema else []
    if "default" in schema:
        notes.append(f"default `{schema['default']}`")
    if parameter["required"]:
        notes.append("required")
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code><td>{parameter['in']}"
        f"<td>{_type(schema)}<td>{_marked('; '.join(notes))}"
    )


def _answer(answer: dict[str, Any]) -> str:
    if "content" not in answer:
        return ""
    [(kind, content)] = answer["content"].items()
    return _type(content["schema"]) if kind == "application/json" else escape(kind)


def _types(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>'
        if "description" in schema:
            yield f"<p>{_marked(schema['description'])}</p>"
        if "enum" in schema:
            yield f"<p>{_type(schema)}</p>"
            continue
        required = set(schema.get("required", ()))
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code><td>{_type(one)}"
            f"<td>{'' if field in required else 'optional'}"
            f"<td>{_marked(one.get('description', ''))}"
            for field, one in schema.get("properties", {}).items()
        )
        yield f"<table>{rows}</table>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " · ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(schema.get("format", kind)) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" {low} to {high}"
    return ""


def _marked(text: str) -> str:
    """Escaped, with `code` in backticks as such."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts)
    )
