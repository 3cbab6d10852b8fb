"""The layers of the package: imports point downwards, without cycles, and few modules import optional packages."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"ragembed": ROOT / "ragembed", "ragembed.indexes": ROOT / "indexes", "ragembed.cli": ROOT / "cli"}
LAYERS = (
    ("ragembed",),  # the core: every module that is in no other layer
    ("ragembed.evaluation",),
    ("ragembed.papers",),
    ("ragembed.indexes.types",),
    ("ragembed.indexes.faiss_index", "ragembed.indexes.filters"),
    ("ragembed.indexes.lexical",),
    ("ragembed.indexes.storage",),
    ("ragembed.indexes.search",),
    ("ragembed.indexes.integrity", "ragembed.indexes.verification"),
    ("ragembed.indexes.store",),
    ("ragembed.indexes.collection",),
    ("ragembed.indexes.indexing",),
    ("ragembed.indexes",),  # the public names
    ("ragembed.distributed",),
    ("ragembed.adapters",),
    ("ragembed.langchain", "ragembed.llamaindex", "ragembed.haystack"),
    ("ragembed.serving", "ragembed.reports"),
    ("ragembed.cli", "ragembed.__main__"),
)
"""From bottom to top: a module may import from its own layer and from earlier ones in this list."""
ONLY_IMPORTERS = {
    "torch": ("ragembed.models", "ragembed.papers", "ragembed.indexes.faiss_index.gpus"),
    "transformers": ("ragembed.models.generation", "ragembed.models.transformers_model"),
    "sentence_transformers": ("ragembed.reranking",),
    "sklearn": ("ragembed.papers", "ragembed.postprocess.estimators", "ragembed.reports"),
    "scipy": ("ragembed.papers", "ragembed.reports"),
    "openvino": ("ragembed.models.openvino_bert",),
    "openTSNE": ("ragembed.reports.map",),
    "matplotlib": ("ragembed.papers.sentences.plots",),
    "semble_grammars": ("ragembed.documents.readers.definitions",),
    "tree_sitter": ("ragembed.documents.readers.definitions",),
    "faiss": ("ragembed.indexes.faiss_index",),
    "olefile": ("ragembed.documents.readers.excel", "ragembed.documents.readers.outlook"),
    "xlrd": ("ragembed.documents.readers.excel",),
    "fsspec": ("ragembed.documents.remote",),
    "pypdfium2": ("ragembed.documents.readers.pdf_pages",),
    "yaml": ("ragembed.documents.readers.properties",),
    "pytesseract": ("ragembed.documents.readers.pdf",),
    "PIL": ("ragembed.documents.readers.pdf",),
    "haystack": ("ragembed.haystack",),
    "llama_index": ("ragembed.llamaindex",),
    "httpx": ("ragembed.models.served",),
    "langchain_core": ("ragembed.langchain",),
    "mcp": ("ragembed.serving.mcp_server", "ragembed.serving.mcp_over_http"),
    "mcp_types": ("ragembed.serving.mcp_server",),
    "starlette": ("ragembed.serving",),
    "uvicorn": ("ragembed.serving.mcp_over_http", "ragembed.serving.http_app", "ragembed.serving.http_sockets"),
    "h11": ("ragembed.serving.http_sockets",),
    "click": ("ragembed.cli", "ragembed.__main__"),
    "sqlite3": ("ragembed.indexes", "ragembed.cli"),
    "watchfiles": ("ragembed.indexes.indexing.watch",),
    "ray": ("ragembed.distributed.ray_workers",),
}
PAPERS = ("ragembed.papers", "ragembed.cli.papers")


def all_modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [part for part in file.relative_to(folder).with_suffix("").parts if part != "__init__"]
            yield ".".join([package, *parts]), file


MODULES = dict(all_modules())


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imported_names(file: Path) -> tuple[str, ...]:
    """Return the full names that a file imports at run time, in functions too, but not for type checking."""
    return tuple(_imported_names(file))


def _imported_names(file: Path) -> Iterator[str]:
    tree = parsed(file)
    for_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(name: str) -> set[str]:
    """Return the modules of ragembed that a module imports at run time."""
    found = set()
    for imported in imported_names(MODULES[name]):
        if below(imported, "ragembed"):
            found.add(imported if imported in MODULES else imported.rpartition(".")[0])
    return found - {name}


def layer(name: str) -> int:
    """Return the number of the layer whose name is the longest prefix of the module's name."""
    named = [(len(package), number) for number, layer in enumerate(LAYERS) for package in layer if below(name, package)]
    return max(named)[1]


def test_imports_point_to_lower_layers():
    upwards = [
        f"{name} imports {imported}, which is above it"
        for name in MODULES
        for imported in imported_modules(name)
        if layer(imported) > layer(name)
    ]
    assert upwards == []


def test_optional_packages_are_imported_in_few_places():
    elsewhere = [
        f"{name} imports {package}"
        for name, file in MODULES.items()
        for package, importers in ONLY_IMPORTERS.items()
        if any(below(imported, package) for imported in imported_names(file))
        and not any(below(name, importer) for importer in importers)
    ]
    assert elsewhere == []


def test_only_their_commands_import_the_papers():
    outside = [name for name in MODULES if not any(below(name, one) for one in PAPERS)]
    assert [
        name for name in outside if any(below(imported, PAPERS[0]) for imported in imported_names(MODULES[name]))
    ] == []


def test_modules_have_no_import_cycles():
    assert_acyclic({name: imported_modules(name) for name in MODULES})


def test_packages_have_no_import_cycles():
    """A package is a folder with everything below it; a module beside a folder counts as itself."""
    folders = {name for name, file in MODULES.items() if file.name == "__init__.py"} - set(PACKAGES)

    def package(name: str) -> str:
        return min((folder for folder in folders if below(name, folder)), key=len, default=name)

    graph: dict[str, set[str]] = {}
    for name in MODULES:
        graph.setdefault(package(name), set()).update(package(imported) for imported in imported_modules(name))
    assert_acyclic({name: imported - {name} for name, imported in graph.items()})


def assert_acyclic(graph: dict[str, set[str]]) -> None:
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_class_names_are_unique():
    named = Counter(
        node.name.removeprefix("_")
        for file in MODULES.values()
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, classes in named.items() if classes > 1] == []


def test_no_argument_is_unused():
    """An interface whose arguments a class does not need is the wrong one; ``override`` marks those of a base class."""
    files = (*MODULES.values(), *(ROOT / "benchmarks").glob("*.py"))
    assert [str(file) for file in files if "noqa: " + "ARG" in file.read_text(encoding="utf-8")] == []


def test_every_layer_has_modules():
    assert {layer(name) for name in MODULES} == set(range(len(LAYERS)))


def test_package_list_matches_the_folders():
    listed = set(re.findall(r'^    "(ragembed[\w.]*)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert listed == {name for name, file in MODULES.items() if file.name == "__init__.py"}


def test_no_folder_shadows_a_mapped_package():
    assert not (ROOT / "ragembed" / "cli").exists()
    assert not (ROOT / "ragembed" / "indexes").exists()


def test_every_error_is_documented_in_the_tree():
    from ragembed import errors

    for name, value in vars(errors).items():
        if isinstance(value, type):
            assert issubclass(value, (errors.RagembedError, errors.IndexWarning))
            assert name in errors.__doc__


def test_private_names_stay_in_their_module():
    """An underscore marks a name that only its own module, or a subclass, uses."""
    used = [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, file in MODULES.items()
        for node in private_names_of_others(parsed(file))
    ]
    assert used == []


LIBRARY_NAMES = frozenset(
    (
        "_exit",
        "_replace",
        "_asdict",
        "_Hash",
        "_linear_pointwise",
        "_reorder_linear_weight",
        "_is_mkldnn_bf16_supported",
        "_is_vnni_supported",
    )
)
"""Names with an underscore of the standard library and of PyTorch that have no public twin."""


def private_names_of_others(tree: ast.Module) -> Iterator[ast.Attribute | ast.ImportFrom]:
    """Yield the private names that a module takes from objects or modules that it does not define."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if any(alias.name.startswith("_") and not alias.name.startswith("__") for alias in node.names):
                yield node
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_inherited = ast.unparse(node.value) in ("self", "cls", "super()")
            if not is_inherited and node.attr not in own | LIBRARY_NAMES:
                yield node
