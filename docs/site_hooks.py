"""Put pages that live outside docs/ on the site, and point links at their place there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff", "benchmarks/RESULTS.md"]
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")  # the path of a relative link or image


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README as the home page, and everything that the pages link to."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    patterns = ("results/*.md", "results/*.png", "results/advise/*.md", "results/advise/*/*.html", "examples/*.py")
    found = [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    for name in OUTSIDE + found:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links, which are relative to a page's place in the repository, to its place on the site."""
    on_site = page.file.src_uri
    in_repository = "README.md" if on_site == "index.md" else on_site if _outside(on_site) else f"docs/{on_site}"

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), match[2]))
        target = "index.md" if target == "README.md" else target.removeprefix("docs/")
        return match[1] + posixpath.relpath(target, posixpath.dirname(on_site) or ".")

    return LINK.sub(moved, markdown)


def _outside(name: str) -> bool:
    return (ROOT / name).exists() and not (ROOT / "docs" / name).exists()
