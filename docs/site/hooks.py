# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What mkdocs.yml cannot say: which files of the repository are in the site, and what mkdocs reads unlike GitHub."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# The files of the site. mkdocs alone takes pages from one folder, which cannot be the root. They keep their folders, so
# that the links between them hold as they are.
PATTERNS = ["*.md", "docs/**/*.md", "docs/img/*", "docs/site/*.css", "test/Graphs/README.md"]
LINK = re.compile(r"\]\(([^)\s#:]+)\)")
# The first line of a code block: the language, and the words for test/docs/run_code_blocks.py.
FENCE = re.compile(r"^([ \t]*```[\w+]+) (.*)$", re.MULTILINE)
# A list right below the line that introduces it.
LIST = re.compile(r"^(\S.*:)\n(?=[-*] )", re.MULTILINE)


def add(files: Files, path: Path, config: MkDocsConfig) -> None:
    files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of `docs_dir` by those of PATTERNS."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for pattern in PATTERNS:
        for path in sorted(ROOT.glob(pattern)):
            add(files, path, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Copies the sources and data that a page links to into the site, and rewrites what mkdocs reads unlike GitHub."""
    for target in LINK.findall(markdown):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        is_known = path.endswith(".md") or files.get_file_from_path(path)
        if not is_known and not path.startswith("..") and (ROOT / path).is_file():
            add(files, ROOT / path, config)
    if page.file.src_uri.startswith("docs/generated/"):
        # mlir-tblgen leaves no empty line before a list, and mkdocs needs one.
        markdown = LIST.sub(r"\1\n\n", markdown)
    return FENCE.sub(lambda fence: fence[1] + title_of(fence[2]), markdown)


def title_of(words: str) -> str:
    """A quotation of a file has its path as the title. Other words are not for readers."""
    quoted = re.match(r"file=(\S+)", words)
    return f' title="{quoted[1]}"' if quoted else ""
