# SPDX-License-Identifier: MIT
"""documents_test.py PAGE...: runs what a page shows, in order, in one namespace: every block of Python, and in tables with the columns
`there` and `here` every piece of code in the right one."""
import os
import pathlib
import re
import sys
import tempfile

import clearhead

FENCE = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
ROW = re.compile(r"^\|(?P<there>.*)\|(?P<here>[^|\n]*)\|$", re.M)
CODE = re.compile(r"`([^`]+)`")


def tables(text):
    """(line, code) of every piece in the right columns; a row without one is a mistake of the page."""
    for head in re.finditer(r"^\| there \| here \|\n\| --- \| --- \|\n((?:\|.*\n?)+)", text, re.M):
        rows = list(ROW.finditer(text, head.start(1), head.end(1)))
        if len(rows) != head[1].count("\n"):
            raise SystemExit(f"line {text[:head.start()].count(chr(10)) + 1}: a row of the table cannot be read")
        for row in rows:
            pieces = CODE.findall(row["here"])
            line = text[:row.start()].count("\n")
            if not pieces:
                raise SystemExit(f"line {line + 1}: the row has no call of ours")
            for piece in pieces:
                yield row.start(), line, piece


def steps(text):
    blocks = [(match.start(), text[:match.start(1)].count("\n"), match[1]) for match in FENCE.finditer(text)]
    return sorted(blocks + list(tables(text)), key=lambda step: step[0]), len(blocks)  # pieces of a row keep their order


clearhead.show_progress(False)
failed = 0
for page in sys.argv[1:]:
    source = pathlib.Path(page).read_text(encoding="utf-8")
    todo, blocks = steps(source)
    namespace = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for _, line, code in todo:
            try:
                exec(compile("\n" * line + code, page, "exec"), namespace)
            except Exception as error:
                where = error.__traceback__
                while where.tb_next is not None and where.tb_frame.f_code.co_filename != page:
                    where = where.tb_next
                print(f"{page}:{where.tb_lineno}: {type(error).__name__}: {error}")
                failed += 1
        os.chdir("/")
    print(f"{page}: {blocks} blocks and {len(todo) - blocks} calls of tables run")
    if blocks == 0:
        print(f"{page}: no block of Python was found")
        failed += 1
sys.exit(1 if failed else 0)
