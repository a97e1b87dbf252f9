"""The layers of the code: imports point one way, in a circle never, and at nothing optional."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "jaxsaw"

# What each part may import. A part is a module or a package directly below jaxsaw.
BASE = {"_jax", "state"}
STREAMS = BASE | {"transforms", "random", "rngs", "parallel"}
MAY_IMPORT = {
    "_jax": set(),
    "state": {"_jax"},
    "transforms": BASE,
    "random": set(),
    "rngs": BASE | {"transforms", "random"},
    "parallel": BASE | {"transforms"},
    "nn": STREAMS | {"optim", "data"},
    "optim": STREAMS | {"nn", "data"},
    "data": STREAMS | {"nn", "optim"},
    "checkpoint": STREAMS | {"nn", "optim", "data"},
    "inspection": STREAMS | {"nn", "optim", "data"},
}

# The parts of these that others may name; what lies deeper is their own business.
PUBLIC = {
    "jaxsaw.nn",
    "jaxsaw.nn.functional",
    "jaxsaw.nn.init",
    "jaxsaw.nn.utils",
    "jaxsaw.optim",
    "jaxsaw.optim.lr_scheduler",
    "jaxsaw.optim.swa_utils",
    "jaxsaw.data",
    "jaxsaw.checkpoint",
    "jaxsaw.inspection",
}
GUARDED = {"nn", "optim", "data", "checkpoint", "inspection"}

# JAX itself imports ml_dtypes, whose types its arrays have.
REQUIRED = {"jax", "numpy", "ml_dtypes"} | sys.stdlib_module_names


@dataclass(frozen=True)
class Import:
    """One imported module: where it stands, and whether it runs as its module is imported."""

    module: str  # for "from a import b", a.b where that is a module of ours, else a
    names: tuple[str, ...]  # what is taken from it
    line: int
    eager: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def part(module: str) -> str:
    """Return the part of jaxsaw that a module belongs to: "nn" for "jaxsaw.nn.linear"."""
    return (module.split(".") + [""])[1]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(tree: ast.AST, eager: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield every import below ``tree``, and whether it runs when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, eager
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(node, False)
        else:
            yield from statements(node, eager and not is_type_checking(node))


@cache
def imports(module: str) -> tuple[Import, ...]:
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    for node, eager in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, (), node.lineno, eager) for alias in node.names]
            continue
        source = node.module or ""
        if node.level:
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*base, source] if source else base)
        names = [alias.name for alias in node.names]
        ours = [name for name in names if f"{source}.{name}" in MODULES]
        found += [Import(f"{source}.{name}", (), node.lineno, eager) for name in ours]
        rest = tuple(name for name in names if name not in ours)
        if rest:
            found.append(Import(source, rest, node.lineno, eager))
    return tuple(found)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "jaxsaw"


def report(module: str, wrong: list[tuple[Import, str]]) -> None:
    path = MODULES[module].relative_to(ROOT.parent)
    lines = [f"{path}:{item.line}: {item.module}: {why}" for item, why in wrong]
    assert not lines, "\n" + "\n".join(lines)


every_module = pytest.mark.parametrize("module", MODULES)


def test_that_every_part_has_a_layer():
    parts = {part(module) for module in MODULES} - {""}
    assert parts <= MAY_IMPORT.keys()


@every_module
def test_imports_point_one_way(module):
    here = part(module)
    if not here:
        return
    wrong = []
    for item in imports(module):
        if not is_ours(item.module):
            continue
        there = part(item.module)
        if there == "":
            if item.eager:
                wrong.append((item, "the top-level package imports this module"))
        elif there != here and there not in MAY_IMPORT[here]:
            wrong.append((item, f"{here} may import {sorted(MAY_IMPORT[here])}"))
        elif there != here and there in GUARDED and item.module not in PUBLIC:
            wrong.append((item, f"internal to {there}"))
        elif there != here and any(
            name.startswith("_") for name in [*item.module.split(".")[2:], *item.names]
        ):
            wrong.append((item, f"private to {there}"))
    report(module, wrong)


@every_module
def test_only_one_file_knows_the_internals_of_jax(module):
    if module != "jaxsaw._jax":
        report(
            module,
            [
                (item, "belongs into jaxsaw/_jax.py")
                for item in imports(module)
                if item.module.split(".")[0] in ("jax", "jaxlib")
                and ("_src" in item.module or "_src" in item.names or "jaxlib" in item.module)
            ],
        )


@every_module
def test_nothing_optional_is_imported_with_the_module(module):
    report(
        module,
        [
            (item, "import it where it is used")
            for item in imports(module)
            if item.eager
            and not is_ours(item.module)
            and item.module.partition(".")[0] not in REQUIRED
            and module != "jaxsaw._jax"
        ],
    )


def test_imports_form_no_circle():
    graph = {
        module: [item.module for item in imports(module) if item.eager and item.module in MODULES]
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for target in graph[module]:
                visit(target, [*path, module])
            done.add(module)

    for module in graph:
        visit(module, [])


@every_module
def test_module_has_a_docstring(module):
    assert ast.get_docstring(ast.parse(MODULES[module].read_text("utf-8")))


@pytest.mark.parametrize(
    "module", [name for name, path in MODULES.items() if path.name == "__init__.py"]
)
def test_package_only_exports(module):
    def is_export(node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import():
                return True
            case ast.ImportFrom():
                return all(alias.name != "*" for alias in node.names)
            case ast.Assign(targets=[ast.Name(id="__all__" | "__version__")]):
                return True
        return False

    body = ast.parse(MODULES[module].read_text("utf-8")).body
    others = [ast.unparse(node) for node in body if not is_export(node)]
    assert not others
