"""The layout holds: imports point one way, heavy packages have one importer each, every folder is packaged."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"ragembed": ROOT / "ragembed", "ragembed.indexes": ROOT / "indexes", "ragembed.cli": ROOT / "cli"}
ONLY_IMPORTERS = {
    "torch": ("ragembed.backbones", "ragembed.indexes.ann.gpus", "ragembed.training"),
    "transformers": ("ragembed.backbones.transformers_model", "ragembed.training.encoder"),
    "sentence_transformers": ("ragembed.reranking",),
    "sklearn": ("ragembed.evaluation", "ragembed.postprocess.estimators", "ragembed.training.ica"),
    "scipy": ("ragembed.evaluation",),
    "matplotlib": ("ragembed.evaluation.plots", "ragembed.training.pictures"),
    "faiss": ("ragembed.indexes.ann",),
    "fsspec": ("ragembed.documents.remote",),
    "langchain_core": ("ragembed.langchain",),
    "click": ("ragembed.cli",),
    "sqlite3": ("ragembed.indexes",),
    "ray": ("ragembed.ray_cluster", "ragembed.distributed.ray_workers"),
}
ARROWS = {
    "ragembed.cli": ("ragembed", "ragembed.indexes", "ragembed.distributed", "ragembed.cli"),
    "ragembed.indexes": ("ragembed", "ragembed.indexes"),
    "ragembed.langchain": ("ragembed", "ragembed.indexes", "ragembed.langchain"),
    "ragembed.distributed": ("ragembed", "ragembed.indexes", "ragembed.distributed"),
    "ragembed": ("ragembed",),
}


def modules():
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [part for part in file.relative_to(folder).with_suffix("").parts if part != "__init__"]
            yield ".".join([package, *parts]), file


def imports(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(name):
    return next(
        (
            part
            for part in ("ragembed.cli", "ragembed.indexes", "ragembed.langchain", "ragembed.distributed")
            if below(name, part)
        ),
        "ragembed",
    )


def below(name, package):
    return name == package or name.startswith(package + ".")


MODULES = dict(modules())


def test_there_are_modules_to_check():
    assert len(MODULES) > 50
    assert {part_of(name) for name in MODULES} == set(ARROWS)


@pytest.mark.guarantee(6, 53)
@pytest.mark.parametrize("name", MODULES)
def test_arrows_point_one_way(name):
    for imported in imports(MODULES[name]):
        if below(imported, "ragembed"):
            assert part_of(imported) in ARROWS[part_of(name)], f"{name} imports {imported}"
        for package, importers in ONLY_IMPORTERS.items():
            if below(imported, package):
                assert any(below(name, importer) for importer in importers), f"{name} imports {imported}"


def test_the_package_list_is_the_folders():
    listed = set(re.findall(r'^    "(ragembed[\w.]*)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    found = {
        ".".join([package, *file.parent.relative_to(folder).parts])
        for package, folder in PACKAGES.items()
        for file in folder.rglob("__init__.py")
    }
    assert listed == found


def test_no_folder_hides_a_mapped_package():
    assert not (ROOT / "ragembed" / "cli").exists()
    assert not (ROOT / "ragembed" / "indexes").exists()


def test_public_names_are_what_all_says():
    import ragembed
    import ragembed.evaluation
    import ragembed.indexes
    import ragembed.langchain
    import ragembed.postprocess
    import ragembed.training

    packages = (ragembed.evaluation, ragembed.indexes, ragembed.langchain, ragembed.postprocess, ragembed.training)
    for module in (ragembed, *packages):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError):
            _ = module.no_such_name


def test_every_error_is_in_the_one_tree_and_documented():
    from ragembed import errors

    for name, value in vars(errors).items():
        if isinstance(value, type):
            assert issubclass(value, (errors.RagembedError, errors.IndexWarning))
            assert name in errors.__doc__
